"""`rookery cluster`, `brokers`, `quorum`, `partitions`, `reassign` and `topics describe` against a scripted cluster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.base.types import TopicPartition
from rookery.cli.commands import app
from rookery.protocol.api import ApiKey
from tests.cli.scripted_cluster import ScriptedCluster, directory_id, directory_text

FIRST, SECOND, THIRD = (TopicPartition("orders", index) for index in range(3))


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as running:
        yield running


def rookery(cluster: ScriptedCluster, *arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner(env={"ROOKERY_BOOTSTRAP_SERVER": cluster.address}).invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    return result


def as_json(cluster: ScriptedCluster, *arguments: str, exit_code: int = 0) -> Any:
    return json.loads(rookery(cluster, *arguments, "--json", exit_code=exit_code).stdout)


def lose_broker_3(cluster: ScriptedCluster) -> None:
    """Broker 3 dies: partition 1 keeps one replica in sync, partition 2 keeps none."""
    cluster.fenced.add(3)
    cluster.in_sync |= {SECOND: [2], THIRD: []}
    cluster.eligible[THIRD] = [3]
    cluster.leaders[THIRD] = -1


def test_a_healthy_cluster(cluster: ScriptedCluster) -> None:
    described = as_json(cluster, "cluster", "describe")
    assert described["quorum"]["leader"] == 1
    assert [voter["lag"] for voter in described["quorum"]["voters"]] == [0, 0, 0]
    assert [row["id"] for row in described["brokers"]] == [1, 2, 3]
    assert [(row["leaders"], row["replicas"]) for row in described["brokers"]] == [(1, 1), (1, 3), (1, 2)]
    assert described["partitions"] | {"problems": None} == {
        "total": 3,
        "offline": 0,
        "under_min_isr": 0,
        "at_min_isr": 3,
        "under_replicated": 0,
        "reassigning": 0,
        "problems": None,
    }
    shown = rookery(cluster, "cluster", "describe").stdout
    assert "Quorum: leader 1, epoch 7, high watermark 100, 3 voters" in shown
    assert "Partitions: 3 of 1 topics, 0 offline" in shown


def test_a_cluster_in_trouble(cluster: ScriptedCluster) -> None:
    lose_broker_3(cluster)
    counts = as_json(cluster, "cluster", "describe")["partitions"]
    assert (counts["offline"], counts["under_min_isr"], counts["under_replicated"]) == (1, 2, 2)
    assert [(row["partition"], row["problems"]) for row in counts["problems"]] == [
        (1, ["under min ISR", "under-replicated"]),
        (2, ["offline", "under min ISR", "under-replicated"]),
    ]
    shown = rookery(cluster, "cluster", "describe").stdout
    assert "Brokers: 3, 1 fenced" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("orders          2")]
    assert line.split() == [
        *("orders", "2", "none", "3,2", "-", "3"),
        *("offline,", "under", "min", "ISR,", "under-replicated"),
    ]


def test_only_the_worst_problems_are_shown(cluster: ScriptedCluster) -> None:
    lose_broker_3(cluster)
    for index in range(3, 60):
        tp = TopicPartition("orders", index)
        cluster.replicas[tp], cluster.in_sync[tp] = [1, 2, 3], [1, 2]
    shown = rookery(cluster, "cluster", "describe").stdout.splitlines()
    problems = [line for line in shown if line.startswith("orders")]
    assert len(problems) == 20
    assert "offline" in problems[0]
    assert shown[-1].startswith("... and 39 more: rookery topics describe --under-replicated")


def test_a_cluster_without_a_quorum_is_described_without_it(cluster: ScriptedCluster) -> None:
    cluster.broker.forget(ApiKey.DESCRIBE_QUORUM)
    assert as_json(cluster, "cluster", "describe")["quorum"] is None
    refused = rookery(cluster, "quorum", "status", exit_code=1)
    assert "serves no version of DESCRIBE_QUORUM" in refused.stderr


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], [0, 1, 2]),
        (["--under-replicated"], [1, 2]),
        (["--unavailable"], [2]),
        (["--under-min-isr"], [1, 2]),
        (["--at-min-isr"], [0]),
        (["--at-min-isr", "--unavailable"], [0, 2]),
    ],
)
def test_filters_of_topics_describe(cluster: ScriptedCluster, options: list[str], found: list[int]) -> None:
    lose_broker_3(cluster)
    if not options:
        cluster.leaders[THIRD] = 2
        options = ["--under-min-isr", "--at-min-isr"]
    (topic,) = as_json(cluster, "topics", "describe", "orders", *options)
    assert [row["partition"] for row in topic["partitions"]] == found
    shown = rookery(cluster, "topics", "describe", *options).stdout.splitlines()
    assert [line.split()[0] for line in shown[2:]] == list(map(str, found))
    assert "LATEST" not in shown[1]


def test_a_filter_that_nothing_matches(cluster: ScriptedCluster) -> None:
    assert as_json(cluster, "topics", "describe", "--unavailable") == []
    missing = rookery(cluster, "topics", "describe", "order", "--unavailable", exit_code=1)
    assert "there is no such topic" in missing.stderr
    assert "did you mean orders?" in missing.stderr


def test_brokers(cluster: ScriptedCluster) -> None:
    lose_broker_3(cluster)
    listed = rookery(cluster, "brokers", "list").stdout.splitlines()
    assert [line.split()[3] for line in listed[1:]] == ["active", "active", "fenced"]
    assert as_json(cluster, "brokers", "list")[2]["fenced"]
    described = as_json(cluster, "brokers", "describe", "3")
    assert described["log_directories"] is None
    assert "the broker does not answer" in rookery(cluster, "brokers", "describe", "3").stdout
    assert described["out_of_sync"] == ["orders-1", "orders-2"]
    first = as_json(cluster, "brokers", "describe", "1")
    assert first["log_directories"][0]["size_bytes"] == 3 * 4096
    assert first["at_min_isr_here"] == ["orders-0"]
    shown = rookery(cluster, "brokers", "describe", "1").stdout
    assert "12.0 KiB" in shown
    assert "partitions that would go offline without this broker: none" in shown
    unknown = rookery(cluster, "brokers", "describe", "8", exit_code=1)
    assert "there is no broker 8; the brokers are 1, 2, 3" in unknown.stderr


def test_a_broker_is_unregistered_when_it_is_unused(cluster: ScriptedCluster) -> None:
    assert "add --yes" in rookery(cluster, "brokers", "unregister", "3", exit_code=1).stderr
    in_use = rookery(cluster, "brokers", "unregister", "3", "--yes", exit_code=1)
    assert "broker 3 has replicas of 2 partitions (orders-1, orders-2)" in in_use.stderr
    for tp in (SECOND, THIRD):
        cluster.replicas[tp] = [1, 2]
    running = rookery(cluster, "brokers", "unregister", "3", "--yes", exit_code=1)
    assert "broker 3 is running: stop it first" in running.stderr
    assert cluster.unregistered == []
    cluster.fenced.add(3)
    assert rookery(cluster, "brokers", "unregister", "3", "--yes").stdout == "unregistered broker 3\n"
    rookery(cluster, "brokers", "unregister", "2", "--yes", "--force")
    assert cluster.unregistered == [3, 2]


def test_the_status_of_the_quorum(cluster: ScriptedCluster) -> None:
    shown = rookery(cluster, "quorum", "status", "--replication").stdout
    assert "leader                  1\n" in shown
    assert f"CONTROLLER://controller2:9093  {directory_text(2)}" in shown
    described = as_json(cluster, "quorum", "status")
    assert [row["role"] for row in described["voters"] + described["observers"]] == [
        "leader",
        "voter",
        "voter",
        "observer",
    ]
    assert "problems" not in described


def test_the_check_of_the_quorum(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.cli.quorum._CHECK_S", 0.3)
    assert as_json(cluster, "quorum", "status", "--check")["problems"] == []
    cluster.voters[3] = 60
    cluster.silent.add(2)
    cluster.log_end = 130
    cluster.voters[2] = 130
    failed = rookery(cluster, "quorum", "status", "--check", exit_code=1)
    assert failed.stderr.splitlines() == [
        "error: the high watermark stays at 100, and 30 records wait for it",
        "error: voter 2 has stopped fetching",
        "error: voter 3 is 70 behind",
    ]


def test_voters_are_added_by_their_id(cluster: ScriptedCluster) -> None:
    assert "node 2 is a voter already" in rookery(cluster, "quorum", "add", "2", exit_code=1).stderr
    unknown = rookery(cluster, "quorum", "add", "9", exit_code=1)
    assert "node 9 does not follow the quorum (the observers are 4)" in unknown.stderr
    wrong = rookery(cluster, "quorum", "add", "4", "--endpoint", "nowhere", exit_code=1)
    assert "'nowhere' must have the form HOST:PORT" in wrong.stderr
    added = rookery(cluster, "quorum", "add", "4", "--endpoint", "controller4:9093")
    assert added.stdout == "added voter 4 at CONTROLLER://controller4:9093\n"
    (request,) = cluster.broker.requests_of(ApiKey.ADD_RAFT_VOTER)
    assert (request.voter_directory_id, request.cluster_id) == (directory_id(4), "scripted")
    assert [(row.name, row.host, row.port) for row in request.listeners] == [("CONTROLLER", "controller4", 9093)]


def test_a_removal_that_would_stop_the_quorum_is_refused(cluster: ScriptedCluster) -> None:
    cluster.silent.add(3)
    refused = rookery(cluster, "quorum", "remove", "2", exit_code=1)
    assert "without node 2, 2 of the voters 1, 3 must answer, and 3 does not. Add --force" in refused.stderr
    assert "the voters are 1, 2, 3" in rookery(cluster, "quorum", "remove", "4", exit_code=1).stderr
    assert rookery(cluster, "quorum", "remove", "3").stdout == "removed voter 3\n"
    assert list(cluster.voters) == [1, 2]
    rookery(cluster, "quorum", "remove", "2", "--force")
    last = rookery(cluster, "quorum", "remove", "1", exit_code=1)
    assert "is the only voter" in last.stderr


def test_elections(cluster: ScriptedCluster) -> None:
    assert "have the right leader" in rookery(cluster, "partitions", "elect", "--all").stdout
    cluster.leaders |= {FIRST: 2, SECOND: 3}
    assert rookery(cluster, "partitions", "elect", "orders:1").stdout == "elected a leader for orders-1\n"
    assert [row["elected"] for row in as_json(cluster, "partitions", "elect", "orders")] == [True, False, False]
    cluster.fenced.add(2)
    failed = rookery(cluster, "partitions", "elect", "orders:1", exit_code=1)
    assert failed.stderr == "error: orders-1: PREFERRED_LEADER_NOT_AVAILABLE\n"
    asked = rookery(cluster, "partitions", "elect", "--all", "--unclean", exit_code=1)
    assert "lose these records? There is no terminal to ask" in asked.stderr
    rookery(cluster, "partitions", "elect", "--all", "--unclean", "--yes")
    assert cluster.broker.requests_of(ApiKey.ELECT_LEADERS)[-1].get("election_type") == 1
    assert "there is no such topic" in rookery(cluster, "partitions", "elect", "x", exit_code=1).stderr


def test_a_plan_is_executed_and_verified(cluster: ScriptedCluster, tmp_path: Path) -> None:
    planned = as_json(cluster, "reassign", "plan", "--topics", "orders:1", "--brokers", "1,2")
    assert planned["partitions"] == [{"topic": "orders", "partition": 1, "replicas": [2, 1]}]
    path, before = tmp_path / "plan.json", tmp_path / "before.json"
    path.write_text(json.dumps(planned))
    table = rookery(cluster, "reassign", "plan", "-t", "orders:1", "--brokers", "1,2").stdout.splitlines()
    assert table[1].split() == ["orders", "1", "2,3", "2,1", "+1", "-3"]
    assert "different" in rookery(cluster, "reassign", "verify", str(path), exit_code=1).stdout
    assert "nothing is moving" in rookery(cluster, "reassign", "cancel", "--all").stdout
    cluster.lists_until_end = 3
    started = rookery(cluster, "reassign", "execute", str(path), "--rollback", str(before))
    assert started.stdout == "started to move 1 partitions\n"
    assert json.loads(before.read_text())["partitions"][0]["replicas"] == [2, 3]
    (moving,) = as_json(cluster, "reassign", "list")
    assert (moving["adding_replicas"], moving["removing_replicas"]) == ([1], [3])
    assert "moving" in rookery(cluster, "reassign", "verify", str(path), exit_code=1).stdout
    assert "1 of 1 partitions are as planned" in rookery(cluster, "reassign", "verify", str(path), "--wait").stdout
    assert cluster.replicas[SECOND] == [2, 1]


def test_moves_are_replaced_and_cancelled(cluster: ScriptedCluster, tmp_path: Path) -> None:
    cluster.lists_until_end = 100
    rookery(cluster, "reassign", "execute", "-t", "orders:0", "--brokers", "2,3")
    path = tmp_path / "plan.json"
    path.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 1, 3]}]}')
    busy = rookery(cluster, "reassign", "execute", str(path), exit_code=1)
    assert "1 partitions move already (orders-0): wait, cancel, or add --replace" in busy.stderr
    rookery(cluster, "reassign", "execute", str(path), "--replace")
    assert "orders" in rookery(cluster, "reassign", "list").stdout
    assert "nothing is moving" in rookery(cluster, "reassign", "cancel", "--topic", "orders:2").stdout
    assert rookery(cluster, "reassign", "cancel", "--topic", "orders:0").stdout == "cancelled orders-0\n"
    assert cluster.replicas[FIRST] == [1, 2]
    path.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [9]}]}')
    refused = rookery(cluster, "reassign", "execute", str(path), exit_code=1)
    assert "1 of 1 moves were refused, the first for orders-0: no such broker" in refused.stderr


def test_a_broker_is_drained(cluster: ScriptedCluster) -> None:
    planned = as_json(cluster, "brokers", "drain", "3", "--dry-run")
    assert [row["partition"] for row in planned["partitions"]] == [1, 2]
    assert all(set(row["replicas"]) == {1, 2} for row in planned["partitions"])
    assert cluster.moving == {}
    drained = rookery(cluster, "brokers", "drain", "3", "--partitions-at-once", "1")
    assert "broker 3 has no replicas left" in drained.stderr
    assert all(3 not in nodes for nodes in cluster.replicas.values())
    assert len(cluster.broker.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)) == 2
    cluster.leaders[FIRST] = -1
    stuck = rookery(cluster, "brokers", "drain", "2", exit_code=1)
    assert "1 partitions are offline and cannot move (orders-0)" in stuck.stderr
    assert 2 not in cluster.replicas[THIRD]
    del cluster.leaders[FIRST]
    cluster.fenced |= {2, 3}
    refused = rookery(cluster, "brokers", "drain", "1", exit_code=1)
    assert "needs 2 brokers, and without broker 1 there are 0: add a broker" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["partitions", "elect"], "give either topics or --all"),
        (["partitions", "elect", "orders:x"], "must have the form TOPIC"),
        (["reassign", "execute"], "give either a plan's FILE"),
        (["reassign", "cancel"], "give a plan's FILE, or --topic, or --all"),
        (["reassign", "plan", "--brokers", "one"], "must have the form ID,ID,ID"),
        (["reassign", "plan", "--topics", ":"], "must have the form TOPIC"),
        (["quorum", "add"], "Missing argument"),
    ],
)
def test_wrong_usage(cluster: ScriptedCluster, arguments: list[str], message: str) -> None:
    result = rookery(cluster, *arguments, exit_code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_a_file_that_is_no_plan(cluster: ScriptedCluster, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("[]")
    wrong = rookery(cluster, "reassign", "verify", str(path), exit_code=2)
    assert "must have the form" in " ".join(wrong.stderr.replace("│", " ").split())
    unknown = rookery(cluster, "reassign", "plan", "--brokers", "7", exit_code=1)
    assert "broker 7 is not alive" in unknown.stderr
    assert "topic x" in rookery(cluster, "reassign", "plan", "-t", "x", exit_code=1).stderr
    assert "there is no 8" in rookery(cluster, "reassign", "plan", "-t", "orders:8", exit_code=1).stderr
