"""What Spark reports of micro-batches, as the figures that people watch. Pure.

A `BatchReport` is one of Spark's progress reports; `advance` folds it into the `Figures` of its flow. Rows are counted
by observations that `builder` puts into each query, since Spark counts a source once for every time that a query uses
it, and counts nothing for most sinks. A report's lag is that of its batch's end; while a batch runs long or a flow is
started again, the broker is asked (`lag`).
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


def observation_name(kind: str, source: str = "") -> str:
    return f"{kind}.{source}" if source else kind


@value_class(kw_only=True)
class BatchReport:
    """`ran` is whether a batch was run, and not only looked for."""

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
        """By partition; None if no source tells."""
        return partition_lags(gaps(self.ends, self.latest)) if self.latest else None


def gaps(ends: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, int]:
    """By how many offsets partitions are behind; those that are not are left out."""
    found = ((tp, latest[tp] - end) for tp, end in ends.items() if tp in latest)
    return {tp: gap for tp, gap in found if gap > 0}


def partition_lags(behind: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The form in which figures are written to files and shown."""
    return {str(partition): gap for partition, gap in behind.items()}


def read_report(text: str) -> BatchReport:
    """From the JSON of a StreamingQueryProgress."""
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
        # A query's very first batch is empty and ends where it begins: how far topics reach is not looked at before.
        latest=_offsets((each for each in sources if each.get("startOffset") is not None), "latestOffset"),
    )


def _observed(observed: Mapping[str, Mapping[str, Any]], kind: str) -> int | None:
    """The sum over all sources; None if nothing was observed."""
    counts = [row.get(COUNT) or 0 for name, row in observed.items() if name.partition(".")[0] == kind]
    return sum(counts) if counts else None


def _rate(sources: Iterable[Mapping[str, Any]]) -> float:
    """How quickly rows came since the last trigger; of a first batch, how quickly they were worked off."""
    total = 0.0
    for source in sources:
        rates = [_number(source.get(name)) for name in ("inputRowsPerSecond", "processedRowsPerSecond")]
        total += rates[0] or rates[1]
    return total


def _number(value: object) -> float:
    """Spark leaves out, or writes as texts, rates that are no numbers."""
    return value if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _offsets(sources: Iterable[Mapping[str, Any]], name: str) -> dict[TopicPartition, Offset]:
    """Of those sources that count offsets in partitions of topics."""
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


@value_class(kw_only=True)
class Figures:
    """What people watch of one flow. Totals count from the pipeline's start; None is unknown.

    `lags` has the records that are not processed yet, by `topic-partition`, without those where there are none.
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
    def is_over(self) -> bool:
        """It has totals, and no rates any more."""
        return self.state in ("finished", "failed", "stopped", "killed")

    @property
    def lag_records(self) -> int | None:
        return None if self.lags is None else sum(self.lags.values())


def records_behind(lags: Iterable[Mapping[str, int] | None]) -> int | None:
    """The records that one flow or another has not processed yet, each counted once; None if no flow knows.

    Flows that read the same partition stand at different offsets of it. What the slowest has before it includes what
    the others have before them, so that of each partition the largest lag counts, and the lags are not added.
    """
    known = [each for each in lags if each is not None]
    most: dict[str, int] = {}
    for each in known:
        for partition, gap in each.items():
            most[partition] = max(gap, most.get(partition, 0))
    return sum(most.values()) if known else None


def advance(figures: Figures, report: BatchReport) -> Figures:
    """A report that was counted already changes nothing but lag and rates."""
    lags = report.lags
    if lags is not None:
        # How old new records are, the broker is asked a moment later.
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
    """In proportion to what came in; a batch without input only empties its state."""
    if report.rows_in and report.rows_in_per_s:
        return report.rows_in_per_s * report.rows_out / report.rows_in
    return report.rows_out * _MS_PER_S / max(report.batch_ms, 1)
