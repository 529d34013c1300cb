"""The embedded cluster: its start and end, and what a test can do to its members."""

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rookery.base.errors import StartupError
from rookery.testing import EmbeddedCluster
from rookery.testing.embedded import Mode
from tests.support.waiting import eventually


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the temporary directories of this test's clusters, to check that they are deleted."""
    root = tmp_path / "temporary"
    root.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    return root


def values(cluster: EmbeddedCluster, topic: str, count: int) -> list[Any]:
    return [record.value for record in cluster.records(topic, count=count, value_format="text")]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_cluster_of_one(mode: Mode, temporary_root: Path) -> None:
    threads = set(threading.enumerate())
    with EmbeddedCluster(brokers=1, mode=mode) as cluster:
        cluster.produce("t", "a")
        assert cluster.leader_of("t") == 1
        assert cluster.in_sync_replicas("t") == [1]
        cluster.restart(1, clean=False)
        assert values(cluster, "t", 1) == ["a"]
        assert (cluster.nodes, cluster.running) == ([1], [1])
        assert (cluster.data_dir(1) / "meta.properties").exists()
    assert not set(threading.enumerate()) - threads
    assert list(temporary_root.iterdir()) == []


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_cluster_that_cannot_start_reports_the_reason_and_leaves_nothing(mode: Mode, tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "data").touch()
    cluster = EmbeddedCluster(mode=mode, data_dir=tmp_path)
    threads = set(threading.enumerate())
    with pytest.raises(StartupError, match="cannot write to the log directory"):
        cluster.start()
    assert not set(threading.enumerate()) - threads
    cluster.stop()


def test_wrong_use_is_reported() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        EmbeddedCluster(brokers=0)
    with pytest.raises(ValueError, match=r"node.id cannot be set: the nodes are numbered"):
        EmbeddedCluster(settings={"node.id": "7"})
    with pytest.raises(ValueError, match=r"log.dirs cannot be set: use data_dir"):
        EmbeddedCluster(settings={"log.dirs": "here"})
    cluster = EmbeddedCluster(brokers=1)
    with pytest.raises(RuntimeError, match="is not started"):
        _ = cluster.bootstrap_servers
    with cluster:
        with pytest.raises(RuntimeError, match="already started"):
            cluster.start()
        with pytest.raises(RuntimeError, match="node 1 already runs"):
            cluster.start(1)
        with pytest.raises(ValueError, match="there is no node 2, only 1 to 1"):
            cluster.kill(2)
        with pytest.raises(RuntimeError, match="pass schema_registry=True"):
            _ = cluster.schema_registry_url
        cluster.kill(1)
        with pytest.raises(RuntimeError, match="node 1 is not running"):
            cluster.pause(1)
    with EmbeddedCluster(brokers=1, mode="process") as cluster:
        with pytest.raises(RuntimeError, match='leave out mode="process"'):
            cluster.cut(1, 1)
        with pytest.raises(RuntimeError, match='leave out mode="process"'):
            cluster.faults(1)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_acknowledged_records_survive_their_leader(mode: Mode) -> None:
    with EmbeddedCluster(mode=mode) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.produce("t", "own client")
        foreign = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        foreign.produce("t", "foreign client")
        assert foreign.flush(30) == 0
        leader = cluster.leader_of("t")
        cluster.kill(leader)
        assert cluster.leader_of("t") != leader
        assert values(cluster, "t", 2) == ["own client", "foreign client"]
        foreign.produce("t", "after the kill")
        assert foreign.flush(30) == 0
        cluster.start(leader)
        assert cluster.in_sync_replicas("t", at_least=3) == [1, 2, 3]
        assert values(cluster, "t", 3) == ["own client", "foreign client", "after the kill"]


def test_a_node_that_is_cut_off_or_paused_is_replaced() -> None:
    with EmbeddedCluster(settings={"broker.session.timeout.ms": "3000"}) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.produce("t", "before")
        leader = cluster.leader_of("t")
        others = [node for node in cluster.nodes if node != leader]
        cluster.cut(leader, others)
        assert cluster.leader_of("t", other_than=leader) in others
        cluster.heal()
        cluster.in_sync_replicas("t", at_least=3)
        leader = cluster.leader_of("t")
        cluster.pause(leader)
        cluster.leader_of("t", other_than=leader)
        cluster.resume(leader)
        cluster.produce("t", "after")
        assert values(cluster, "t", 2) == ["before", "after"]
        assert cluster.in_sync_replicas("t", at_least=3) == [1, 2, 3]


def test_the_controller_is_replaced() -> None:
    with EmbeddedCluster() as cluster:
        first = cluster.controller()
        cluster.stop(first)
        assert cluster.running == [node for node in cluster.nodes if node != first]
        assert cluster.controller(other_than=first) in cluster.running
        # As in Kafka, a broker that was stopped gracefully gets no replicas.
        cluster.create_topic("t", partitions=3, replicas=2)
        cluster.start(first)
        assert cluster.in_sync_replicas("t", 2, at_least=2) == [node for node in cluster.nodes if node != first]


def test_the_data_of_a_given_directory_is_kept(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.produce("t", "kept")
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert values(cluster, "t", 1) == ["kept"]


def test_a_node_that_cannot_write_its_metadata_ends_and_starts_again() -> None:
    with EmbeddedCluster() as cluster:
        leader = cluster.controller()
        failing = next(node for node in cluster.nodes if node != leader)
        # The synced end of the metadata log is written to a file of this name first.
        obstacle = cluster.data_dir(failing) / "metadata-recovery-point-checkpoint.tmp"
        obstacle.mkdir()
        cluster.create_topic("t", partitions=3)
        eventually(lambda: failing not in cluster.running, "the node has ended", timeout_s=30)
        cluster.produce("t", "served by the others")
        with pytest.raises(RuntimeError, match="is not running"):
            cluster.kill(failing)
        obstacle.rmdir()
        cluster.start(failing)
        assert cluster.running == cluster.nodes
