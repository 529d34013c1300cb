"""What `rookery secure init` makes for one machine and for several."""

from pathlib import Path

import pytest

from rookery.base.errors import ConfigError
from rookery.base.properties import parse_properties
from rookery.node.secured_cluster import (
    SecuredCluster,
    Users,
    client_files,
    next_commands,
    node_files,
    node_settings,
    plan_cluster,
    steps_text,
)

DIRECTORY = Path("/clusters/mine")
USERS = Users(admin_password="admin-secret", broker_password="broker-secret", credentials=("A", "B"))


def plan(*nodes: str, path: Path | None = None) -> SecuredCluster:
    return plan_cluster(DIRECTORY, nodes, machine_name="laptop", path=path)


def settings(cluster: SecuredCluster, index: int) -> dict[str, str]:
    return node_settings(cluster, cluster.nodes[index], "broker-secret")


def test_three_nodes_on_one_machine_have_ports_of_their_own() -> None:
    cluster = plan("127.0.0.1", "127.0.0.1", "127.0.0.1")
    assert cluster.is_local
    assert cluster.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9094,127.0.0.1:9096"
    assert settings(cluster, 1)["listeners"] == "SASL_SSL://127.0.0.1:9094,CONTROLLER://127.0.0.1:9095"
    assert cluster.nodes[0].names == ("127.0.0.1", "localhost", "::1", "laptop")
    assert settings(cluster, 2)["log.dirs"] == "/clusters/mine/node-3/data"


def test_three_machines_listen_on_all_interfaces() -> None:
    cluster = plan("kafka1/10.0.0.1", "kafka2.example.com:9192", "[2001:db8::3]")
    assert not cluster.is_local
    assert [node.names for node in cluster.nodes] == [
        ("kafka1", "10.0.0.1"),
        ("kafka2.example.com",),
        ("2001:db8::3",),
    ]
    first, second, third = (settings(cluster, index) for index in range(3))
    assert first["listeners"] == "SASL_SSL://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093"
    assert first["advertised.listeners"] == "SASL_SSL://kafka1:9092"
    assert second["advertised.listeners"] == "SASL_SSL://kafka2.example.com:9192"
    assert third["listeners"].startswith("SASL_SSL://[::]:9092")
    assert (
        first["controller.quorum.voters"]
        == second["controller.quorum.voters"]
        == "1@kafka1:9093,2@kafka2.example.com:9193,3@[2001:db8::3]:9093"
    )
    assert first["super.users"] == "User:admin;User:broker;User:node-1;User:node-2;User:node-3"
    assert first["min.insync.replicas"] == "2"


def test_the_directory_of_a_node_may_have_another_path_on_its_machine() -> None:
    cluster = plan("kafka1", path=Path("/etc/rookery"))
    values = settings(cluster, 0)
    assert values["ssl.keystore.location"] == "/etc/rookery/node.pem"
    assert values["log.dirs"] == "/etc/rookery/data"
    text = steps_text(next_commands(cluster, "the-id"))
    assert "rsync -a /clusters/mine/node-1/ kafka1:/etc/rookery/" in text
    assert "--config /etc/rookery/server.properties --cluster-id the-id --add-scram @/etc/rookery/users.scram" in text


def test_only_three_of_four_nodes_are_controllers() -> None:
    cluster = plan("a", "b", "c", "d")
    last = settings(cluster, 3)
    assert last["process.roles"] == "broker"
    assert last["listeners"] == "SASL_SSL://0.0.0.0:9092"


def test_nothing_is_plaintext_and_passwords_are_where_they_belong() -> None:
    cluster = plan("127.0.0.1")
    files = node_files(cluster, cluster.nodes[0], USERS, key_file="KEY", trusted="CA")
    files |= client_files(cluster, USERS, trusted="CA")
    for path, text in files.items():
        assert "PLAINTEXT" not in text
        assert ("admin-secret" in text) == path.name.startswith("admin.")
        assert ("broker-secret" in text) == (path.name == "server.properties")
    server = parse_properties(files[DIRECTORY / "node-1" / "server.properties"], "server.properties")
    assert {key: each.value for key, each in server.items()} == settings(cluster, 0)
    assert files[DIRECTORY / "node-1" / "users.scram"] == "A\nB\n"


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (["kafka1", ""], "'' must have the form HOST"),
        (["kafka1:99999"], "'kafka1:99999' has the port 99999"),
        (["kafka1/bad name"], "has the name 'bad name'"),
        (["0.0.0.0"], "no address that clients can connect to"),
        (["kafka1:9092", "kafka1:9093"], "nodes 1 and 2 both use port 9093 of kafka1"),
        ([], "1 to 99 nodes, not 0"),
    ],
)
def test_wrong_nodes_are_named(nodes: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        plan(*nodes)
