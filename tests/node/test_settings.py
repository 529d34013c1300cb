"""The start-up configuration: accepted settings, and the error messages for invalid ones."""

from pathlib import Path

import pytest

from rookery.base.config import describe_broker
from rookery.base.errors import ConfigError
from rookery.net.address import Address
from rookery.node.settings import ListenerAddress, Settings
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import Endpoint, ReplicaKey

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

MEMBER = """
process.roles=broker,controller
node.id=2
controller.quorum.voters=1@a:9093,2@b:9093,3@[::1]:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
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
    assert (settings.is_broker, settings.is_controller, settings.is_alone) == (True, True, True)
    assert (settings.controller_listeners, settings.controller_listener_name) == ((), None)
    assert settings.voters is not None
    assert settings.voters.is_only_voter(ReplicaKey(1))
    assert settings.quorum == QuorumSettings()


def test_a_kraft_server_properties_is_accepted(tmp_path: Path) -> None:
    settings = load(KRAFT_EXAMPLE, tmp_path)
    assert settings.node_id == 7
    assert settings.log_directories == (Path("/data/a"), Path("/data/b"))
    assert settings.listeners == (ListenerAddress("PLAINTEXT", "", 9092),)
    assert settings.advertised["PLAINTEXT"] == ListenerAddress("PLAINTEXT", "broker.example", 9092)
    assert settings.layers.integer("num.partitions") == 3
    assert settings.without_effect == ("num.network.threads",)
    assert settings.controller_listeners == (ListenerAddress("CONTROLLER", "", 9093),)
    assert settings.advertised["CONTROLLER"] == ListenerAddress("CONTROLLER", "localhost", 9093)
    assert settings.inter_broker_listener == "PLAINTEXT"
    assert (settings.is_sole_voter, settings.is_alone) == (True, False)


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
        ("listeners=SSL://h:9092", "uses SSL, but has no key"),
        ("listeners=INSIDE://h:9092", "INSIDE has no security protocol"),
        ("advertised.listeners=OTHER://h:9092", "OTHER is not one of listeners"),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "needs an address that clients and other nodes can connect to",
        ),
        ("log.dirs=/a,/a", "each only once"),
        ("authorizer.class.name=org.example.Authorizer", "it must be org.apache.kafka.metadata.authorizer.Standard"),
        ("super.users=admin", "admin must be Type:name"),
        ("super.users=User:a,User:b", "Separate several with semicolons"),
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


def test_a_member_of_a_cluster_with_static_voters(tmp_path: Path) -> None:
    settings = load(MEMBER, tmp_path)
    assert not settings.is_sole_voter
    assert settings.voters is not None
    assert [voter.key for voter in settings.voters] == [ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)]
    assert [voter.endpoints for voter in settings.voters][2] == {"CONTROLLER": Endpoint("::1", 9093)}
    assert settings.listeners == (ListenerAddress("PLAINTEXT", "", 9092),)
    assert settings.controller_listeners == (ListenerAddress("CONTROLLER", "", 9093),)
    assert settings.advertised == {"CONTROLLER": ListenerAddress("CONTROLLER", "b", 9093)}
    assert settings.without_effect == ()


def test_a_controller_advertises_what_is_configured_rather_than_its_entry_of_the_voters(tmp_path: Path) -> None:
    settings = load(MEMBER, tmp_path, "advertised.listeners=PLAINTEXT://outside:9092,CONTROLLER://outside:9093")
    assert settings.advertised["CONTROLLER"] == ListenerAddress("CONTROLLER", "outside", 9093)


def test_a_controller_has_no_listener_for_clients(tmp_path: Path) -> None:
    settings = load(MEMBER, tmp_path, "process.roles=controller", "listeners=CONTROLLER://:9093")
    assert (settings.is_broker, settings.is_controller) == (False, True)
    assert (settings.listeners, settings.inter_broker_listener) == ((), None)


def test_a_broker_finds_the_controllers(tmp_path: Path) -> None:
    roles = ("process.roles=broker", "listeners=PLAINTEXT://:9092", "node.id=4")
    settings = load(MEMBER, tmp_path, *roles)
    assert (settings.is_broker, settings.is_controller) == (True, False)
    assert (settings.controller_listeners, settings.controller_listener_name) == ((), "CONTROLLER")
    servers = ("controller.quorum.voters=", "controller.quorum.bootstrap.servers=a:9093,[::1]:9094")
    dynamic = load(MEMBER, tmp_path, *roles, *servers)
    assert dynamic.voters is None
    assert dynamic.bootstrap_controllers == (Address("a", 9093), Address("::1", 9094))


@pytest.mark.parametrize("listen", ["CONTROLLER://:9093", "CONTROLLER://localhost:9093", "CONTROLLER://127.0.0.1:9093"])
def test_a_node_whose_only_bootstrap_server_is_itself_is_a_sole_voter(tmp_path: Path, listen: str) -> None:
    changes = ("controller.quorum.voters=", f"listeners=PLAINTEXT://:9092,{listen}")
    settings = load(MEMBER, tmp_path, *changes, "controller.quorum.bootstrap.servers=localhost:9093")
    assert settings.is_sole_voter
    for others in ("localhost:9094", "elsewhere:9093", "localhost:9093,localhost:9094"):
        settings = load(MEMBER, tmp_path, *changes, f"controller.quorum.bootstrap.servers={others}")
        assert not settings.is_sole_voter
        assert settings.voters is None


def test_the_time_outs_of_the_quorum_are_settings(tmp_path: Path) -> None:
    settings = load(
        MEMBER, tmp_path, "controller.quorum.election.timeout.ms=500", "controller.quorum.fetch.timeout.ms=900"
    )
    assert (settings.quorum.election_timeout_ms, settings.quorum.fetch_timeout_ms) == (500, 900)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("process.roles=", "process.roles must be broker, controller, or both"),
        ("node.id=4", r"does not name node 4, which is a controller. Add 4@host:port"),
        ("controller.quorum.voters=1@a:1,1@b:1", r"node 1 occurs twice. Give each controller its own node.id"),
        ("controller.quorum.voters=1@a:1,2@a:1", r"two voters have the address a:1"),
        ("controller.quorum.voters=2@0.0.0.0:1,1@a:1", r"not an address that other nodes can connect to"),
        ("controller.quorum.voters=a:9093", r"expected id@host:port, got 'a:9093'"),
        ("controller.quorum.voters=2@a", r"expected id@host:port, got '2@a'"),
        ("controller.quorum.bootstrap.servers=a", r"bootstrap.servers: expected host:port, got 'a'"),
        ("controller.quorum.bootstrap.servers=0.0.0.0:1", r"0.0.0.0:1 is not an address that this node can connect"),
        ("controller.listener.names=", r"CONTROLLER has no security protocol.*or name it in controller.listener.names"),
        ("listeners=PLAINTEXT://:9092", r"listeners has none of them. Add an address such as CONTROLLER://:9093"),
        ("listeners=CONTROLLER://:9093", r"at least one address for clients"),
        ("listener.security.protocol.map=PLAINTEXT:PLAINTEXT", r"CONTROLLER has no security protocol.*Add CONTROLLER:"),
        ("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SSL", r"CONTROLLER uses SSL"),
        ("inter.broker.listener.name=CONTROLLER", r"which is a listener for controllers. Set it to one of: PLAINTEXT"),
        ("inter.broker.listener.name=OTHER", r"OTHER is not one of listeners. Set it to one of: PLAINTEXT"),
        ("advertised.listeners=CONTROLLER://0.0.0.0:1", r"needs an address that clients and other nodes can connect"),
        ("process.roles=broker", r"CONTROLLER is for controllers, but process.roles=broker. Remove it"),
        ("process.roles=controller", r"PLAINTEXT is for clients, but process.roles=controller. Name only those"),
    ],
)
def test_errors_say_what_to_change_in_a_member(tmp_path: Path, change: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(MEMBER, tmp_path, change)


def test_a_broker_among_the_voters_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"names node 2, but process.roles=broker. Remove 2"):
        load(MEMBER, tmp_path, "process.roles=broker", "listeners=PLAINTEXT://:9092")


def test_a_member_without_a_listener_for_controllers_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controller.listener.names is not set.*Set controller.listener.names="):
        load(MEMBER, tmp_path, "controller.listener.names=", "listeners=PLAINTEXT://:9092")


def test_a_broker_without_controllers_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"process.roles=broker needs the addresses of the controllers: set"):
        load("process.roles=broker", tmp_path)


def test_two_listeners_of_brokers_need_a_choice(tmp_path: Path) -> None:
    listeners = (
        "listeners=INSIDE://:1,OUTSIDE://:2,CONTROLLER://:9093",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
    with pytest.raises(ConfigError, match=r"inter.broker.listener.name.*Set it to one of: INSIDE, OUTSIDE"):
        load(MEMBER, tmp_path, *listeners)
    with pytest.raises(ConfigError, match=r"are both set. Leave out security.inter.broker.protocol"):
        load(
            MEMBER,
            tmp_path,
            *listeners,
            "inter.broker.listener.name=INSIDE",
            "security.inter.broker.protocol=PLAINTEXT",
        )
    assert load(MEMBER, tmp_path, *listeners, "inter.broker.listener.name=INSIDE").inter_broker_listener == "INSIDE"
