"""Keys `listener.name.NAME.*` that no listener reads: they are found, and the start warns of them."""

from pathlib import Path

import pytest

from rookery.node.settings import Settings
from tests.support.broker import start_broker

CLUSTER = (
    "node.id=1",
    "process.roles=broker,controller",
    "log.dirs=data",
    "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names=CONTROLLER",
    "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9193",
)


@pytest.mark.parametrize(
    ("key", "is_used"),
    [
        ("listener.name.plaintext.max.connections", True),
        ("listener.name.controller.ssl.client.auth", True),
        ("listener.name.plaintext.plain.connections.max.reauth.ms", True),
        ("listener.name.plaintxt.ssl.client.auth", False),
        ("listener.name.PLAINTEXT.ssl.client.auth", False),
        ("listener.name.plaintext.plan.connections.max.reauth.ms", False),
    ],
)
def test_unused_keys(key: str, is_used: bool) -> None:
    settings = Settings.load(None, [*CLUSTER, f"{key}={'required' if 'auth' in key[-5:] else 5}"])
    assert settings.unused_listener_keys == (() if is_used else (key,))


def test_a_broker_uses_the_keys_of_the_controllers_listener() -> None:
    """It connects to that listener, although it does not have it."""
    broker = [
        "node.id=3",
        "process.roles=broker",
        "log.dirs=data",
        "listeners=PLAINTEXT://127.0.0.1:9092",
        "controller.listener.names=CONTROLLER",
        "controller.quorum.voters=1@127.0.0.1:9093",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "listener.name.controller.ssl.truststore.location=trust.jks",
    ]
    assert Settings.load(None, broker).unused_listener_keys == ()


def test_the_start_warns(tmp_path: Path) -> None:
    with start_broker(tmp_path / "data", "listener.name.outside.ssl.client.auth=none") as broker:
        assert broker.stop() == 0
        (warning,) = (line for line in broker.log().splitlines() if "these settings are ignored" in line)
    assert "listener.name.outside.ssl.client.auth" in warning
    assert "listeners=PLAINTEXT" in warning
