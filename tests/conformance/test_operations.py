"""The commands that operate a cluster, against Apache Kafka: they show what Kafka's own tools show."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rookery.base.errors import ApiError, ErrorCode
from rookery.cli.commands import app
from rookery.client.admin import Admin, EndpointType
from tests.conformance import brokers
from tests.conformance.java_tools import run_tool

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

KEYS = ("replicas", "in_sync_replicas", "eligible_leader_replicas")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with contextmanager(brokers.start)("kafka", tmp_path_factory.mktemp("kafka")) as bootstrap:
        rookery(bootstrap, "topics", "create", "orders", "--partitions", "3")
        yield bootstrap


def rookery(bootstrap: str, *arguments: str, exit_code: int = 0) -> str:
    result = CliRunner(env={"ROOKERY_BOOTSTRAP_SERVER": bootstrap}).invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    return result.output


def as_json(bootstrap: str, *arguments: str) -> Any:
    return json.loads(rookery(bootstrap, *arguments, "--json"))


def test_the_quorum(kafka: str) -> None:
    ours = as_json(kafka, "quorum", "status", "--check")
    theirs = dict(
        re.findall(
            r"^(\w+): +(.+)$",
            run_tool("metadata-quorum", "--bootstrap-server", kafka, "describe", "--status"),
            re.MULTILINE,
        )
    )
    assert ours["problems"] == []
    assert [ours["cluster_id"], ours["leader"], ours["leader_epoch"]] == [
        theirs["ClusterId"],
        int(theirs["LeaderId"]),
        int(theirs["LeaderEpoch"]),
    ]
    assert 0 < ours["high_watermark"] <= int(theirs["HighWatermark"])
    assert [
        {"id": row["node"], "directoryId": row["directory_id"], "endpoints": row["endpoints"]} for row in ours["voters"]
    ] == json.loads(theirs["CurrentVoters"])


def test_the_controllers_are_reached_directly(kafka: str) -> None:
    (voter,) = as_json(kafka, "quorum", "status")["voters"]
    controller = voter["endpoints"][0].removeprefix("CONTROLLER://")
    direct = as_json(kafka, "quorum", "status", "--bootstrap-controller", controller)
    assert direct["leader"] == voter["node"]

    async def work() -> None:
        async with Admin({"bootstrap.controllers": controller}) as admin:
            described = await admin.describe_cluster()
            assert (described.endpoint_type, described.controller_id) == (EndpointType.CONTROLLER, 1)
            assert {"metadata.version"} <= {feature.name for feature in (await admin.describe_features()).features}
        config = {"bootstrap.controllers": kafka, "request.timeout.ms": 5000, "default.api.timeout.ms": 5000}
        async with Admin(config) as admin:
            with pytest.raises(ApiError) as caught:
                await admin.describe_quorum()
            assert caught.value.code is ErrorCode.MISMATCHED_ENDPOINT_TYPE

    asyncio.run(work())


def test_voters_that_cannot_be_changed(kafka: str) -> None:
    assert "is a voter already" in rookery(kafka, "quorum", "add", "1", exit_code=1)
    assert "is the only voter" in rookery(kafka, "quorum", "remove", "1", exit_code=1)
    assert "does not follow the quorum" in rookery(kafka, "quorum", "add", "7", exit_code=1)


def test_the_cluster_and_its_broker(kafka: str) -> None:
    described = as_json(kafka, "cluster", "describe")
    assert [(row["id"], row["fenced"]) for row in described["brokers"]] == [(1, False)]
    assert (described["topics"], described["partitions"]["total"], described["partitions"]["problems"]) == (1, 3, [])
    broker = as_json(kafka, "brokers", "describe", "1")
    assert (broker["leaders"], broker["log_directories"][0]["partitions"]) == (3, 3)
    assert broker["only_in_sync_here"] == ["orders-0", "orders-1", "orders-2"]
    assert "has replicas of 3 partitions" in rookery(kafka, "brokers", "unregister", "1", "--yes", exit_code=1)
    unknown = rookery(kafka, "brokers", "unregister", "9", "--yes", "--force", exit_code=1)
    assert "BROKER_ID_NOT_REGISTERED" in unknown


def test_topics_and_elections(kafka: str) -> None:
    (topic,) = as_json(kafka, "topics", "describe", "orders")
    described = run_tool("topics", "--bootstrap-server", kafka, "--describe", "--topic", "orders")
    lines = re.findall(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\S+)\tIsr: (\S+)\tElr: (\S*)", described)
    assert [
        (str(row["partition"]), str(row["leader"]), *(",".join(map(str, row[key])) for key in KEYS))
        for row in topic["partitions"]
    ] == lines
    assert [row["elected"] for row in as_json(kafka, "partitions", "elect", "orders")] == [False] * 3
    assert as_json(kafka, "partitions", "elect", "--all") == []


def test_plans_of_both_tools(kafka: str, tmp_path: Path) -> None:
    path, wanted = tmp_path / "plan.json", tmp_path / "topics.json"
    wanted.write_text('{"version": 1, "topics": [{"topic": "orders"}]}')
    arguments = ("--bootstrap-server", kafka, "--generate", "--topics-to-move-json-file", str(wanted))
    generated = run_tool("reassign-partitions", *arguments, "--broker-list", "1")
    before, planned = re.findall(r"^\{.*\}$", generated, re.MULTILINE)
    for plan in (before, planned):
        path.write_text(plan)
        assert "3 of 3 partitions are as planned" in rookery(kafka, "reassign", "verify", str(path))
    path.write_text(rookery(kafka, "reassign", "plan", "--current"))
    verified = run_tool(
        *("reassign-partitions", "--bootstrap-server", kafka, "--verify", "--reassignment-json-file", str(path))
    )
    assert verified.count("is completed") == 3
    assert "started to move 3 partitions" in rookery(kafka, "reassign", "execute", str(path), "--wait")
    assert as_json(kafka, "reassign", "list") == []
    path.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 9]}]}')
    assert "includes broker 9" in rookery(kafka, "reassign", "execute", str(path), exit_code=1)
    assert "needs 2 brokers" in rookery(kafka, "reassign", "plan", "--replication-factor", "2", exit_code=1)
