"""Converts the configuration of topics and brokers into the `LogConfig` that storage uses."""

from collections.abc import Mapping
from typing import Any

from rookery.base.config import BrokerLayers, effective_topic_values
from rookery.base.config_key import ConfigValue
from rookery.base.types import NodeId
from rookery.metadata.image import ClusterImage
from rookery.storage.config import LogConfig, SchemaRules

# The only field of `LogConfig` that is made from several config keys.
_COMBINED_FIELD = "schema_rules"


def broker_layers(image: ClusterImage, node_id: NodeId, static: Mapping[str, str]) -> BrokerLayers:
    """Return a broker's configuration: the dynamic values of the image, above the `static` ones of its start."""
    return BrokerLayers(
        dynamic=image.broker_config(node_id), dynamic_default=image.broker_default_config(), static=static
    )


def log_config(overrides: Mapping[str, str], broker: BrokerLayers) -> LogConfig:
    """Return the settings of a topic's logs, from the topic's configs (`overrides`) and the broker's."""
    values = effective_topic_values(overrides, broker)
    fields: dict[str, Any] = {
        name: values[name.replace("_", ".")] for name in LogConfig.__dataclass_fields__ if name != _COMBINED_FIELD
    }
    fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
    if values["internal.segment.bytes"] is not None:
        fields["segment_bytes"] = values["internal.segment.bytes"]
    return LogConfig(**fields, schema_rules=_schema_rules(values))


def _schema_rules(values: Mapping[str, ConfigValue]) -> SchemaRules | None:
    rules = SchemaRules(key=_subject_strategy("key", values), value=_subject_strategy("value", values))
    return None if rules == (None, None) else rules


def _subject_strategy(part: str, values: Mapping[str, ConfigValue]) -> str | None:
    """Return the strategy's class name without its package; None if this part of a record is not checked."""
    if not (values[f"{part}.schema.validation"] or values[f"confluent.{part}.schema.validation"]):
        return None
    strategy = values[f"{part}.subject.name.strategy"]
    assert isinstance(strategy, str)
    return strategy.rpartition(".")[2]


class LogConfigs:
    """Caches `log_config` for the topics of one broker: most topics have no configs and share one value."""

    def __init__(self, broker: BrokerLayers) -> None:
        self._broker = broker
        self._cache: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def get(self, overrides: Mapping[str, str]) -> LogConfig:
        key = tuple(sorted(overrides.items()))
        if key not in self._cache:
            self._cache[key] = log_config(overrides, self._broker)
        return self._cache[key]
