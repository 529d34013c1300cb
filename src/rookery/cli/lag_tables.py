"""The output of `rookery groups lag`: lags as tables and as JSON, and the exit code."""

import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rookery.base.errors import ErrorCode
from rookery.cli.durations import duration_text
from rookery.cli.output import Cell, Styled, live_table, print_json_line, print_table
from rookery.lag import GroupLag, LagReport, ObservedLag, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS_STYLES = {
    Status.OK: "green",
    Status.WARNING: "yellow",
    Status.REWIND: "yellow",
    Status.STALL: "bold red",
    Status.STOP: "bold red",
}
_SECONDS_HIGH = 60
_MEASURES = ("LAG", "LAG TIME", "TREND", "CAUGHT UP IN", "STATE")
_GROUP_COLUMNS = ("GROUP", "TOPICS", "PARTITIONS", "MEMBERS", *_MEASURES)
_PARTITION_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", *_MEASURES)


def table_of(report: LagReport, *, partitions: bool) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    """Return columns and rows: one row for each group, or for each partition."""
    if partitions:
        return _PARTITION_COLUMNS, [_partition_row(group, each) for group in report.groups for each in group.partitions]
    return _GROUP_COLUMNS, [_group_row(group) for group in report.groups]


def print_lags(report: LagReport, *, partitions: bool) -> None:
    print_table(*table_of(report, partitions=partitions))


@contextmanager
def shown_again(*, partitions: bool, as_json: bool) -> "Iterator[Callable[[LagReport], None]]":
    """Yield a function that shows a report: instead of the last one in a terminal, below it in a pipe.

    As JSON, each report is one line.
    """
    if as_json:
        yield lambda report: print_json_line(as_json_value(report))
        return
    with live_table() as show:
        yield lambda report: show(*table_of(report, partitions=partitions))


def as_json_value(report: LagReport) -> dict[str, Any]:
    return {"at_ms": report.at_ms, "groups": [_group_as_json(group) for group in report.groups]}


def exceeds(report: LagReport, *, lag_max: int | None, lag_s_max: float | None) -> bool:
    """Whether a group is stuck, cannot be read, or lags by more than the limits.

    A lag in time that is not known counts as too large: a script that asks for a limit must not believe it is kept.
    """
    return any(
        group.error != ErrorCode.NONE
        or group.status in (Status.STALL, Status.STOP)
        or (lag_max is not None and (group.lag or 0) > lag_max)
        or (lag_s_max is not None and group.lag is not None and (group.lag_s is None or group.lag_s > lag_s_max))
        for group in report.groups
    )


def _group_row(group: GroupLag) -> Sequence[Cell]:
    topics = {each.partition.topic for each in group.partitions}
    return (group.group_id, len(topics), len(group.partitions), group.group.member_count, *_measures(group))


def _partition_row(group: GroupLag, each: ObservedLag) -> Sequence[Cell]:
    return (group.group_id, *each.partition, each.committed, each.end, *_measures(each))


def _measures(lag: GroupLag | ObservedLag) -> Sequence[Cell]:
    return (
        lag.lag,
        _seconds_cell(lag.lag_s),
        _trend_cell(lag.trend),
        None if lag.catch_up_s is None else duration_text(lag.catch_up_s),
        _state_cell(lag),
    )


def _seconds_cell(seconds: float | None) -> Cell:
    if seconds is None:
        return None
    style = "green" if seconds == 0 else "yellow" if seconds < _SECONDS_HIGH else "bold red"
    return Styled(duration_text(seconds), style)


def _trend_cell(trend: float | None) -> Cell:
    """Return records per second, with a sign: the lag grows or falls."""
    if trend is None:
        return None
    if abs(trend) < 0.05:
        return "0/s"
    return Styled(f"{trend:+,.1f}/s", "yellow" if trend > 0 else "green")


def _state_cell(lag: GroupLag | ObservedLag) -> Cell:
    if isinstance(lag, GroupLag) and lag.error != ErrorCode.NONE:
        return Styled(lag.error.name, "bold red")
    if lag.lag is None:
        return Styled("no commits", "dim")
    lost = f", {lag.lost:,} lost" if lag.lost else ""
    if lag.status is None:
        return Styled(lost.removeprefix(", "), "bold red") if lost else None
    return Styled(lag.status.word + lost, "bold red" if lost else _STATUS_STYLES[lag.status])


def _group_as_json(group: GroupLag) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group.group_type,
        "group_state": group.group.state,
        "members": group.group.member_count,
        "error": None if group.error == ErrorCode.NONE else group.error.name,
        **_measures_as_json(group),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed_offset": each.committed,
                "end_offset": each.end,
                **_measures_as_json(each),
            }
            for each in group.partitions
        ],
    }


def _measures_as_json(lag: GroupLag | ObservedLag) -> dict[str, Any]:
    catch_up_s = lag.catch_up_s
    return {
        "lag": lag.lag,
        "lag_seconds": lag.lag_s,
        "lost": lag.lost,
        "trend_per_second": lag.trend,
        "catches_up": None if catch_up_s is None else not math.isinf(catch_up_s),
        "caught_up_in_seconds": None if catch_up_s is None or math.isinf(catch_up_s) else catch_up_s,
        "retention_deletes_in_seconds": lag.expires_s,
        "state": None if lag.status is None else lag.status.word,
        "burrow_status": None if lag.status is None else lag.status.name,
    }
