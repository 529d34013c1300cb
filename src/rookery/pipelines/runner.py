"""Runs the flows of a pipeline: starts them one by one, watches them, restarts them, and stops them cleanly.

One thread polls all flows in turn. Queries start one after the other, since each starts its own Python processes, and
many that start together are slow enough to miss the time-out of their connections. Spark's own `stop` cancels the
running batch, which the next run repeats; here a stop waits until the running batch is done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import Final, TypeAlias

from pyspark.sql.streaming.query import StreamingQuery

from rookery.base.clock import Clock
from rookery.base.types import Offset, TopicPartition
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.pipelines.builder import Flow
from rookery.pipelines.lag import LagLookup
from rookery.pipelines.progress import BatchReport, Figures, advance, gaps, partition_lags, read_report
from rookery.pipelines.query_failures import failure_of, restart_pause_s
from rookery.pipelines.sinks import must_run_twice, start_flow
from rookery.pipelines.spec import AvailableNow, FlowFailedError, Pipeline
from rookery.spark.compat import Feature, has
from rookery.spark.quiet_start import is_java_gone
from rookery.spark.source.group_offsets import GroupOffsets

_TICK_S: Final = 0.25
# The next query starts when the last one has run its first trigger, or after this time.
_STAGGER_S: Final = 3.0
_LAG_INTERVAL_S: Final = 2.0
_STOP_TIMEOUT_S: Final = 120.0
_STOP_POLL_S: Final = 0.02
_MS_PER_S: Final = 1000
_JAVA_GONE: Final = (
    "Spark's JVM has exited: it was killed, perhaps for lack of memory (--set spark.driver.memory=2g gives it more). "
    "No data is lost: start the pipeline again"
)

OnFigures: TypeAlias = Callable[[Sequence[Figures]], None]
Start: TypeAlias = Callable[[Flow, Pipeline], StreamingQuery]


class _FlowRun:
    """One flow and its current query."""

    def __init__(self, flow: Flow, pipeline: Pipeline, start: Start, clock: Clock) -> None:
        self._flow = flow
        self._start = start
        self._clock = clock
        self._pipeline = pipeline
        self._query: StreamingQuery | None = None
        self._failures = 0
        self._batches_at_start = 0
        self._must_run_again = False
        self.start_at_s = 0.0
        self.report: BatchReport | None = None
        self.figures = Figures(flow=flow.name)

    @property
    def is_waiting(self) -> bool:
        return self._query is None and self.figures.state in ("starting", "restarting")

    @property
    def has_ended(self) -> bool:
        return self.figures.state in ("finished", "failed", "stopped")

    @property
    def is_starting(self) -> bool:
        """Whether the query has started and has not run a trigger yet."""
        query = self._query
        return query is not None and self.figures.state == "starting" and query.lastProgress is None

    def start(self, now_s: float) -> None:
        self._batches_at_start = self.figures.batches
        try:
            self._must_run_again = must_run_twice(self._flow, self._pipeline)
            self._query = self._start(self._flow, self._pipeline)
        except Exception as error:
            # Not only PySparkException: errors that PySpark does not convert arrive as exceptions of Py4J.
            if is_java_gone(error):
                raise
            self._fail(error, now_s)

    def poll(self, now_s: float) -> None:
        """Update the figures from the query's reports; if it has ended, decide what follows."""
        query = self._query
        if query is None:
            return
        is_active = query.isActive
        self._take_progress(query)
        if is_active:
            return
        self._query = None
        error = query.exception()
        if error is None and self._must_run_again:
            self.start_at_s = now_s
            self.figures = replace(self.figures, state="starting")
        elif error is None:
            self.figures = replace(self.figures, state="finished", rows_in_per_s=0.0, rows_out_per_s=0.0)
        else:
            self._fail(error, now_s)

    def _take_progress(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None:
            return
        reports = [self._read(last.json)]
        if reports[0].run_id != self.figures.run_id or reports[0].batch_id > self.figures.batch_id + 1:
            reports = [self._read(each.json) for each in query.recentProgress]
        # Skip a report that was seen already: its lag is older than the one that was looked up at the broker since.
        for report in reports if reports[-1] != self.report else ():
            self.figures = advance(self.figures, report)
        self.report = reports[-1]
        self.figures = replace(self.figures, state="running", error=None)

    def _read(self, text: str) -> BatchReport:
        report = self._flow.refused.correct(read_report(text))
        if has(Feature.ADMISSION_CONTROL) or isinstance(self._pipeline.trigger, AvailableNow):
            return report
        # Without admission control, Spark reports the end of the micro-batch as the latest offset: a flow that limits
        # its batches would show no lag.
        return replace(report, latest={})

    def _fail(self, error: Exception, now_s: float) -> None:
        failure = failure_of(error)
        self._failures = 1 if self.figures.batches > self._batches_at_start else self._failures + 1
        pause_s = restart_pause_s(failure, self._failures, failures_max=self._pipeline.restarts_max)
        message = str(failure)
        if pause_s is None:
            self.figures = replace(self.figures, state="failed", error=message)
        else:
            self.start_at_s = now_s + pause_s
            self.figures = replace(self.figures, state="restarting", restarts=self.figures.restarts + 1, error=message)

    def stop(self, deadline_s: float) -> None:
        query, self._query = self._query, None
        if query is not None:
            stop_after_batch(query, self._clock, deadline_s)
            self._take_progress(query)
            self._commit_offsets()
        if not self.has_ended:
            self.figures = replace(self.figures, state="stopped", rows_in_per_s=0.0, rows_out_per_s=0.0)

    def _commit_offsets(self) -> None:
        """Commit the offsets of the last batch: the source commits a batch when it plans the next one, and after a stop
        there is no next one.
        """
        if self.report is not None and self.report.ends:
            config = {key: text for key, text in self._pipeline.platform.items() if key in CONSUMER_KEYS}
            group = GroupOffsets(config, self._pipeline.group_id(self._flow.name), clock=self._clock)
            group.commit(dict(self.report.ends))


def stop_after_batch(query: StreamingQuery, clock: Clock, deadline_s: float) -> None:
    """Stop the query when its running batch is done, or at the deadline.

    A batch that Spark has begun meanwhile is cancelled, and the next run repeats it.
    """
    before = _batch_id(query)
    while query.isActive and clock.monotonic() < deadline_s:
        if not query.status["isTriggerActive"] or _batch_id(query) != before:
            break
        Event().wait(_STOP_POLL_S)
    query.stop()


def _batch_id(query: StreamingQuery) -> int | None:
    last = query.lastProgress
    return None if last is None else last.batchId


class Runner:
    """Runs flows; calls `on_figures` about four times per second."""

    def __init__(
        self, pipeline: Pipeline, flows: Sequence[Flow], *, lags: LagLookup, clock: Clock, start: Start = start_flow
    ) -> None:
        self._runs = [_FlowRun(flow, pipeline, start, clock) for flow in flows]
        self._lags = lags
        self._clock = clock
        self._next_lag_s = 0.0
        self._started_at_s = 0.0

    def run(self, stop: Event, on_figures: OnFigures) -> None:
        """Run until all flows have finished, one has failed for good, or `stop` is set. Raises FlowFailedError."""
        try:
            self._run(stop, on_figures)
        except Exception as error:
            if is_java_gone(error):
                raise FlowFailedError(_JAVA_GONE) from error
            raise
        failed = [run.figures for run in self._runs if run.figures.state == "failed"]
        if failed:
            raise FlowFailedError("\n".join(f"flow {each.flow} failed: {each.error}" for each in failed))

    def _run(self, stop: Event, on_figures: OnFigures) -> None:
        try:
            while not stop.is_set() and not all(run.has_ended for run in self._runs):
                self._tick()
                on_figures(self.figures)
                if any(run.figures.state == "failed" for run in self._runs):
                    break
                stop.wait(_TICK_S)
        finally:
            deadline_s = self._clock.monotonic() + _STOP_TIMEOUT_S
            for run in self._runs:
                run.stop(deadline_s)
            on_figures(self.figures)

    @property
    def figures(self) -> list[Figures]:
        return [run.figures for run in self._runs]

    def _tick(self) -> None:
        now_s = self._clock.monotonic()
        for run in self._runs:
            run.poll(now_s)
        is_busy = any(run.is_starting for run in self._runs) and now_s < self._started_at_s + _STAGGER_S
        due = [run for run in self._runs if run.is_waiting and run.start_at_s <= now_s]
        if due and not is_busy:
            self._started_at_s = now_s
            due[0].start(now_s)
        if now_s >= self._next_lag_s:
            self._next_lag_s = now_s + _LAG_INTERVAL_S
            self._look_up_lags()

    def _look_up_lags(self) -> None:
        """Look up the lag of all flows that have not ended, including those that wait for a restart: theirs grows."""
        running = [(run, run.report.ends) for run in self._runs if run.report is not None and not run.has_ended]
        latest = self._lags.end_offsets({tp for _, ends in running for tp in ends})
        for run, ends in running:
            if ends and latest.keys() >= ends.keys():
                run.figures = self._with_lag(run.figures, ends, latest)

    def _with_lag(
        self, figures: Figures, ends: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]
    ) -> Figures:
        lags = gaps(ends, latest)
        if not lags:
            return replace(figures, lags={}, lag_s=0.0)
        oldest_ms = self._lags.oldest_ms({tp: ends[tp] for tp in lags}, latest)
        age_s = None if oldest_ms is None else max(0, self._clock.now_ms() - oldest_ms) / _MS_PER_S
        return replace(figures, lags=partition_lags(lags), lag_s=age_s)
