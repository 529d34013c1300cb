"""`rookery groups` and `rookery consume --group` against a running broker."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_end_to_end import command, rookery
from tests.support.broker import BrokerProcess, start_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    with start_broker(data, "offsets.topic.num.partitions=3") as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with the records 0 to 4 and 5 to 9."""
    name: str = request.node.originalname.removeprefix("test_")
    rookery(broker, "topics", "create", name, "--partitions", "2")
    rookery(broker, "produce", name, "--partition", "0", stdin="0\n1\n2\n3\n4\n")
    rookery(broker, "produce", name, "--partition", "1", stdin="5\n6\n7\n8\n9\n")
    return name


def read(broker: BrokerProcess, topic: str, group: str, *arguments: str) -> list[str]:
    return sorted(rookery(broker, "consume", topic, "--group", group, *arguments).stdout.split())


def described(broker: BrokerProcess, group: str) -> dict[str, Any]:
    (found,) = json.loads(rookery(broker, "groups", "describe", group, "--json").stdout)
    assert isinstance(found, dict)
    return found


def committed(broker: BrokerProcess, group: str) -> dict[int, int]:
    return {row["partition"]: row["committed_offset"] for row in described(broker, group)["offsets"]}


def joined(broker: BrokerProcess, topic: str, group: str) -> "subprocess.Popen[bytes]":
    """Start a member and wait until it has read its first record."""
    reader = command(broker, "consume", topic, "--group", group, "--from", "beginning")
    assert reader.stdout is not None
    assert reader.stdout.readline()
    return reader


def interrupt(reader: "subprocess.Popen[bytes]") -> bytes:
    """Send Ctrl-C and return the output since the last read."""
    reader.send_signal(signal.SIGINT)
    assert reader.stdout is not None
    # `communicate` would miss the bytes that `readline` has read ahead.
    output = reader.stdout.read()
    _, errors = reader.communicate(timeout=30)
    assert (reader.returncode, errors) == (0, b"")
    return output


def test_a_group_continues_where_it_stopped(broker: BrokerProcess, topic: str) -> None:
    first = read(broker, topic, "stops", "--from", "beginning", "--count", "3")
    assert len(first) == 3
    second = read(broker, topic, "stops", "--until-end")
    assert sorted(first + second) == [str(number) for number in range(10)]
    rookery(broker, "produce", topic, stdin="ten\n")
    assert read(broker, topic, "stops", "--until-end") == ["ten"]
    assert described(broker, "stops")["total_lag"] == 0


def test_from_applies_if_nothing_was_committed(broker: BrokerProcess, topic: str) -> None:
    assert read(broker, topic, "tail", "--from", "-1", "--until-end") == ["4", "9"]
    assert read(broker, topic, "end", "--until-end") == []
    assert committed(broker, "end") == {0: 5, 1: 5}


def test_ctrl_c_commits_and_leaves(broker: BrokerProcess, topic: str) -> None:
    reader = joined(broker, topic, "interrupted")
    rest = interrupt(reader)
    group = described(broker, "interrupted")
    assert (group["state"], group["members"]) == ("Empty", [])
    # The committed offsets cover exactly the printed records.
    assert 10 - group["total_lag"] == 1 + len(rest.split())


def test_list_filters_by_state_and_type(broker: BrokerProcess, topic: str) -> None:
    read(broker, topic, "listed", "--until-end", "--set", "group.protocol=consumer")
    read(broker, topic, "old-listed", "--until-end")
    found = json.loads(rookery(broker, "groups", "list", "--json").stdout)
    assert {"group": "listed", "protocol_type": "consumer", "state": "Empty", "type": "consumer"} in found
    assert "listed" in rookery(broker, "groups", "list", "--state", "empty", "--type", "consumer").stdout
    assert "listed" not in rookery(broker, "groups", "list", "--state", "preparing-rebalance").stdout
    classic = rookery(broker, "groups", "list", "--type", "classic").stdout.split()
    assert "old-listed" in classic
    assert "listed" not in classic
    assert "must be one of" in rookery(broker, "groups", "list", "--state", "tired", exit_code=2).stderr


def test_describe_shows_members_and_lag(broker: BrokerProcess, topic: str) -> None:
    read(broker, topic, "shown", "--from", "beginning", "--count", "10")
    rookery(broker, "groups", "reset-offsets", "shown", "-t", f"{topic}:1", "--shift-by", "-2", "--execute")
    group = described(broker, "shown")
    assert (group["type"], group["state"], group["total_lag"]) == ("classic", "Empty", 2)
    assert [(row["committed_offset"], row["end_offset"], row["lag"]) for row in group["offsets"]] == [
        (5, 5, 0),
        (3, 5, 2),
    ]
    reader = joined(broker, topic, "shown")
    (member,) = described(broker, "shown")["members"]
    assert member["assignment"] == {topic: [0, 1]}
    text = rookery(broker, "groups", "describe", "shown").stdout
    assert "ASSIGNMENT" in text
    assert "COMMITTED" in text
    assert f"{topic}:0,1" in rookery(broker, "groups", "describe", "shown", "--members").stdout
    assert "ASSIGNMENT" not in rookery(broker, "groups", "describe", "shown", "--offsets").stdout
    title = rookery(broker, "groups", "describe", "shown", "--state").stdout
    assert title.startswith("shown  (classic, Stable, 1 member, ")
    assert len(title.splitlines()) == 1
    interrupt(reader)
    assert "shown  (classic, Empty, 0 members" in rookery(broker, "groups", "describe").stdout


def test_a_reset_is_shown_and_executed(broker: BrokerProcess, topic: str) -> None:
    read(broker, topic, "reset", "--until-end")
    reset = ["groups", "reset-offsets", "reset"]
    shown = rookery(broker, *reset, "--topic", topic, "--to-earliest").stdout.split("\n")
    assert [line.split()[1:] for line in shown[1:3]] == [["0", "5", "0", "-5"], ["1", "5", "0", "-5"]]
    assert committed(broker, "reset") == {0: 5, 1: 5}
    rookery(broker, *reset, "--topic", topic, "--to-earliest", "--execute")
    assert committed(broker, "reset") == {0: 0, 1: 0}
    rookery(broker, *reset, "--all-topics", "--shift-by", "2", "--execute")
    rookery(broker, *reset, "--topic", f"{topic}:1", "--to-offset", "99", "--execute")
    assert committed(broker, "reset") == {0: 2, 1: 5}
    rookery(broker, *reset, "--topic", topic, "--to-timestamp", "2001-01-01T00:00Z", "--execute")
    assert committed(broker, "reset") == {0: 0, 1: 0}
    rookery(broker, *reset, "--all-topics", "--to-timestamp", "9999999999999", "--execute")
    assert committed(broker, "reset") == {0: 5, 1: 5}


def test_a_reset_by_file(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    reset = ["groups", "reset-offsets", "filed"]
    table = tmp_path / "offsets.csv"
    table.write_text(f"{topic},0,1\n{topic},1,2\n")
    plan = rookery(broker, *reset, "--from-file", str(table), "--json").stdout
    assert [row["new_offset"] for row in json.loads(plan)["offsets"]] == [1, 2]
    saved = tmp_path / "offsets.json"
    saved.write_text(plan)
    rookery(broker, *reset, "--from-file", str(saved), "--topic", f"{topic}:1", "--execute")
    assert committed(broker, "filed") == {1: 2}
    rookery(broker, *reset, "--from-file", str(saved), "--execute")
    assert committed(broker, "filed") == {0: 1, 1: 2}
    table.write_text("invalid\n")
    assert "line 1" in rookery(broker, *reset, "--from-file", str(table), exit_code=2).stderr


def test_invalid_resets_are_refused(broker: BrokerProcess, topic: str) -> None:
    reset = ["groups", "reset-offsets", "invalid"]
    both = rookery(broker, *reset, "-t", topic, "--to-earliest", "--to-latest", exit_code=2).stderr
    assert "exactly one of" in both
    rookery(broker, *reset, "-t", topic, exit_code=2)
    rookery(broker, *reset, "--to-latest", exit_code=2)
    rookery(broker, *reset, "-t", topic, "--all-topics", "--to-latest", exit_code=2)
    rookery(broker, *reset, "-t", f"{topic}:x", "--to-latest", exit_code=2)
    rookery(broker, *reset, "-t", topic, "--to-timestamp", "soon", exit_code=2)
    assert "and no partition 7" in rookery(broker, *reset, "-t", f"{topic}:7", "--to-latest", exit_code=1).stderr
    assert "no such topic" in rookery(broker, *reset, "-t", "missing", "--to-latest", exit_code=1).stderr
    uncommitted = rookery(broker, *reset, "--all-topics", "--to-latest", exit_code=1).stderr
    assert uncommitted == "error: group invalid has no committed offsets; name the topics with --topic\n"
    unshifted = rookery(broker, *reset, "-t", topic, "--shift-by", "1", exit_code=1).stderr
    assert "has no committed offset to shift" in unshifted


def test_a_group_with_members_is_not_changed(broker: BrokerProcess, topic: str) -> None:
    reader = joined(broker, topic, "busy")
    try:
        arguments = ["groups", "reset-offsets", "busy", "--topic", topic, "--to-earliest", "--execute"]
        refused = rookery(broker, *arguments, exit_code=1).stderr
        assert refused == "error: group busy has 1 active member (Stable): stop them before resetting its offsets\n"
        assert "NON_EMPTY_GROUP" in rookery(broker, "groups", "delete", "busy", "--yes", exit_code=1).stderr
    finally:
        interrupt(reader)
    assert rookery(broker, "groups", "delete", "busy", "--yes").stdout == "deleted busy\n"


def test_offsets_of_a_topic_can_be_deleted(broker: BrokerProcess, topic: str) -> None:
    read(broker, topic, "trimmed", "--until-end")
    deleted = rookery(broker, "groups", "delete-offsets", "trimmed", "--topic", f"{topic}:1", "--yes").stdout
    assert deleted == f"deleted the offset of {topic}-1\n"
    assert committed(broker, "trimmed") == {0: 5}
    rookery(broker, "groups", "delete-offsets", "trimmed", "--topic", "missing", "--yes", exit_code=1)
    rookery(broker, "groups", "delete-offsets", "trimmed", "--yes", exit_code=2)


def test_groups_that_do_not_exist(broker: BrokerProcess) -> None:
    for arguments in (["describe", "absent"], ["delete", "absent", "--yes"]):
        assert "there is no such group" in rookery(broker, "groups", *arguments, exit_code=1).stderr
    rookery(broker, "groups", "delete", "absent", "--yes", "--if-exists")
    assert "add --yes" in rookery(broker, "groups", "delete", "absent", exit_code=1).stderr


def test_a_group_cannot_be_combined_with_partitions(broker: BrokerProcess, topic: str) -> None:
    refused = rookery(broker, "consume", topic, "--group", "g", "--partition", "0", exit_code=2)
    assert "the group assigns" in refused.stderr
    rookery(broker, "consume", "missing", "--group", "g", exit_code=1)
