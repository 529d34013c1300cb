"""`rookery groups lag` against a running broker, and the exit codes."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.cli.lag_tables import exceeds, table_of
from rookery.cli.output import Styled
from rookery.lag import LagHistory, LagReport, Unread
from tests.cli.test_end_to_end import command, rookery
from tests.lag.factories import cluster, partition
from tests.support.broker import BrokerProcess, start_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    with start_broker(data, "offsets.topic.num.partitions=3") as running:
        rookery(running, "topics", "create", "orders", "--partitions", "2")
        rookery(running, "produce", "orders", "--partition", "0", stdin="0\n1\n2\n3\n4\n")
        rookery(running, "produce", "orders", "--partition", "1", stdin="5\n")
        rookery(running, "consume", "orders", "--group", "billing", "--from", "beginning", "--until-end")
        rookery(running, "groups", "reset-offsets", "slow", "--topic", "orders:0", "--to-offset", "2", "--execute")
        yield running


def lags(broker: BrokerProcess, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = rookery(broker, "groups", "lag", "--json", *arguments, exit_code=code)
    return {group["group"]: group for group in json.loads(done.stdout)["groups"]}


def test_all_groups_with_records_and_seconds(broker: BrokerProcess) -> None:
    found = lags(broker)
    assert (found["billing"]["lag"], found["billing"]["lag_seconds"], found["billing"]["state"]) == (0, 0.0, "fine")
    assert found["slow"]["lag"] == 3
    assert found["slow"]["lag_seconds"] > 0
    assert found["slow"]["state"] is None, "one look cannot know"
    (partition_of_slow,) = found["slow"]["partitions"]
    assert (partition_of_slow["committed_offset"], partition_of_slow["end_offset"]) == (2, 5)
    assert 0 < partition_of_slow["retention_deletes_in_seconds"] < 7 * 86_400


def test_a_table_of_groups_and_one_of_partitions(broker: BrokerProcess) -> None:
    header, row = rookery(broker, "groups", "lag", "billing").stdout.splitlines()
    assert header.split("  ")[0] == "GROUP"
    assert row.split() == ["billing", "1", "2", "0", "0", "0", "s", "-", "0", "s", "fine"]
    header, *rows = rookery(broker, "groups", "lag", "billing", "--partitions").stdout.splitlines()
    assert [row.split()[:5] for row in rows] == [
        ["billing", "orders", "0", "5", "5"],
        ["billing", "orders", "1", "1", "1"],
    ]


def test_a_group_that_stopped_is_stuck_and_the_command_fails(broker: BrokerProcess) -> None:
    found = lags(broker, "slow", "--for", "1", "--interval", "0.3", code=1)["slow"]
    assert (found["state"], found["burrow_status"], found["trend_per_second"]) == ("stuck", "STOP", 0.0)
    assert found["catches_up"] is False


def test_limits(broker: BrokerProcess) -> None:
    lags(broker, "slow", "--max-lag", "3")
    lags(broker, "slow", "--max-lag", "2", code=1)
    lags(broker, "slow", "--max-lag-seconds", "86400")
    lags(broker, "slow", "--max-lag-seconds", "0", code=1)


def test_a_mistyped_group(broker: BrokerProcess) -> None:
    failed = rookery(broker, "groups", "lag", "biling", exit_code=1)
    assert "did you mean billing?" in failed.stderr
    assert "GROUP_ID_NOT_FOUND" in failed.stderr


def test_watching_prints_a_line_for_each_look_until_it_is_interrupted(broker: BrokerProcess) -> None:
    watching = command(broker, "groups", "lag", "slow", "--watch", "--interval", "0.1", "--json")
    assert watching.stdout is not None
    for _ in range(2):
        assert json.loads(watching.stdout.readline())["groups"][0]["lag"] == 3
    watching.send_signal(signal.SIGINT)
    watching.stdout.read()
    _, errors = watching.communicate(timeout=30)
    assert (watching.returncode, errors) == (0, b"")


def test_watching_and_observing_exclude_each_other(broker: BrokerProcess) -> None:
    assert "not both" in rookery(broker, "groups", "lag", "--watch", "--for", "3", exit_code=2).stderr


NOW_MS = 1_700_000_000_000


def report(lag: int, age_s: int) -> LagReport:
    sample = cluster(NOW_MS, partition(0, lag, unread=Unread(0, NOW_MS - age_s * 1000)))
    return LagHistory(60_000).add(sample)


def test_the_lag_time_is_coloured_by_its_size() -> None:
    _, rows = table_of(report(10, 192), partitions=True)
    assert rows[0][6] == Styled("3 m 12 s", "bold red")
    _, rows = table_of(report(10, 12), partitions=False)
    assert rows[0][5] == Styled("12 s", "yellow")


def test_a_lag_time_that_is_not_known_is_above_any_limit() -> None:
    unknown = LagHistory(60_000).add(cluster(NOW_MS, partition(0, 10)))
    assert exceeds(unknown, lag_max=None, lag_s_max=10**9)
    assert not exceeds(unknown, lag_max=10, lag_s_max=None)


def test_a_group_that_cannot_be_read_fails_the_command() -> None:
    fine = report(10, 1)
    assert not exceeds(fine, lag_max=None, lag_s_max=None)
    (group,) = fine.groups
    group.group = type(group.group)(group_id="billing", error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert exceeds(fine, lag_max=None, lag_s_max=None)
    _, rows = table_of(fine, partitions=False)
    assert rows[0][-1] == Styled("GROUP_AUTHORIZATION_FAILED", "bold red")
