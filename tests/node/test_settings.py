"""The start-up configuration: accepted settings, and the error messages for invalid ones."""

from pathlib import Path

import pytest

from rookery.base.config import describe_broker
from rookery.base.errors import ConfigError
from rookery.node.settings import ListenerAddress, Settings

KRAFT_EXAMPLE = """
# the file that Apache Kafka ships, in short
process.roles=broker,controller
node.id=7
controller.quorum.voters=7@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://broker.example:9092
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
log.dirs=/data/a,/data/b
num.partitions=3
"""


def load(text: str, tmp_path: Path, *overrides: str) -> Settings:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return Settings.load(path, overrides)


def test_defaults_serve_on_loopback() -> None:
    settings = Settings.load()
    assert settings.listeners == (ListenerAddress("PLAINTEXT", "127.0.0.1", 9092),)
    assert settings.node_id == 1
    assert settings.cluster_id is None
    assert settings.metadata_directory == settings.log_directories[0]


def test_a_kraft_server_properties_is_accepted(tmp_path: Path) -> None:
    settings = load(KRAFT_EXAMPLE, tmp_path)
    assert settings.node_id == 7
    assert settings.log_directories == (Path("/data/a"), Path("/data/b"))
    assert settings.listeners == (ListenerAddress("PLAINTEXT", "", 9092),)
    assert settings.advertised["PLAINTEXT"] == ListenerAddress("PLAINTEXT", "broker.example", 9092)
    assert settings.layers.integer("num.partitions") == 3
    assert settings.without_effect == ("inter.broker.listener.name", "num.network.threads")


def test_short_options_win_over_overrides_and_those_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nlog.dirs=/from/file\nlisteners=PLAINTEXT://file:1\n")
    settings = Settings.load(
        path, ["node.id=2", "log.dirs=/from/set"], data_dir=tmp_path / "option", listen="[::1]:9999"
    )
    assert settings.node_id == 2
    assert settings.log_directories == (tmp_path / "option",)
    assert settings.listeners == (ListenerAddress("PLAINTEXT", "::1", 9999),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("num.partition=3", r"server.properties:1: unknown key 'num.partition'; did you mean num.partitions\?"),
        ("\n\nnum.partitions=many", r"server.properties:3: Invalid value many for configuration num.partitions"),
        ("listeners=127.0.0.1:9092", "expected NAME://host:port"),
        ("listeners=PLAINTEXT://h:99999", "expected NAME://host:port"),
        ("listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "its own name and address"),
        ("listeners=SSL://h:9092", "uses SSL, but only PLAINTEXT is supported"),
        ("listeners=INSIDE://h:9092", "INSIDE has no security protocol"),
        ("advertised.listeners=OTHER://h:9092", "OTHER is not one of listeners"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "needs an address that clients can connect to"),
        ("process.roles=broker", "process.roles must be broker,controller"),
        ("controller.quorum.voters=1@a:1,2@b:1", "only a quorum of one"),
        ("log.dirs=/a,/a", "each only once"),
        ("authorizer.class.name=org.example.Authorizer", "there is no authorizer"),
    ],
)
def test_errors_name_the_invalid_setting(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(text, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file .*absent.properties: No such file"):
        Settings.load(tmp_path / "absent.properties")


def test_an_override_names_its_source() -> None:
    with pytest.raises(ConfigError, match=r"--set: unknown key 'no.such.key'"):
        Settings.load(overrides=["no.such.key=1"])
    with pytest.raises(ConfigError, match=r"--set: expected key=value"):
        Settings.load(overrides=["just-a-word"])


@pytest.mark.parametrize(
    ("overrides", "node_id", "broker_id"), [([], "1", "1"), (["node.id=5"], "5", "5"), (["broker.id=7"], "7", "7")]
)
def test_the_node_id_is_described_under_both_names(overrides: list[str], node_id: str, broker_id: str) -> None:
    entries = {entry.name: entry.value for entry in describe_broker(Settings.load(overrides=overrides).layers)}
    assert (entries["node.id"], entries["broker.id"]) == (node_id, broker_id)


def test_an_error_names_the_option_of_an_invalid_address() -> None:
    with pytest.raises(ConfigError, match=r"--listen: expected HOST:PORT, got 'somewhere:here'"):
        Settings.load(listen="somewhere:here")
