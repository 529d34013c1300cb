"""Turns Spark's reports on micro-batches into the figures that the user sees. Pure.

A `BatchReport` is one of Spark's progress reports; `advance` folds it into the `Figures` of its flow. Rows are counted
by observations that `builder` adds to each query, since Spark counts a source once for every use in the query, and
counts nothing for most sinks. A report has the lag at the end of its batch; during a long batch, and while a flow waits
for its restart, `lag` asks the broker instead.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from rookery.base.types import Offset, TopicPartition
from rookery.base.values import value_class

FlowState: TypeAlias = Literal["starting", "running", "restarting", "finished", "failed", "stopped", "killed"]

ROWS_IN: Final = "rows_in"
ROWS_OUT: Final = "rows_out"
DEAD_LETTERS: Final = "dead_letters"
COUNT: Final = "count"
_MS_PER_S: Final = 1000
# Spark keeps its last 100 reports.
_REFUSED_BATCHES_MAX: Final = 1000


def observation_name(kind: str, source: str = "") -> str:
    return f"{kind}.{source}" if source else kind


@value_class(kw_only=True)
class BatchReport:
    """One progress report of Spark. `ran` is False if the trigger found no new data and ran no batch."""

    run_id: str
    batch_id: int
    ran: bool
    rows_in: int
    rows_out: int
    dead_letters: int
    rows_in_per_s: float
    batch_ms: int
    ends: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]

    @property
    def lags(self) -> dict[str, int] | None:
        """The lag by partition; None if no source reports its latest offsets."""
        return partition_lags(gaps(self.ends, self.latest)) if self.latest else None


def gaps(ends: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, int]:
    """Return the number of offsets between `ends` and `latest`, for the partitions where it is positive."""
    found = ((tp, latest[tp] - end) for tp, end in ends.items() if tp in latest)
    return {tp: gap for tp, gap in found if gap > 0}


def partition_lags(lags: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Return the lags by `topic-partition`, the form of the figures in files and in the display."""
    return {str(partition): lag for partition, lag in lags.items()}


def read_report(text: str) -> BatchReport:
    """Parse the JSON of a StreamingQueryProgress."""
    report: dict[str, Any] = json.loads(text)
    sources: list[dict[str, Any]] = report.get("sources", [])
    observed: dict[str, dict[str, Any]] = report.get("observedMetrics", {})
    durations: dict[str, int] = report.get("durationMs", {})
    counted_in = _observed(observed, ROWS_IN)
    return BatchReport(
        run_id=report["runId"],
        batch_id=report["batchId"],
        ran="addBatch" in durations,
        rows_in=sum(int(each.get("numInputRows") or 0) for each in sources) if counted_in is None else counted_in,
        rows_out=_observed(observed, ROWS_OUT) or 0,
        dead_letters=_observed(observed, DEAD_LETTERS) or 0,
        rows_in_per_s=_rate(sources),
        batch_ms=durations.get("triggerExecution", 0),
        ends=_offsets(sources, "endOffset"),
        # The very first batch of a query is empty and reports its start offset as the latest one: not the real end.
        latest=_offsets((each for each in sources if each.get("startOffset") is not None), "latestOffset"),
    )


def _observed(observed: Mapping[str, Mapping[str, Any]], kind: str) -> int | None:
    """Return the sum of the observations of a kind; None if there are none."""
    counts = [row.get(COUNT) or 0 for name, row in observed.items() if name.partition(".")[0] == kind]
    return sum(counts) if counts else None


def _rate(sources: Iterable[Mapping[str, Any]]) -> float:
    """Return the rate at which rows came since the last trigger; for a first batch, the rate of processing."""
    total = 0.0
    for source in sources:
        rates = [_number(source.get(name)) for name in ("inputRowsPerSecond", "processedRowsPerSecond")]
        total += rates[0] or rates[1]
    return total


def _number(value: object) -> float:
    """Return a rate, or 0 for NaN and infinity, which Spark omits or writes as strings."""
    return value if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _offsets(sources: Iterable[Mapping[str, Any]], name: str) -> dict[TopicPartition, Offset]:
    """Return the offsets of the sources whose offsets are by topic and partition."""
    found: dict[TopicPartition, Offset] = {}
    for source in sources:
        value = source.get(name)
        value = _parsed(value) if isinstance(value, str) else value
        for topic, partitions in value.items() if isinstance(value, dict) else ():
            if isinstance(partitions, dict):
                found |= {TopicPartition(topic, int(index)): offset for index, offset in partitions.items()}
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


class RefusedCounts:
    """How many rows of each batch of one flow the sink refused, and wrote as dead letters instead.

    The sink adds counts in Spark's thread while it writes a batch. Spark's later report of the batch counts these rows
    as written; `correct` subtracts them. Batch numbers continue over the restarts of a flow.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, batch_id: int, count: int) -> None:
        if count:
            self._counts[batch_id] = self._counts.get(batch_id, 0) + count
        if len(self._counts) > _REFUSED_BATCHES_MAX:
            del self._counts[min(self._counts)]

    def correct(self, report: BatchReport) -> BatchReport:
        """Return the report with the refused rows counted as dead letters, and not as rows written to the sink."""
        count = self._counts.get(report.batch_id, 0)
        return replace(report, rows_out=max(report.rows_out - count, 0), dead_letters=report.dead_letters + count)


@value_class(kw_only=True)
class Figures:
    """The figures of one flow that the user sees. Totals count from the pipeline's start; None means unknown.

    `lags` has the number of records that are not processed yet, by `topic-partition`, for partitions that have some.
    """

    flow: str
    state: FlowState = "starting"
    run_id: str = ""
    batch_id: int = -1
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    batch_ms: int = 0
    lags: Mapping[str, int] | None = None
    lag_s: float | None = None
    restarts: int = 0
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the flow has ended: it has totals, but no rates any more."""
        return self.state in ("finished", "failed", "stopped", "killed")

    @property
    def lag_records(self) -> int | None:
        return None if self.lags is None else sum(self.lags.values())


def records_behind(lags: Iterable[Mapping[str, int] | None]) -> int | None:
    """Return how many records at least one flow has not processed yet, each counted once; None if no lag is known.

    Flows that read the same partition are at different offsets of it. The records that the slowest one has not
    processed include those of the others: the largest lag of each partition counts, and lags of flows are not added.
    """
    known = [each for each in lags if each is not None]
    most: dict[str, int] = {}
    for each in known:
        for partition, gap in each.items():
            most[partition] = max(gap, most.get(partition, 0))
    return sum(most.values()) if known else None


def advance(figures: Figures, report: BatchReport) -> Figures:
    """Return `figures` with `report` added; a report that was counted already changes only lag and rates."""
    lags = report.lags
    if lags is not None:
        # The age of new records is unknown until the broker is asked, up to two seconds later.
        figures = replace(figures, lags=lags, lag_s=(figures.lag_s or None) if lags else 0.0)
    if not report.ran:
        return replace(figures, rows_in_per_s=0.0, rows_out_per_s=0.0)
    if report.run_id == figures.run_id and report.batch_id <= figures.batch_id:
        return figures
    return replace(
        figures,
        run_id=report.run_id,
        batch_id=report.batch_id,
        batches=figures.batches + 1,
        rows_in=figures.rows_in + report.rows_in,
        rows_out=figures.rows_out + report.rows_out,
        dead_letters=figures.dead_letters + report.dead_letters,
        rows_in_per_s=report.rows_in_per_s,
        rows_out_per_s=_rows_out_per_s(report),
        batch_ms=report.batch_ms,
    )


def _rows_out_per_s(report: BatchReport) -> float:
    """Return the rate of rows written, in proportion to the rate of rows read; for a batch that read nothing (and, for
    example, only closed windows), the rate within the batch.
    """
    if report.rows_in and report.rows_in_per_s:
        return report.rows_in_per_s * report.rows_out / report.rows_in
    return report.rows_out * _MS_PER_S / max(report.batch_ms, 1)
