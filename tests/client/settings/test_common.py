from typing import Any

import pytest

from rookery.base.errors import ConfigError
from rookery.client.settings import AdminSettings, CommonSettings, ConsumerSettings, ProducerSettings
from rookery.net.address import Address

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}


def _common(**config: object) -> CommonSettings:
    names = {name.replace("_", "."): value for name, value in config.items()}
    return AdminSettings.parse({**BOOTSTRAP, **names}).common


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        (["a:1", "[::1]:2"], [("a", 1), ("::1", 2)]),
        ("a:1,b:2,a:1", [("a", 1), ("b", 2)]),
    ],
)
def test_bootstrap_servers(servers: object, expected: list[tuple[str, int]]) -> None:
    common = _common(bootstrap_servers=servers)
    assert common.bootstrap_servers == tuple(Address(*pair) for pair in expected)


def test_a_reconnect_backoff_alone_is_constant() -> None:
    common = _common(reconnect_backoff_ms=5000)
    assert (common.reconnect_backoff_ms, common.reconnect_backoff_max_ms) == (5000, 5000)
    common = AdminSettings.parse({**BOOTSTRAP, "reconnect.backoff.ms": 5000, "reconnect.backoff.max.ms": 7000}).common
    assert (common.reconnect_backoff_ms, common.reconnect_backoff_max_ms) == (5000, 7000)


def test_an_initial_value_above_its_maximum_is_lowered_to_it() -> None:
    common = _common(retry_backoff_ms=5000, socket_connection_setup_timeout_ms=60_000)
    assert (common.retry_backoff_ms, common.retry_backoff_max_ms) == (1000, 1000)
    assert common.socket_connection_setup_timeout_ms == common.socket_connection_setup_timeout_max_ms == 30_000


@pytest.mark.parametrize(("value", "expected"), [("rebootstrap", True), ("NONE", False), ("None", False)])
def test_metadata_recovery(value: str, expected: bool) -> None:
    assert _common(metadata_recovery_strategy=value).metadata_rebootstrap is expected


@pytest.mark.parametrize(("client", "size"), [(ProducerSettings, 32_768), (ConsumerSettings, 65_536)])
def test_the_receive_buffer_differs_by_client(client: Any, size: int) -> None:
    assert client.parse(BOOTSTRAP).common.receive_buffer_bytes == size


def test_clients_without_a_client_id_are_numbered() -> None:
    first, second = (ProducerSettings.parse(BOOTSTRAP).common.client_id for _ in range(2))
    assert first.startswith("producer-")
    assert int(second.removeprefix("producer-")) == int(first.removeprefix("producer-")) + 1
    assert AdminSettings.parse(BOOTSTRAP).common.client_id.startswith("adminclient-")
    assert ConsumerSettings.parse(BOOTSTRAP).common.client_id.startswith("consumer-null-")
    assert ConsumerSettings.parse({**BOOTSTRAP, "group.id": "g"}).common.client_id.startswith("consumer-g-")


def test_client_ids_are_derived_from_other_ids() -> None:
    assert ProducerSettings.parse({**BOOTSTRAP, "transactional.id": "t"}).common.client_id == "producer-t"
    consumer = ConsumerSettings.parse({**BOOTSTRAP, "group.id": "g", "group.instance.id": "i"})
    assert consumer.common.client_id == "consumer-g-i"


@pytest.mark.parametrize("client", [ProducerSettings, ConsumerSettings, AdminSettings])
def test_a_given_client_id_is_kept(client: Any) -> None:
    assert client.parse({**BOOTSTRAP, "client.id": "me"}).common.client_id == "me"


def test_the_api_timeout_covers_one_request() -> None:
    assert _common(request_timeout_ms=100_000).default_api_timeout_ms == 100_000
    assert _common(request_timeout_ms=10).default_api_timeout_ms == 60_000
    with pytest.raises(ConfigError, match=r"default\.api\.timeout\.ms \(10\) must be at least request\.timeout\.ms"):
        _common(default_api_timeout_ms=10)


def test_the_api_timeout_of_each_client() -> None:
    assert ProducerSettings.parse({**BOOTSTRAP, "max.block.ms": 7}).common.default_api_timeout_ms == 7
    assert ConsumerSettings.parse({**BOOTSTRAP, "default.api.timeout.ms": 7}).common.default_api_timeout_ms == 7


def test_admin_retries() -> None:
    assert AdminSettings.parse({**BOOTSTRAP, "retries": "3"}).retries == 3
