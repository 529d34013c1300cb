import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.config_key import ConfigType
from rookery.base.errors import ConfigError
from rookery.client.settings import (
    ADMIN_KEYS,
    CONSUMER_KEYS,
    PRODUCER_KEYS,
    AdminSettings,
    ConsumerSettings,
    ProducerSettings,
    ineffective,
)
from rookery.client.settings.parser import Values, is_unsupported

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}
CLIENTS: list[Any] = [ProducerSettings, ConsumerSettings, AdminSettings]
TABLES = {ProducerSettings: PRODUCER_KEYS, ConsumerSettings: CONSUMER_KEYS, AdminSettings: ADMIN_KEYS}


def _problem(client: Any, config: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        client.parse({**BOOTSTRAP, **config})
    return str(caught.value)


@pytest.mark.parametrize("value", [5, "5", " 5 ", "+5"])
def test_numbers_may_be_strings(value: object) -> None:
    assert ProducerSettings.parse({**BOOTSTRAP, "linger.ms": value}).linger_ms == 5


@pytest.mark.parametrize(("value", "expected"), [(True, True), (False, False), ("TRUE", True), (" false ", False)])
def test_booleans_may_be_strings(value: object, expected: bool) -> None:
    assert ConsumerSettings.parse({**BOOTSTRAP, "check.crcs": value}).check_crcs is expected


@pytest.mark.parametrize("value", ["range,sticky", " range , sticky ", ["range", "sticky"], ("range", "sticky")])
def test_lists_may_be_strings(value: object) -> None:
    settings = ConsumerSettings.parse({**BOOTSTRAP, "partition.assignment.strategy": value})
    assert settings.partition_assignment_strategy == ("range", "sticky")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1.5,
        "",
        "five",
        "5.0",
        "0x5",
        2**31,
        pytest.param(10**5000, id="long"),
        [5],
        (),
        {},
        b"5",
        object(),
        -1,
    ],
)
def test_an_invalid_int_is_an_error_that_names_the_key(value: object) -> None:
    assert "batch.size" in _problem(ProducerSettings, {"batch.size": value})


@pytest.mark.parametrize("value", [None, 0, 1, 1.0, "yes", "", [True]])
def test_an_invalid_boolean_is_an_error_that_names_the_key(value: object) -> None:
    assert "check.crcs" in _problem(ConsumerSettings, {"check.crcs": value})


@pytest.mark.parametrize("value", [None, True, b"me", ["me"], object()])
def test_an_invalid_string_is_an_error_that_names_the_key(value: object) -> None:
    assert "client.id" in _problem(AdminSettings, {"client.id": value})


@pytest.mark.parametrize("value", [None, 9092, True, {"a"}, object()])
def test_an_invalid_list_is_an_error_that_names_the_key(value: object) -> None:
    if value is None:
        assert "bootstrap.servers is required" in _problem(AdminSettings, {"bootstrap.servers": value})
    else:
        assert "bootstrap.servers" in _problem(AdminSettings, {"bootstrap.servers": value})


def test_none_is_accepted_where_the_default_is_none() -> None:
    settings = ConsumerSettings.parse({**BOOTSTRAP, "group.id": None, "group.instance.id": None})
    assert settings.group_id is None


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("linger.msec", "linger.ms"),
        ("batch_size", "batch.size"),
        ("ACKS", "acks"),
        ("Bootstrap.Servers", "bootstrap.servers"),
        ("max.inflight.requests.per.connection", "max.in.flight.requests.per.connection"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(name: str, guess: str) -> None:
    assert _problem(ProducerSettings, {name: 1}) == f"unknown configuration '{name}'; did you mean {guess}?"


def test_an_unknown_key_without_a_similar_one_gets_no_suggestion() -> None:
    assert _problem(ProducerSettings, {"colour": "red"}) == "unknown configuration 'colour'"
    with pytest.raises(ConfigError, match="unknown configuration 5"):
        Values(PRODUCER_KEYS, {5: 5})  # type: ignore[dict-item]  # callers without a type checker may do this


def test_one_error_lists_all_mistakes() -> None:
    lines = _problem(ConsumerSettings, {"fetch.min.bytes": -1, "colour": 1, "isolation.level": "no"}).splitlines()
    assert len(lines) == 3
    assert "fetch.min.bytes" in lines[0]
    assert "colour" in lines[1]
    assert "isolation.level" in lines[2]


@pytest.mark.parametrize("client", CLIENTS)
def test_bootstrap_servers_are_required(client: Any) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is required"):
        client.parse({})


@pytest.mark.parametrize("value", ["", " , ", "host:port", "host:99999", ":9092", [], [""]])
def test_invalid_bootstrap_servers_are_an_error_that_names_the_key(value: object) -> None:
    assert "bootstrap.servers" in _problem(ProducerSettings, {"bootstrap.servers": value})


@pytest.mark.parametrize("client", CLIENTS)
def test_every_default_may_be_given_as_a_string(client: Any) -> None:
    """A client that is configured with the printed defaults has the same settings."""
    defaults = {
        name: ",".join(key.default) if isinstance(key.default, tuple) else str(key.default)
        for name, key in TABLES[client].items()
        if key.default not in (None, "", ())
    }
    defaults |= {"client.id": "me", "enable.auto.commit": "false"}
    given = {**BOOTSTRAP, **{name: text for name, text in defaults.items() if name in TABLES[client]}}
    mine = {**BOOTSTRAP, "client.id": "me", **({"enable.auto.commit": False} if client is ConsumerSettings else {})}
    assert client.parse(given) == client.parse(mine)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_unsupported_key_says_what_to_do(client: Any) -> None:
    for name, key in TABLES[client].items():
        if is_unsupported(key):
            value = {ConfigType.BOOLEAN: "true", ConfigType.STRING: "x", ConfigType.LIST: "x"}.get(key.type, "77")
            value = "x" if key.type in (ConfigType.CLASS, ConfigType.PASSWORD) else value
            assert re.search(rf"configuration {re.escape(name)}: [\w-]+ \w+", _problem(client, {name: value}))


@pytest.mark.parametrize("value", [str, "my.Serializer", str.encode, object()])
def test_serializers_are_keyword_arguments(value: object) -> None:
    for part in ("key", "value"):
        assert f"{part}_serializer" in _problem(ProducerSettings, {f"{part}.serializer": value})
        assert f"{part}_deserializer" in _problem(ConsumerSettings, {f"{part}.deserializer": value})
    assert "argument interceptors" in _problem(ConsumerSettings, {"interceptor.classes": [value]})
    assert "argument interceptors" in _problem(ProducerSettings, {"interceptor.classes": "a.B"})


def test_the_keys_without_effect_can_be_listed() -> None:
    config = {**BOOTSTRAP, "enable.metrics.push": "true", "client.dns.lookup": "use_all_dns_ips", "colour": 1}
    assert ineffective(ADMIN_KEYS, config) == ["client.dns.lookup", "enable.metrics.push"]


@given(
    client=st.sampled_from(CLIENTS),
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text())),
    data=st.data(),
)
def test_any_value_of_any_key_is_accepted_or_a_config_error_that_names_it(
    client: Any, value: object, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(TABLES[client])))
    problem = name
    try:
        client.parse({**BOOTSTRAP, name: value})
    except ConfigError as error:
        problem = str(error)
    assert name in problem
