"""Values of configuration keys: conversion, limits, and formatting. Expected results are Kafka 4.3's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.config import BROKER_KEYS
from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue, format_value, parse_value
from rookery.base.config_topic import TOPIC_KEYS
from rookery.base.errors import ConfigError

EVERY_KEY = [*TOPIC_KEYS.values(), *BROKER_KEYS.values()]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete", "delete")),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("internal.segment.bytes", "1000", 1000),
        ("segment.bytes", "1048576", 1_048_576),
        ("retention.ms", " 12 ", 12),
        ("retention.ms", "+5", 5),
        ("retention.ms", "-1", -1),
        ("retention.bytes", "-5", -5),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "1:2,3:4", ("1:2", "3:4")),
        ("leader.replication.throttled.replicas", "", ()),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
    ],
)
def test_accepted_topic_values(name: str, text: str, expected: ConfigValue) -> None:
    assert parse_value(TOPIC_KEYS[name], text) == expected


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("cleanup.policy", "DELETE", "one of: compact, delete"),
        ("cleanup.policy", "compact,bogus", "one of: compact, delete"),
        ("cleanup.policy", "delete,", "one of: compact, delete"),
        ("segment.bytes", "1000", "at least 1048576"),
        ("segment.bytes", "99999999999", "type INT"),
        ("segment.index.bytes", "3", "at least 4"),
        ("retention.ms", "abc", "type LONG"),
        ("retention.ms", "", "type LONG"),
        ("retention.ms", "1_000", "type LONG"),
        ("retention.ms", "٣", "type LONG"),
        ("retention.ms", "9" * 5000, "type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("compression.type", "ZSTD", "one of: uncompressed"),
        ("compression.gzip.level", "0", "at least 1"),
        ("compression.gzip.level", "10", "at most 9"),
        ("message.timestamp.type", "x", "one of: CreateTime"),
        ("leader.replication.throttled.replicas", "1", "partition:broker"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("min.cleanable.dirty.ratio", "half", "type DOUBLE"),
    ],
)
def test_rejected_topic_values(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(TOPIC_KEYS[name], text)
    assert str(caught.value).startswith(f"Invalid value {text} for configuration {name}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (False, "false"),
        (-1, "-1"),
        ((), ""),
        (("a", "b"), "a,b"),
        ("text", "text"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (1.0e-5, "1.0E-5"),
        (1.25e-7, "1.25E-7"),
        (1234567.5, "1234567.5"),
        (12345678.5, "1.23456785E7"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.0, "0.0"),
    ],
)
def test_values_are_formatted_like_java(value: ConfigValue, text: str | None) -> None:
    assert format_value(value) == text


def test_any_case_choices() -> None:
    key = BROKER_KEYS["group.consumer.migration.policy"]
    assert parse_value(key, "Upgrade") == "Upgrade"
    with pytest.raises(ConfigError):
        parse_value(key, "sideways")


def test_an_error_does_not_show_a_secret() -> None:
    key = ConfigKey(name="p", type=ConfigType.PASSWORD, default=None, doc="", check=lambda _: "is too weak")
    with pytest.raises(ConfigError) as caught:
        parse_value(key, "hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", EVERY_KEY, ids=lambda key: key.name)
def test_every_default_is_a_value_of_its_key(key: ConfigKey) -> None:
    text = format_value(key.default)
    assert text is None or parse_value(key, text) == key.default


@pytest.mark.parametrize("key", EVERY_KEY, ids=lambda key: key.name)
def test_every_row_is_documented(key: ConfigKey) -> None:
    assert key.doc.endswith(".")
    assert "|" not in key.doc
    assert all(synonym in BROKER_KEYS for synonym in key.synonyms)


@given(st.sampled_from(EVERY_KEY), st.text())
def test_any_text_is_a_value_or_a_config_error(key: ConfigKey, text: str) -> None:
    try:
        value = parse_value(key, text)
    except ConfigError:
        return
    printed = format_value(value)
    assert printed is not None
    if value == value:
        assert parse_value(key, printed) == value
