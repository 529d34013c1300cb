"""Apache Kafka's tools for clusters with three Rookery nodes, and on the files of their quorum.

The tests share one cluster: a test that stops a node starts it again. Leaders stay where they are until a tool moves
them, so that the preferred election has something to do.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.base.files import OsFiles
from rookery.node.identity import read_stamp
from rookery.testing import EmbeddedCluster
from tests.conformance.java_tools import run_tool, tool_command
from tests.support.waiting import eventually, expect

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
SETTINGS: Final = {
    "auto.leader.rebalance.enable": "false",
    # A snapshot is due whenever a node looks for one.
    "metadata.log.max.record.bytes.between.snapshots": "1",
}
NODES: Final = [1, 2, 3]
TIMEOUT_S: Final = 60
VALUES: Final = 1_500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster(mode="process", settings=SETTINGS, data_dir=directory) as running:
        yield running


def ask(cluster: EmbeddedCluster, tool: str, *arguments: str) -> str:
    return run_tool(tool, "--bootstrap-server", cluster.bootstrap_servers, *arguments)


def create(cluster: EmbeddedCluster, topic: str, replicas: list[int], **config: str) -> None:
    """Create a topic with one partition on these replicas, of which the first one is the preferred leader."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=dotted)
    admin.create_topics([new])[topic].result(TIMEOUT_S)


def described(output: str) -> list[str]:
    """Return the topics whose partitions kafka-topics lists."""
    return sorted(re.findall(r"Topic: (\S+)\s+Partition: ", output))


def quorum_nodes(output: str) -> list[tuple[int, str]]:
    """Return the ids and states in the table of the quorum's replication."""
    rows = [line.split() for line in output.splitlines() if re.match(r"\d+\s", line)]
    return sorted((int(row[0]), row[-1]) for row in rows)


def test_the_quorum_is_described_by_brokers_and_controllers(cluster: EmbeddedCluster) -> None:
    leader = cluster.controller()
    status = ask(cluster, "metadata-quorum", "describe", "--status")
    cluster_id = (read_stamp(OsFiles(), cluster.data_dir(1)) or {})["cluster.id"]
    assert re.search(rf"ClusterId:\s+{re.escape(cluster_id)}\n", status)
    assert re.search(rf"LeaderId:\s+{leader}\n", status)
    assert int(re.findall(r"LeaderEpoch:\s+(\d+)", status)[0]) > 0
    assert int(re.findall(r"HighWatermark:\s+(\d+)", status)[0]) > 0
    voters = json.loads(re.findall(r"CurrentVoters:\s+(.*)", status)[0])
    assert sorted(voter["id"] for voter in voters) == NODES
    assert re.search(r"CurrentObservers:\s+\[\]", status)
    states = sorted((node, "Leader" if node == leader else "Follower") for node in NODES)
    assert quorum_nodes(ask(cluster, "metadata-quorum", "describe", "--replication")) == states
    endpoints = re.findall(r"CONTROLLER://(127\.0\.0\.1:\d+)", status)
    assert len(endpoints) == len(NODES)
    controllers = ("--bootstrap-controller", ",".join(endpoints))
    assert re.search(rf"LeaderId:\s+{leader}\n", run_tool("metadata-quorum", *controllers, "describe", "--status"))
    assert quorum_nodes(run_tool("metadata-quorum", *controllers, "describe", "--replication")) == states


def test_the_features(cluster: EmbeddedCluster) -> None:
    output = ask(cluster, "features", "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: 4\.\d-IV\d", output)
    for name in ("group.version", "transaction.version"):
        assert re.search(rf"Feature: {name}\s.*FinalizedVersionLevel: [1-9]\s", output)


def test_unhealthy_partitions_and_the_preferred_leader_after_a_kill(cluster: EmbeddedCluster, topic: str) -> None:
    created = ask(
        cluster,
        *("topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3"),
        *("--config", "min.insync.replicas=1"),
    )
    assert f"Created topic {topic}." in created
    healthy = ask(cluster, "topics", "--describe", "--topic", topic)
    assert "ReplicationFactor: 3\tConfigs: min.insync.replicas=1" in healthy
    assert len(re.findall(r"Leader: [123]\tReplicas: [123],[123],[123]\tIsr: [123],[123],[123]\t", healthy)) == 3
    single, at_min, under_min, elsewhere = (f"{topic}-{name}" for name in ("single", "at", "under", "elsewhere"))
    create(cluster, single, [3])
    create(cluster, at_min, [3, 1, 2], min_insync_replicas="2")
    create(cluster, under_min, [1, 2, 3], min_insync_replicas="3")
    create(cluster, elsewhere, [1, 2], min_insync_replicas="1")
    cluster.kill(3)
    try:
        cluster.leader_of(at_min, other_than=3)
        eventually(
            lambda: 3 not in cluster.in_sync_replicas(under_min), "the killed node is out of sync", timeout_s=TIMEOUT_S
        )
        filters = {
            "under-replicated": [topic, topic, topic, at_min, single, under_min],
            "unavailable": [single],
            "under-min-isr": [single, under_min],
            "at-min-isr": [at_min],
        }
        for name, expected in filters.items():
            listed = ask(cluster, "topics", "--describe", f"--{name}-partitions")
            assert [each for each in described(listed) if each.startswith(topic)] == sorted(expected), listed
    finally:
        cluster.start(3)
    for each in (topic, at_min, under_min):
        cluster.in_sync_replicas(each, at_least=3)
    assert at_min not in described(ask(cluster, "topics", "--describe", "--under-replicated-partitions"))
    assert cluster.leader_of(at_min) != 3
    election = ("leader-election", "--election-type", "preferred", "--topic", at_min, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {at_min}-0" in ask(cluster, *election)
    assert cluster.leader_of(at_min) == 3
    assert f"Valid replica already elected for partitions {at_min}-0" in ask(cluster, *election)


def test_reassignment(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    ask(cluster, "topics", "--create", "--topic", topic, "--replica-assignment", "1:2,1:2")
    cluster.produce(topic, "kept", partition=0)
    plan = tmp_path / "plan.json"
    rows = [{"topic": topic, "partition": index, "replicas": [3, 2]} for index in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    file = ("--reassignment-json-file", str(plan))
    executed = ask(cluster, "reassign-partitions", *file, "--execute")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in executed
    for index in range(2):
        expect(partial(cluster.in_sync_replicas, topic, index), [2, 3], timeout_s=TIMEOUT_S)
    verified = ask(cluster, "reassign-partitions", *file, "--verify")
    for index in range(2):
        assert f"Reassignment of partition {topic}-{index} is completed." in verified
    assert ask(cluster, "topics", "--describe", "--topic", topic).count("\tReplicas: 3,2\t") == 2
    assert "No partition reassignments found." in ask(cluster, "reassign-partitions", "--list")
    assert [record.value for record in cluster.records(topic, count=1, value_format="text")] == ["kept"]


def test_a_stopped_broker_is_unregistered_and_comes_back(cluster: EmbeddedCluster) -> None:
    include = ("--bootstrap-server", cluster.address(1), "--include-fenced-brokers")
    listed = run_tool("cluster", "list-endpoints", *include)
    assert re.findall(r"^(\d).*unfenced +broker", listed, re.MULTILINE) == ["1", "2", "3"]
    cluster.stop(3)
    try:
        output = run_tool("cluster", "unregister", "--bootstrap-server", cluster.address(1), "--id", "3")
        assert "Broker 3 is no longer registered." in output
        again = run_tool("cluster", "unregister", "--bootstrap-server", cluster.address(1), "--id", "3", fails=True)
        assert "BrokerIdNotRegisteredException: Broker ID 3 is not currently registered" in again
        listed = run_tool("cluster", "list-endpoints", *include)
        assert re.findall(r"^(\d).*unfenced +broker", listed, re.MULTILINE) == ["1", "2"]
    finally:
        cluster.start(3)


def test_acknowledged_records_survive_their_leader(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    create(cluster, topic, [2, 3, 1], min_insync_replicas="2")
    # Without this file the verifiable producer does not retry.
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    command = tool_command(
        "verifiable-producer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--acks", "-1"),
        *("--max-messages", str(VALUES), "--throughput", "150", "--command-config", str(config)),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as producer:
        assert producer.stdout is not None
        lines = []
        for line in producer.stdout:
            lines.append(line)
            if len(lines) == VALUES // 5:
                cluster.kill(2)
    cluster.start(2)
    events = [json.loads(line) for line in lines if line.startswith("{")]
    sent = [int(event["value"]) for event in events if event["name"] == "producer_send_success"]
    assert sorted(sent) == list(range(VALUES))
    read = ask(
        cluster,
        *("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", str(VALUES)),
        *("--timeout-ms", "30000"),
    )
    assert [int(line) for line in read.splitlines() if line.isdigit()] == list(range(VALUES))


def test_kafka_reads_the_formatted_directory(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs={cluster.data_dir(1)}\n"
    )
    shown = run_tool("storage", "info", "--config", str(config))
    stamp = read_stamp(OsFiles(), cluster.data_dir(1)) or {}
    assert f"cluster.id={stamp['cluster.id']}" in shown
    assert f"directory.id={stamp['directory.id']}" in shown
    assert "problem" not in shown.lower()


def snapshot_after(cluster: EmbeddedCluster, created: float) -> Path:
    """Return a snapshot of node 1 that was written after a time."""
    directory = cluster.data_dir(1) / "__cluster_metadata-0"

    def snapshots() -> list[Path]:
        return [each for each in sorted(directory.glob("*.checkpoint")) if each.stat().st_mtime > created]

    eventually(lambda: bool(snapshots()), "a snapshot was taken", timeout_s=TIMEOUT_S)
    return snapshots()[-1]


def test_kafka_reads_the_metadata_log_and_the_snapshot(cluster: EmbeddedCluster, topic: str) -> None:
    create(cluster, topic, [1, 2, 3], retention_ms="1234567")
    snapshot_file = snapshot_after(cluster, time.time())
    files = [snapshot_file, *sorted(snapshot_file.parent.glob("*.log"))]
    output = run_tool("dump-log", "--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    for problem in ("isvalid: false", "Exception", "Found "):
        assert problem not in output
    snapshot, log = re.split(r"^Dumping .*\.log$", output, maxsplit=1, flags=re.MULTILINE)
    for text in (snapshot, log):
        for record in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
            assert record in text
        assert f'"name":"{topic}"' in text
        assert '"replicas":[1,2,3],"isr":[1,2,3]' in text
    for record in ("SnapshotHeader", "SnapshotFooter", "FEATURE_LEVEL_RECORD"):
        assert record in snapshot
    assert "LeaderChange" in log


def test_kafkas_metadata_shell_reads_the_snapshot(cluster: EmbeddedCluster, topic: str) -> None:
    create(cluster, topic, [3, 1, 2], retention_ms="1234567")
    created = time.time()

    def shown(*command: str) -> str:
        return run_tool("metadata-shell", "--snapshot", str(snapshot_after(cluster, created)), *command)

    # A snapshot that was begun before the topic was created may be written after it.
    eventually(lambda: topic in shown("ls", "/image/topics/byName").split(), "the topic is shown", timeout_s=TIMEOUT_S)
    assert "replicas=[3, 1, 2]" in shown("cat", f"/image/topics/byName/{topic}/0")
    assert shown("ls", "/image/cluster/brokers").split() == ["1", "2", "3"]
    assert shown("cat", f"/image/configs/TOPIC:{topic}/retention.ms").strip() == "1234567"
