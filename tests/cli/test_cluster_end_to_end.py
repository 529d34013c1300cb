"""The commands that operate a cluster, against a running cluster of four brokers, of which three are voters."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rookery.cli.commands import app
from rookery.testing import EmbeddedCluster

pytestmark = pytest.mark.timeout(120)

DEADLINE_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=4) as running:
        yield running


def rookery(cluster: EmbeddedCluster, *arguments: str, stdin: str = "", exit_code: int | None = 0) -> Result:
    environment = {"ROOKERY_BOOTSTRAP_SERVER": cluster.bootstrap_servers}
    result = CliRunner(env=environment).invoke(app, arguments, input=stdin)
    assert exit_code is None or result.exit_code == exit_code, result.output
    return result


def as_json(cluster: EmbeddedCluster, *arguments: str) -> Any:
    return json.loads(rookery(cluster, *arguments, "--json").stdout)


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def replicas(cluster: EmbeddedCluster, topic: str) -> list[set[int]]:
    (described,) = as_json(cluster, "topics", "describe", topic)
    return [set(row["replicas"]) for row in described["partitions"]]


def test_a_healthy_cluster(cluster: EmbeddedCluster) -> None:
    described = as_json(cluster, "cluster", "describe")
    assert [row["node"] for row in described["quorum"]["voters"]] == [1, 2, 3]
    assert [(row["id"], row["fenced"]) for row in described["brokers"]] == [(node, False) for node in (1, 2, 3, 4)]
    assert described["partitions"]["problems"] == []
    assert as_json(cluster, "quorum", "status", "--check")["problems"] == []


def test_replicas_are_moved(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    rookery(cluster, "topics", "create", "moved", "--partitions", "4", "--replication-factor", "2")
    rookery(cluster, "produce", "moved", stdin="".join(f"{number}\n" for number in range(200)))
    plan = tmp_path / "plan.json"
    plan.write_text(rookery(cluster, "reassign", "plan", "-t", "moved", "--brokers", "1,4", "--json").stdout)
    before = tmp_path / "before.json"
    moved = rookery(cluster, "reassign", "execute", str(plan), "--rollback", str(before), "--wait")
    assert "all moves have ended" in moved.stdout
    assert replicas(cluster, "moved") == [{1, 4}] * 4
    assert rookery(cluster, "reassign", "verify", str(plan)).exit_code == 0
    rookery(cluster, "partitions", "elect", "--all")
    rookery(cluster, "reassign", "execute", str(before), "--wait")
    assert rookery(cluster, "reassign", "verify", str(before)).exit_code == 0
    consumed = rookery(
        cluster, "consume", "moved", "--from", "beginning", "--until-end", "--format", "%v\n"
    ).stdout.split()
    assert sorted(map(int, consumed)) == list(range(200))


def test_a_broker_dies_and_returns(cluster: EmbeddedCluster) -> None:
    rookery(cluster, "topics", "create", "watched", "--partitions", "3", "--replication-factor", "3")
    cluster.kill(3)
    await_true(lambda: as_json(cluster, "brokers", "describe", "3")["fenced"])
    described = as_json(cluster, "cluster", "describe")["partitions"]
    assert described["under_replicated"] > 0
    assert described["offline"] == 0
    shown = rookery(cluster, "topics", "describe", "watched", "--under-replicated").stdout
    assert "under-replicated" in shown
    failed = rookery(cluster, "quorum", "status", "--check", exit_code=1)
    assert "voter 3" in failed.stderr
    cluster.start(3)
    await_true(lambda: rookery(cluster, "quorum", "status", "--check", exit_code=None).exit_code == 0)
    await_true(lambda: as_json(cluster, "cluster", "describe")["partitions"]["problems"] == [])
    rookery(cluster, "partitions", "elect", "--all")


def test_a_broker_is_taken_away(cluster: EmbeddedCluster) -> None:
    rookery(cluster, "topics", "create", "left", "--partitions", "4", "--replication-factor", "2")
    rookery(cluster, "brokers", "drain", "4")
    assert all(4 not in nodes for nodes in replicas(cluster, "left"))
    assert "broker 4 is running" in rookery(cluster, "brokers", "unregister", "4", "--yes", exit_code=1).stderr
    cluster.stop(4)
    await_true(lambda: as_json(cluster, "brokers", "describe", "4")["fenced"])
    rookery(cluster, "brokers", "unregister", "4", "--yes")
    await_true(lambda: [row["id"] for row in as_json(cluster, "brokers", "list")] == [1, 2, 3])
    cluster.start(4)
    await_true(lambda: [row["fenced"] for row in as_json(cluster, "brokers", "list")] == [False] * 4)
