"""Configuration as a whole: which keys exist, what a server was started with, and which values are in effect.

A broker key's value comes from the first of four layers that has it: set for this broker at run time, set for all
brokers at run time, given at the start (`server.properties`, `--set`), the default. A topic key's value comes from the
topic itself, else from the broker keys that are its synonyms, else from the default. DescribeConfigs shows all of
that; the functions here are pure, and the handlers, the controller and the node all use the same ones.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from rookery.base.codes import ConfigSource
from rookery.base.config_access import ACCESS_ROWS
from rookery.base.config_broker import BROKER_ROWS
from rookery.base.config_cluster import CLUSTER_ROWS
from rookery.base.config_coordinator import COORDINATOR_ROWS
from rookery.base.config_inert import INERT_ROWS
from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue, Update, format_value, parse_value
from rookery.base.config_metrics import METRICS_ROWS
from rookery.base.config_quotas import QUOTA_ROWS
from rookery.base.config_registry import CLIENT_PREFIX, PASSED_ON, REGISTRY_BROKER_ROWS, REGISTRY_PREFIX
from rookery.base.config_security import SECURITY_ROWS, STORE_KEYS
from rookery.base.config_topic import FALLBACKS, SYNONYM_UNIT_MS, TOPIC_KEYS
from rookery.base.errors import ConfigError
from rookery.base.properties import Property, parse_assignment, parse_properties
from rookery.base.values import value_class

BROKER_KEYS: dict[str, ConfigKey] = {
    row.name: row
    for row in sorted(
        ACCESS_ROWS
        + BROKER_ROWS
        + CLUSTER_ROWS
        + COORDINATOR_ROWS
        + METRICS_ROWS
        + QUOTA_ROWS
        + REGISTRY_BROKER_ROWS
        + SECURITY_ROWS
        + INERT_ROWS,
        key=lambda row: row.name,
    )
}

# `listener.name.<listener>.<key>` sets a key for one listener only.
LISTENER_PREFIX = "listener.name."
# Keys that can be changed at run time for one listener.
_UPDATED_PER_LISTENER = frozenset({"max.connection.creation.rate", "max.connections", *STORE_KEYS})
# Keys for the same setting in different units; the first that is set counts.
_BROKER_SYNONYMS = {name: key.synonyms for key in TOPIC_KEYS.values() for name in key.synonyms if len(key.synonyms) > 1}

# The time to compare a name with all others grows with the square of its length.
_GUESSED_NAME_MAX = 100


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key as reported by DescribeConfigs."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str


@value_class(kw_only=True)
class BrokerLayers:
    """The texts that a broker's values come from, strongest first; each was checked when it was set."""

    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def sources(self) -> Iterator[tuple[ConfigSource, Mapping[str, str]]]:
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default
        yield ConfigSource.STATIC_BROKER_CONFIG, self.static

    def value(self, name: str) -> ConfigValue:
        """Return the effective value of a broker key."""
        key = BROKER_KEYS[name]
        for _, layer in self.sources():
            if name in layer:
                return parse_value(key, layer[name])
        return key.default

    def listener_value(self, listener: str, name: str, *, key: str | None = None) -> ConfigValue:
        """Return the value of a key for one listener; None if it is not set for that listener.

        `key` is the key of the table if `name` has a prefix.
        """
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        texts = (layer[own] for _, layer in self.sources() if own in layer)
        return next((parse_value(BROKER_KEYS[key or name], text) for text in texts), None)

    def value_at(self, listener: str, name: str, *, mechanism: str | None = None) -> ConfigValue:
        """Return the value of a key on a listener: the one for a SASL mechanism of it, its own, or the common one."""
        if mechanism is not None:
            value = self.listener_value(listener, f"{mechanism.lower()}.{name}", key=name)
            if value is not None:
                return value
        value = self.listener_value(listener, name)
        return self.value(name) if value is None else value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert type(value) is int, name
        return value

    def text(self, name: str) -> str | None:
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value

    def items(self, name: str) -> tuple[str, ...] | None:
        value = self.value(name)
        assert value is None or isinstance(value, tuple), name
        return value


def load_static(text: str, source: str, assignments: Iterable[str] = (), *, given_as: str = "--set") -> dict[str, str]:
    """Parse a server.properties text and `key=value` assignments, which take precedence.

    One ConfigError lists all mistakes; `given_as` names the source of the assignments in it.
    """
    properties = parse_properties(text, source)
    properties.update(parse_assignment(assignment, given_as) for assignment in assignments)
    problems = [problem for name, value in properties.items() for problem in _static_problems(name, value)]
    if problems:
        raise ConfigError("\n".join(problems))
    static = {name: value.value for name, value in properties.items()}
    _check_together(effective_topic_values({}, BrokerLayers(static=static)))
    return static


def ineffective(static: Mapping[str, str]) -> list[str]:
    """Return the keys that were given but have no effect here, for a log line at the start."""
    return sorted(name for name in static if not find_broker_key(name).effective)


def find_broker_key(name: str) -> ConfigKey:
    """Return the row of a broker key, also in its form for one listener; ConfigError with a suggestion if unknown."""
    key = BROKER_KEYS.get(name)
    if key:
        return key
    if name.startswith(LISTENER_PREFIX):
        # Keys for one listener, and for one SASL mechanism of it, belong to security: `listener.name.x.[plain.]key`.
        rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        for candidate in (rest, rest.partition(".")[2]):
            if candidate in BROKER_KEYS:
                return BROKER_KEYS[candidate]
    if name.startswith(REGISTRY_PREFIX + CLIENT_PREFIX):
        return PASSED_ON
    raise ConfigError(f"unknown key {name!r}{_guess(name, BROKER_KEYS)}")


def find_topic_key(name: str) -> ConfigKey:
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}{_guess(name, TOPIC_KEYS)}")
    return key


def can_update(name: str) -> bool:
    """Return whether a broker key can be changed at run time; changes without effect are rejected, not ignored."""
    key = find_broker_key(name)
    is_known_here = name == key.name or key.name in _UPDATED_PER_LISTENER
    return is_known_here and key.effective and key.update is not Update.READ_ONLY


def validate_topic(overrides: Mapping[str, str], broker: BrokerLayers) -> None:
    """Check a topic's own configs, alone and together with the values from the broker; raises ConfigError."""
    for name, text in overrides.items():
        parse_value(find_topic_key(name), text)
    values = effective_topic_values(overrides, broker)
    _check_together(values)
    if values["remote.storage.enable"]:
        raise ConfigError("remote.storage.enable: there is no tiered storage in this broker")


def effective_topic_values(overrides: Mapping[str, str], broker: BrokerLayers) -> dict[str, ConfigValue]:
    """Return the effective value of every topic key."""
    values = {
        name: parse_value(key, overrides[name]) if name in overrides else _from_broker(key, broker)
        for name, key in TOPIC_KEYS.items()
    }
    for name, other in FALLBACKS.items():
        if values[name] is None:
            values[name] = values[other]
    return values


# In Kafka these are not among the keys of a broker, and can be set nevertheless.
_SHOWN_IF_SET: Final = frozenset(("leader.replication.throttled.rate", "follower.replication.throttled.rate"))


def describe_topic(overrides: Mapping[str, str], broker: BrokerLayers) -> list[ConfigEntry]:
    values = effective_topic_values(overrides, broker)
    return [
        _topic_entry(key, values[name], name in overrides, broker)
        for name, key in TOPIC_KEYS.items()
        if not key.internal or name in overrides
    ]


def describe_broker(broker: BrokerLayers) -> list[ConfigEntry]:
    """Describe every key of one broker, and the keys that were set for single listeners."""
    given = {name for _, layer in broker.sources() for name in layer}
    names = {name for name, key in BROKER_KEYS.items() if not key.internal} - _SHOWN_IF_SET | given
    return [_broker_entry(name, broker) for name in sorted(names)]


def describe_broker_defaults(dynamic_default: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe the keys set at run time for all brokers: DescribeConfigs of a broker without a name."""
    return [
        _entry(find_broker_key(name), name, dynamic_default[name], synonyms)
        for name in sorted(dynamic_default)
        for synonyms in [(_synonym(name, dynamic_default[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),)]
    ]


def _static_problems(name: str, value: Property) -> Iterator[str]:
    try:
        parse_value(find_broker_key(name), value.value)
    except ConfigError as error:
        yield f"{value.place}: {error}"


def _guess(name: str, known: Iterable[str]) -> str:
    if len(name) > _GUESSED_NAME_MAX:
        return ""
    # Imported here, because only mistakes need it.
    import difflib

    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {similar[0]}?" if similar else ""


def _check_together(values: Mapping[str, ConfigValue]) -> None:
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(shortest, int)
    assert isinstance(longest, int)
    if shortest > longest:
        raise ConfigError(f"min.compaction.lag.ms ({shortest}) must not exceed max.compaction.lag.ms ({longest})")


def _from_broker(key: ConfigKey, broker: BrokerLayers) -> ConfigValue:
    """Return a topic key's value from the first broker layer that has a synonym, as in Kafka.

    `log.retention.hours` set at run time takes precedence over `log.retention.ms` in the file.
    """
    for _, layer in broker.sources():
        for name in key.synonyms:
            if name in layer:
                return _in_topic_unit(name, parse_value(BROKER_KEYS[name], layer[name]))
    return key.default


def _in_topic_unit(name: str, value: ConfigValue) -> ConfigValue:
    if not isinstance(value, int) or name not in SYNONYM_UNIT_MS:
        return value
    return value * SYNONYM_UNIT_MS[name] if value >= 0 else -1


def _topic_entry(key: ConfigKey, value: ConfigValue, overridden: bool, broker: BrokerLayers) -> ConfigEntry:
    text = format_value(value)
    inherited = _synonyms_of(key.synonyms[0], broker) if key.synonyms else ()
    own = (ConfigSynonym(key.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG),) if overridden else ()
    return _entry(key, key.name, text, own + inherited, read_only=False)


def _broker_entry(name: str, broker: BrokerLayers) -> ConfigEntry:
    synonyms = _synonyms_of(name, broker)
    return _entry(find_broker_key(name), name, synonyms[0].value if synonyms else None, synonyms)


def _entry(
    key: ConfigKey, name: str, value: str | None, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool | None = None
) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=None if key.is_sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=not can_update(name) if read_only is None else read_only,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        type=key.type,
        documentation=key.doc,
    )


def _synonyms_of(name: str, broker: BrokerLayers) -> tuple[ConfigSynonym, ...]:
    """Return the values set for a broker key, the strongest first.

    Synonyms before the key itself are left out, as in Kafka: `log.retention.hours` if `log.retention.ms` is not set.
    """
    names = _BROKER_SYNONYMS.get(name, (name,))
    found = [
        _synonym(other, layer[other], source) for source, layer in broker.sources() for other in names if other in layer
    ]
    for other in names:
        default = BROKER_KEYS[other].default if other in BROKER_KEYS else None
        if default is not None:
            found.append(_synonym(other, format_value(default), ConfigSource.DEFAULT_CONFIG))
    return tuple(itertools.dropwhile(lambda synonym: synonym.name != name, found))


def _synonym(name: str, value: str | None, source: ConfigSource) -> ConfigSynonym:
    return ConfigSynonym(name, None if find_broker_key(name).is_sensitive else value, source)
