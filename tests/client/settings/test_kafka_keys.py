"""The tables compared with Apache Kafka 4.3.1's: kafka_keys.json is made from configDef() of its three clients."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rookery.base.config_key import ConfigKey, format_value
from rookery.client.settings import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from rookery.client.settings.parser import is_unsupported

TABLES = {"producer": PRODUCER_KEYS, "consumer": CONSUMER_KEYS, "admin": ADMIN_KEYS}
ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "kafka_keys.json").read_text())

SHORT_NAMES = "the assignors have short names here; Java's class names are translated"
NEGATIVE_TIME = "Kafka has no limit here and fails later with a negative time"
# Intentional differences: the default or limits of a key, with the reason.
OTHER_DEFAULTS = {
    ("consumer", "partition.assignment.strategy"): ("range,cooperative-sticky", SHORT_NAMES),
    ("admin", "bootstrap.servers"): (None, "as in the other clients, so that None is reported as missing"),
}
OTHER_LIMITS = {
    "heartbeat.interval.ms": ("1..", NEGATIVE_TIME),
    "session.timeout.ms": ("1..", NEGATIVE_TIME),
    "socket.connection.setup.timeout.ms": ("1..", NEGATIVE_TIME),
    "socket.connection.setup.timeout.max.ms": ("1..", NEGATIVE_TIME),
    "connections.max.idle.ms": ("-1..", "the other negative times would mean the same as -1"),
    "retries": ("0..", "2147483647 is the type's own limit"),
}
# Limits that a function checks: tests/client/settings/test_consumer.py and test_producer.py test these.
CHECKED_BY_FUNCTION = {"auto.offset.reset", "transactional.id", "group.instance.id"}


each_client = pytest.mark.parametrize("client", TABLES)


def _kafka(client: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ROWS if client in row["clients"]}


@each_client
def test_the_names_are_kafkas(client: str) -> None:
    assert list(TABLES[client]) == sorted(_kafka(client))


@each_client
def test_types_and_defaults_are_kafkas(client: str) -> None:
    ours = {name: (key.type.name, format_value(key.default)) for name, key in TABLES[client].items()}
    kafkas = {name: (row["type"], row["default"]) for name, row in _kafka(client).items()}
    differences = {name: ours[name] for name in ours if ours[name] != kafkas[name]}
    expected = {name: value for (of, name), (value, _) in OTHER_DEFAULTS.items() if of == client}
    assert {name: default for name, (_, default) in differences.items()} == expected
    assert all(ours[name][0] == kafkas[name][0] for name in differences)


@each_client
def test_limits_are_kafkas(client: str) -> None:
    keys = {
        name: key for name, key in TABLES[client].items() if not is_unsupported(key) and name not in CHECKED_BY_FUNCTION
    }
    ours = {name: _limits(key) for name, key in keys.items()}
    kafkas = {name: _kafka_limits(row["allowed"]) for name, row in _kafka(client).items()}
    differences = {name: ours[name] for name in ours if ours[name] != kafkas[name]}
    assert differences == {name: limits for name, (limits, _) in OTHER_LIMITS.items() if name in keys}


@each_client
def test_only_the_bootstrap_servers_are_required(client: str) -> None:
    required = {name for name, row in _kafka(client).items() if row["required"]}
    assert all(name == "bootstrap.servers" or is_unsupported(TABLES[client][name]) for name in required)


@each_client
def test_each_key_has_a_one_line_description(client: str) -> None:
    for key in TABLES[client].values():
        assert key.doc.endswith("."), key.name
        assert not re.search(r"[\n|]", key.doc), key.name


def test_the_keys_without_effect() -> None:
    """A key is removed from this list when it gets an effect."""
    nothing = {name for table in TABLES.values() for name, key in table.items() if not key.effective}
    assert [client for client, table in TABLES.items() if "retries" in table and not table["retries"].effective] == [
        "admin"
    ]
    assert {name for name in nothing if not name.startswith(("sasl.", "ssl."))} == {
        "client.dns.lookup",
        "config.providers",
        "enable.metrics.push",
        "interceptor.classes",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "key.deserializer",
        "key.serializer",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metric.reporters",
        "metrics.recording.level",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "retries",
        "security.providers",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "transaction.two.phase.commit.enable",
        "value.deserializer",
        "value.serializer",
    }


def _limits(key: ConfigKey) -> str:
    if key.choices:
        return ",".join(sorted(choice.lower() if key.any_case else choice for choice in key.choices))
    if key.minimum is None:
        return ""
    text = f"{key.minimum}..{'' if key.maximum is None else key.maximum}"
    return text if key.also is None else f"{text} or {key.also}"


def _kafka_limits(text: str) -> str:
    interval = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?", text)
    if interval:
        low, high, also = interval.groups()
        return f"{low}..{high or ''}" + (f" or {also}" if also else "")
    choices = re.fullmatch(r"(\(case insensitive\) )?\[(.*)\]", text)
    if choices:
        return ",".join(sorted((choices[2].lower() if choices[1] else choices[2]).split(", ")))
    return ""
