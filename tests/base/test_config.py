"""Layers of configuration: which value is in effect, where it comes from, and what the start rejects."""

from pathlib import Path

import pytest

from rookery.base import config_docs
from rookery.base.codes import ConfigSource
from rookery.base.config import (
    BROKER_KEYS,
    BrokerLayers,
    ConfigEntry,
    ConfigSynonym,
    can_update,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
    effective_topic_values,
    find_broker_key,
    find_topic_key,
    ineffective,
    load_static,
    validate_topic,
)
from rookery.base.config_key import ConfigType, parse_value
from rookery.base.config_topic import TOPIC_KEYS
from rookery.base.errors import ConfigError

TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG
DYNAMIC = ConfigSource.DYNAMIC_BROKER_CONFIG
DYNAMIC_DEFAULT = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG
PLAIN = BrokerLayers()


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    found = {entry.name: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def test_every_topic_key_of_kafka_exists() -> None:
    checks_of_schemas = [name for name in TOPIC_KEYS if name.endswith((".schema.validation", ".subject.name.strategy"))]
    assert len(checks_of_schemas) == 8
    assert len(TOPIC_KEYS) == 34 + len(checks_of_schemas)
    assert len(BROKER_KEYS) > 350


def test_load_static() -> None:
    static = load_static("node.id=1\nnum.io.threads=8\nlog.dirs=a,b\n", "server.properties", ["node.id=2"])
    assert static == {"node.id": "2", "num.io.threads": "8", "log.dirs": "a,b"}
    assert ineffective(static) == ["num.io.threads"]
    layers = BrokerLayers(static=static)
    assert layers.integer("node.id") == 2
    assert layers.items("log.dirs") == ("a", "b")
    assert layers.items("advertised.listeners") is None
    assert layers.text("broker.rack") is None
    assert layers.boolean("delete.topic.enable") is True


def test_one_error_lists_all_mistakes() -> None:
    text = "\nlog.retention.hour=24\nnum.partitions=x\nnum.network.threads=0\n"
    with pytest.raises(ConfigError) as caught:
        load_static(text, "server.properties", ["unknown=1"])
    assert str(caught.value).splitlines() == [
        "server.properties:2: unknown key 'log.retention.hour'; did you mean log.retention.hours?",
        "server.properties:3: Invalid value x for configuration num.partitions: not a number of type INT",
        "server.properties:4: Invalid value 0 for configuration num.network.threads: must be at least 1",
        "--set: unknown key 'unknown'",
    ]


def test_static_values_must_fit_together() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(9\) must not exceed"):
        load_static("log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8", "file")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.plain.sasl.jaas.config", "sasl.jaas.config"),
    ],
)
def test_keys_for_one_listener(name: str, key: str) -> None:
    assert find_broker_key(name).name == key
    entry = by_name(describe_broker(BrokerLayers(static={name: "x"})))[name]
    assert entry.source is STATIC
    assert entry.value == (None if entry.is_sensitive else "x")


@pytest.mark.parametrize("name", ["listener.name.internal", "listener.name.internal.unknown", "unknown", ""])
def test_unknown_broker_keys(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        find_broker_key(name)


def test_unknown_topic_keys() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: retentoin.ms; did you mean retention.ms\?$"):
        find_topic_key("retentoin.ms")


@pytest.mark.parametrize(
    ("layers", "retention_ms"),
    [
        (PLAIN, 604_800_000),
        (BrokerLayers(static={"log.retention.hours": "1"}), 3_600_000),
        (BrokerLayers(static={"log.retention.hours": "1", "log.retention.minutes": "2"}), 120_000),
        (BrokerLayers(static={"log.retention.ms": "3", "log.retention.minutes": "2"}), 3),
        (BrokerLayers(static={"log.retention.hours": "-1"}), -1),
        (BrokerLayers(static={"log.retention.ms": "3"}, dynamic_default={"log.retention.ms": "4"}), 4),
        (BrokerLayers(dynamic_default={"log.retention.ms": "4"}, dynamic={"log.retention.ms": "5"}), 5),
    ],
)
def test_topic_values_come_from_the_broker(layers: BrokerLayers, retention_ms: int) -> None:
    assert effective_topic_values({}, layers)["retention.ms"] == retention_ms
    assert effective_topic_values({"retention.ms": "6"}, layers)["retention.ms"] == 6


def test_topic_entries_show_where_a_value_comes_from() -> None:
    layers = BrokerLayers(
        dynamic={"log.retention.ms": "5"},
        dynamic_default={"log.retention.ms": "4"},
        static={"log.retention.ms": "3", "log.retention.hours": "2"},
    )
    entry = by_name(describe_topic({"retention.ms": "6"}, layers))["retention.ms"]
    assert (entry.value, entry.source, entry.read_only, entry.type) == ("6", TOPIC, False, ConfigType.LONG)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "6", TOPIC),
        ConfigSynonym("log.retention.ms", "5", DYNAMIC),
        ConfigSynonym("log.retention.ms", "4", DYNAMIC_DEFAULT),
        ConfigSynonym("log.retention.ms", "3", STATIC),
        ConfigSynonym("log.retention.hours", "2", STATIC),
        ConfigSynonym("log.retention.hours", "168", DEFAULT),
    )


@pytest.mark.parametrize("layers", [PLAIN, BrokerLayers(static={"log.retention.hours": "2", "log.roll.hours": "3"})])
def test_topic_entries_leave_out_synonyms_before_the_one_of_their_own_unit(layers: BrokerLayers) -> None:
    entries = by_name(describe_topic({"segment.ms": "9"}, layers))
    for name in ("retention.ms", "segment.jitter.ms", "flush.ms"):
        assert (entries[name].synonyms, entries[name].source) == ((), DEFAULT)
    assert entries["segment.ms"].synonyms == (ConfigSynonym("segment.ms", "9", TOPIC),)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, "io.confluent.kafka.serializers.subject.TopicNameStrategy"),
        ({"confluent.key.subject.name.strategy": "RecordNameStrategy"}, "RecordNameStrategy"),
        (
            {
                "confluent.key.subject.name.strategy": "RecordNameStrategy",
                "key.subject.name.strategy": "TopicNameStrategy",
            },
            "TopicNameStrategy",
        ),
    ],
)
def test_subject_name_strategies_always_have_a_value(overrides: dict[str, str], expected: str) -> None:
    entries = by_name(describe_topic(overrides, PLAIN))
    assert entries["key.subject.name.strategy"].value == expected
    assert [name for name, entry in entries.items() if entry.value is None] == []


def test_topic_entries_without_overrides() -> None:
    entries = by_name(describe_topic({}, PLAIN))
    assert entries["segment.bytes"].synonyms == (ConfigSynonym("log.segment.bytes", "1073741824", DEFAULT),)
    assert entries["remote.storage.enable"].synonyms == ()
    assert all(entry.source is DEFAULT and not entry.read_only for entry in entries.values())
    assert "internal.segment.bytes" not in entries
    assert "internal.segment.bytes" in by_name(describe_topic({"internal.segment.bytes": "100"}, PLAIN))


def test_broker_entries() -> None:
    layers = BrokerLayers(
        static={"log.retention.hours": "2", "ssl.key.password": "secret"}, dynamic={"log.cleaner.backoff.ms": "7"}
    )
    entries = by_name(describe_broker(layers))
    assert entries["log.cleaner.backoff.ms"][1:4] == ("7", DYNAMIC, False)
    assert entries["log.retention.hours"][1:4] == ("2", STATIC, True)
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.ms"].synonyms == ()
    assert entries["ssl.key.password"].value is None
    assert entries["ssl.key.password"].is_sensitive
    assert entries["ssl.key.password"].synonyms == (ConfigSynonym("ssl.key.password", None, STATIC),)
    assert entries["node.id"].read_only
    assert "internal.metadata.log.segment.bytes" not in entries


def test_broker_defaults_show_only_what_was_set() -> None:
    (entry,) = describe_broker_defaults({"log.retention.ms": "4"})
    assert entry[:4] == ("log.retention.ms", "4", DYNAMIC_DEFAULT, False)
    assert entry.synonyms == (ConfigSynonym("log.retention.ms", "4", DYNAMIC_DEFAULT),)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"retention.ms": "x"}, "type LONG"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "must not exceed"),
        ({"max.compaction.lag.ms": "4"}, "must not exceed"),
        ({"remote.storage.enable": "true"}, "tiered storage"),
    ],
)
def test_rejected_topic_configs(overrides: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        validate_topic(overrides, BrokerLayers(static={"log.cleaner.min.compaction.lag.ms": "5"}))


def test_a_key_without_effect_cannot_be_changed_at_run_time() -> None:
    assert can_update("log.retention.ms")
    assert not can_update("num.io.threads")
    assert not can_update("node.id")


def test_keys_of_one_listener_with_an_effect_can_be_changed_at_run_time() -> None:
    assert can_update("listener.name.plaintext.max.connections")
    assert not can_update("listener.name.plaintext.max.connections.per.ip")
    assert not can_update("listener.name.plaintext.log.retention.ms")
    assert can_update("listener.name.ssl.ssl.keystore.location")
    assert not can_update("listener.name.ssl.ssl.client.auth")


@pytest.mark.parametrize("text", ["127.0.0.1", ":5", "a:b", "127.0.0.1:10,::1:", "127.0.0.1:-1"])
def test_malformed_limits_for_addresses(text: str) -> None:
    key = BROKER_KEYS["max.connections.per.ip.overrides"]
    assert parse_value(key, "127.0.0.1:10, [::1]:5") == "127.0.0.1:10, [::1]:5"
    with pytest.raises(ConfigError, match="expected address:count"):
        parse_value(key, text)


def test_the_documentation_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "config.md"
    assert page.read_text() == config_docs.render(), "run: make docs"


def test_a_key_of_a_listener_is_found_by_its_most_specific_name() -> None:
    key, text = "sasl.jaas.config", "x"
    names = (f"listener.name.inside.scram-sha-512.{key}", f"listener.name.inside.{key}", key)
    for count in range(1, len(names) + 1):
        layers = BrokerLayers(static={name: f"{text}{name}" for name in names[-count:]})
        assert layers.value_at("INSIDE", key, mechanism="SCRAM-SHA-512") == f"{text}{names[-count]}"
    layers = BrokerLayers(static={name: name for name in names})
    assert layers.value_at("INSIDE", key, mechanism="PLAIN") == names[1]
    assert layers.value_at("OUTSIDE", key, mechanism="PLAIN") == key


def test_the_rates_of_replication_are_described_only_if_they_are_set() -> None:
    name = "leader.replication.throttled.rate"
    assert name not in {entry.name for entry in describe_broker(BrokerLayers(static={}))}
    found = describe_broker(BrokerLayers(static={}, dynamic_default={name: "100"}))
    assert [entry.value for entry in found if entry.name == name] == ["100"]
