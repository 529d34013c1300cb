"""Apache Kafka's group tools: console consumer, kafka-consumer-groups, and the verifiable clients."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.java_tools import run_tool, tool_command
from tests.conformance.members import ConfluentMember, fill, running
from tests.support.broker import start_broker
from tests.support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def groups(bootstrap: str, *arguments: str) -> str:
    """Run kafka-consumer-groups; its exit code is 0 even if the broker has returned an error."""
    return run_tool("consumer-groups", "--bootstrap-server", bootstrap, *arguments)


def consume(bootstrap: str, topic: str, count: int, *arguments: str) -> list[str]:
    output = run_tool(
        "console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", topic, "--max-messages", str(count)),
        *("--timeout-ms", "30000", *arguments),
    )
    assert f"Processed a total of {count} messages" in output
    return output.splitlines()[:count]


def rows(table: str, group_id: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line.startswith(group_id)]


def test_console_consumer_continues_at_its_offsets(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=1, count=10)
    assert consume(bootstrap, topic, 4, "--from-beginning") == ["0", "1", "2", "3"]
    assert consume(bootstrap, topic, 6) == ["4", "5", "6", "7", "8", "9"]


@pytest.mark.parametrize("strategy", ["Range", "RoundRobin", "Sticky", "CooperativeSticky"])
def test_console_consumer_with_each_assignor(bootstrap: str, topic: str, strategy: str) -> None:
    fill(bootstrap, topic, partitions=3, count=5)
    assignor = f"org.apache.kafka.clients.consumer.{strategy}Assignor"
    setting = ("--consumer-property", f"partition.assignment.strategy={assignor}")
    assert len(consume(bootstrap, topic, 15, "--from-beginning", *setting)) == 15


def test_consumer_groups(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=2, count=10)
    member = ConfluentMember(bootstrap, topic, [topic], instance_id="one")
    with running(member):
        eventually(lambda: len(member.records) == 20, "all was read")
        assert topic in groups(bootstrap, "--list").split()
        listed = groups(bootstrap, "--list", "--state", "stable", "--type", "classic")
        assert topic in listed
        offsets = rows(groups(bootstrap, "--describe", "--group", topic), topic)
        assert [row[1:6] for row in offsets] == [[topic, "0", "10", "10", "0"], [topic, "1", "10", "10", "0"]]
        state = groups(bootstrap, "--describe", "--group", topic, "--state")
        assert re.search(rf"{topic}\s+\S+\s+\(1\)\s+range\s+Stable\s+1", state)
        members = groups(bootstrap, "--describe", "--group", topic, "--members", "--verbose")
        assert f"{topic}:0,1" in members
        assert "The group is not empty" in groups(bootstrap, "--delete", "--group", topic)
        refused = groups(bootstrap, "--delete-offsets", "--group", topic, "--topic", topic)
        assert "subscribed" in refused
    eventually(lambda: "has no active members" in groups(bootstrap, "--describe", "--group", topic), "it is empty")
    assert topic in groups(bootstrap, "--list", "--state", "Empty")


def test_reset_offsets(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=2, count=10)
    consume(bootstrap, topic, 20, "--from-beginning")

    def reset(*how: str) -> list[str]:
        arguments = ("--reset-offsets", "--group", topic, "--topic", topic, "--execute", *how)
        table = rows(groups(bootstrap, *arguments), topic)
        return [row[-1] for row in sorted(table)]

    assert reset("--to-earliest") == ["0", "0"]
    assert reset("--to-offset", "7") == ["7", "7"]
    assert reset("--shift-by", "-2") == ["5", "5"]
    assert reset("--to-latest") == ["10", "10"]
    assert reset("--to-datetime", "2000-01-01T00:00:00.000") == ["0", "0"]
    groups(bootstrap, "--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    described = rows(groups(bootstrap, "--describe", "--group", topic), topic)
    assert [row[2] for row in described] == ["1"]
    assert "successful" in groups(bootstrap, "--delete", "--group", topic)
    assert topic not in groups(bootstrap, "--list").split()
    assert "GroupIdNotFoundException" in groups(bootstrap, "--describe", "--group", topic)


def test_consumer_perf(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=2, count=5000)
    output = run_tool(
        "consumer-perf-test",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "10000", "--timeout", "30000"),
    )
    figures = output.splitlines()[1].split(",")
    assert int(figures[4]) >= 10000


@contextmanager
def tool(name: str, *arguments: str) -> Iterator["Events"]:
    process = subprocess.Popen(
        tool_command(name, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield Events(process)
    finally:
        process.kill()
        process.wait()


class Events:
    """The events of a verifiable client, one JSON object per line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def until(self, name: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                event: dict[str, Any] = json.loads(line)
                if event["name"] == name:
                    return event
        raise AssertionError(f"ended without {name}")


def test_verifiable_clients(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, partitions=2, count=0)
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    consumer = ("--group-id", topic, "--max-messages", "1000", "--session-timeout", "6000")
    with tool("verifiable-consumer", *server, *consumer, "--reset-policy", "earliest") as first:
        assigned = first.until("partitions_assigned")
        assert len(assigned["partitions"]) == 2
        # A member of another library joins and leaves: Java releases partitions, and gets them back.
        other = ConfluentMember(bootstrap, topic, [topic], commits=False)
        with running(other):
            eventually(lambda: len(other.partitions) == 1, "they share")
            assert first.until("partitions_revoked")["partitions"]
            assert len(first.until("partitions_assigned")["partitions"]) == 1
        assert len(first.until("partitions_assigned")["partitions"]) == 2
        run_tool("verifiable-producer", *server, "--max-messages", "1000")
        consumed = 0
        while consumed < 1000:
            consumed += int(first.until("records_consumed")["count"])
        assert first.until("offsets_committed")["success"] is True
    assert consumed == 1000


def test_the_offsets_topic_is_kafkas(tmp_path: Path) -> None:
    """Kafka's tool decodes the records of `__consumer_offsets`."""
    with start_broker(tmp_path / "data", "offsets.topic.num.partitions=1") as broker:
        fill(broker.address, "t", partitions=1, count=5)
        member = ConfluentMember(broker.address, "g", ["t"])
        with running(member):
            eventually(lambda: len(member.records) == 5, "all was read")
        groups(broker.address, "--list")
    log = tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
    dump = run_tool("dump-log", "--files", str(log), "--offsets-decoder", "--print-data-log")
    assert '"group":"g"' in dump
    assert '"topic":"t","partition":0' in dump
    assert '"offset":5' in dump
    assert '"protocolType":"consumer"' in dump
    assert '"protocol":"range"' in dump
