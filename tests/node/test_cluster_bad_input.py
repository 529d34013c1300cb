"""Nodes that a running cluster refuses: the logs of both say what to change, and the cluster goes on serving."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from shutil import rmtree
from uuid import uuid4

import pytest

from rookery.base.clock import SystemClock
from rookery.base.errors import ConfigError, StartupError
from rookery.base.types import encode_uuid
from rookery.client.admin import Admin
from rookery.node.format import FormatOptions, format_node
from rookery.node.identity import read_stamp
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.testing import EmbeddedCluster
from rookery.testing.thread import UnsyncedFiles
from tests.support.waiting import eventually

FILES = UnsyncedFiles()
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=4) as running:
        # Not by the first test: any of them may be the first, or the only one, in its process.
        running.produce("t", "served before")
        yield running


@pytest.fixture(autouse=True)
def _serves_afterwards(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.produce("t", "still served")
    assert cluster.running == cluster.nodes


def cluster_id(cluster: EmbeddedCluster) -> str:
    return (read_stamp(FILES, cluster.data_dir(cluster.running[0])) or {})["cluster.id"]


async def find_voters(cluster: EmbeddedCluster) -> str:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        endpoints = (await admin.describe_quorum()).endpoints
    return ",".join(f"{node}@{each.host}:{each.port}" for node, own in endpoints.items() for each in own)


def settings_of(cluster: EmbeddedCluster, directory: Path, **changes: str) -> Settings:
    """Return the settings of a broker that wants to join the cluster."""
    values = {
        "process.roles": "broker",
        "node.id": "5",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": asyncio.run(find_voters(cluster)),
        "log.dirs": str(directory),
        "initial.broker.registration.timeout.ms": "1000",
        # A request waits for a quarter of it: however late the controller rejects the broker, that is what is reported.
        "broker.session.timeout.ms": "240000",
    } | {key.replace("_", "."): value for key, value in changes.items()}
    return Settings.load(overrides=[f"{key}={value}" for key, value in values.items()])


def start(settings: Settings, cluster_id: str) -> None:
    """Format the directory for a cluster, and start a node there, which is expected to fail."""
    format_node(FILES, settings, FormatOptions(cluster_id=cluster_id), new_uuid=uuid4, now_ms=1)
    node = Node(settings, files=FILES, clock=SystemClock(), random=Random(1))
    asyncio.run(node.start())


def format_again(cluster: EmbeddedCluster, node: int) -> None:
    values = cluster._settings_of(cluster._member(node))
    settings = Settings.load(overrides=[f"{key}={value}" for key, value in values.items()])
    options = FormatOptions(cluster_id=cluster_id(cluster))
    format_node(FILES, settings, options, new_uuid=uuid4, now_ms=1)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], None]:
    def wait(text: str) -> None:
        eventually(lambda: text in caplog.text, f"{text!r} is in the log", timeout_s=TIMEOUT_S)

    return wait


def test_a_node_of_another_cluster(cluster: EmbeddedCluster, tmp_path: Path, logged: Callable[[str], None]) -> None:
    other = encode_uuid(uuid4())
    with pytest.raises(StartupError, match=rf"belongs to cluster {other}, and the controllers to another one: correct"):
        start(settings_of(cluster, tmp_path), other)
    logged("refused a request of another cluster")
    logged(f"the sender belongs to cluster {other}, this node to cluster {cluster_id(cluster)}: check the addresses in")


def test_a_second_process_with_the_same_id(
    cluster: EmbeddedCluster, tmp_path: Path, logged: Callable[[str], None]
) -> None:
    with pytest.raises(StartupError, match=r"still runs: stop it, or give one of the two another node\.id"):
        start(settings_of(cluster, tmp_path, node_id="4"), cluster_id(cluster))
    logged("another process is registered as broker 4, with other log directories")
    assert cluster.leader_of("t") in cluster.nodes


def test_a_voter_with_a_new_disk(cluster: EmbeddedCluster, tmp_path: Path, logged: Callable[[str], None]) -> None:
    # A follower: its leader knows what it has acknowledged.
    node = next(node for node in (1, 2, 3) if node != cluster.controller())
    cluster.kill(node)
    kept = cluster.data_dir(node).rename(tmp_path / "kept")
    with pytest.raises(StartupError, match=r"is not formatted, and a node of a cluster does not format itself\. Run"):
        cluster.start(node)
    cluster.produce("t", "served by the others")
    # Formatted again under its old id, it copies the log before it votes: its votes and its records are gone.
    rmtree(cluster.data_dir(node))
    format_again(cluster, node)
    cluster.start(node)
    logged("this voter has an empty log and does not vote until it has caught up")
    logged("a voter has lost records that it had acknowledged")
    cluster.produce("t", "served by all")
    cluster.kill(node)
    rmtree(cluster.data_dir(node))
    kept.rename(cluster.data_dir(node))
    cluster.start(node)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node.id": "2"}, r"names node 2, but process.roles=broker.*another node\.id"),
        (
            {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:0"},
            r"does not name node 5, which is a controller\. Add 5@host:port to it on all nodes",
        ),
        ({"listeners": "CONTROLLER://127.0.0.1:0"}, r"listeners must name at least one address for clients"),
        ({"listeners": "INSIDE://127.0.0.1:0"}, r"INSIDE has no security protocol.*Add INSIDE:PLAINTEXT"),
        ({"inter.broker.listener.name": "CONTROLLER"}, r"a listener for controllers\. Set it to one of: PLAINTEXT"),
        ({"controller.listener.names": ""}, r"Set controller\.listener\.names=CONTROLLER"),
    ],
    ids=["voter-as-broker", "unknown-voter", "no-clients", "no-protocol", "between-brokers", "no-controllers"],
)
def test_settings_that_cannot_work(
    cluster: EmbeddedCluster, tmp_path: Path, changes: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settings_of(cluster, tmp_path, **changes)
