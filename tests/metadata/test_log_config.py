"""Conversion of configuration texts to the settings of storage."""

import pytest

from rookery.base.config import BrokerLayers
from rookery.metadata.image import EMPTY_IMAGE
from rookery.metadata.log_config import LogConfigs, broker_layers, log_config
from rookery.metadata.records import ConfigRecord
from rookery.storage.config import LogConfig, SchemaRules


def test_topics_and_storage_have_the_same_defaults() -> None:
    assert log_config({}, BrokerLayers()) == LogConfig()


def test_overrides_and_broker_settings() -> None:
    layers = BrokerLayers(static={"log.roll.hours": "1", "log.cleanup.policy": "compact,delete"})
    config = log_config({"retention.ms": "5", "min.cleanable.dirty.ratio": "0.25"}, layers)
    assert config == LogConfig(
        retention_ms=5,
        segment_ms=3_600_000,
        cleanup_policy=frozenset({"compact", "delete"}),
        min_cleanable_dirty_ratio=0.25,
    )


def test_small_segments_for_tests() -> None:
    assert log_config({"internal.segment.bytes": "100"}, BrokerLayers()).segment_bytes == 100


def test_layers_of_an_image() -> None:
    image, _ = EMPTY_IMAGE.apply(
        [ConfigRecord(4, "", "log.retention.ms", "1"), ConfigRecord(4, "2", "log.roll.ms", "9")]
    )
    layers = broker_layers(image, 2, {"log.retention.ms": "3", "log.segment.bytes": "2000000"})
    assert log_config({}, layers) == LogConfig(retention_ms=1, segment_ms=9, segment_bytes=2_000_000)


def test_equal_overrides_share_a_config() -> None:
    configs = LogConfigs(BrokerLayers())
    assert configs.get({}) is configs.get({})
    assert configs.get({"retention.ms": "1"}) is configs.get({"retention.ms": "1"})
    assert configs.get({"retention.ms": "1"}).retention_ms == 1


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"value.subject.name.strategy": "RecordNameStrategy"}, None),
        ({"value.schema.validation": "true"}, (None, "TopicNameStrategy")),
        ({"confluent.value.schema.validation": "true"}, (None, "TopicNameStrategy")),
        ({"value.schema.validation": "false", "confluent.key.schema.validation": "true"}, ("TopicNameStrategy", None)),
        (
            {
                "key.schema.validation": "true",
                "confluent.key.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
            },
            ("RecordNameStrategy", None),
        ),
        (
            {
                "value.schema.validation": "true",
                "value.subject.name.strategy": "TopicRecordNameStrategy",
                "confluent.value.subject.name.strategy": "RecordNameStrategy",
            },
            (None, "TopicRecordNameStrategy"),
        ),
    ],
)
def test_checks_of_schemas(overrides: dict[str, str], expected: tuple[str | None, str | None] | None) -> None:
    rules = log_config(overrides, BrokerLayers()).schema_rules
    assert rules == (None if expected is None else SchemaRules(*expected))
