"""The work of `rookery pipelines run` and `validate`: read the file, start Spark, check, run the flows, clean up."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Final

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import RookeryError
from rookery.base.values import value_class
from rookery.pipelines.display import figures_display
from rookery.pipelines.metrics import FiguresCollector, serve_metrics
from rookery.pipelines.parser import read_pipeline
from rookery.pipelines.progress import Figures
from rookery.pipelines.spec import AvailableNow, ConsoleSink, FlowFailedError, Pipeline
from rookery.pipelines.states import RunningPipeline, StateDirectory, default_directory
from rookery.spark.quiet_start import is_java_gone, logging_to
from rookery.spark.session import LOCAL_MASTER, SparkUnavailableError, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE_INTERVAL_S: Final = 1.0


@value_class(kw_only=True)
class RunOptions:
    master: str = LOCAL_MASTER
    settings: Mapping[str, str] = field(repr=False)
    metrics_host: str = "127.0.0.1"
    # None: metrics are not served; 0: the operating system chooses a free port.
    metrics_port: int | None = None
    # Process the available records, then end, whatever trigger the file has.
    available_now: bool = False


def validate(file: Path, options: RunOptions, *, offline: bool) -> Pipeline:
    """Check the pipeline in `file` and return it; `offline` skips the platform and Spark. Raises PipelineError."""
    pipeline = read_pipeline(file)
    if not offline:
        from rookery.pipelines.platform import check_platform

        check_platform(pipeline)
        # Importing PySpark takes seconds: import it only after the cheaper checks have passed.
        from rookery.pipelines.checks import check_pipeline

        log = _states().new_log(f"{pipeline.name}.validate")
        with spark_session(pipeline, options, log) as session:
            check_pipeline(session, pipeline)
    return pipeline


def _states() -> StateDirectory:
    return StateDirectory(default_directory(os.environ))


@contextmanager
def spark_session(pipeline: Pipeline, options: RunOptions, log: Path) -> "Iterator[SparkSession]":
    """Start a Spark session whose own log lines go to `log`; the terminal shows failures of queries in one sentence."""
    with logging_to(log):
        try:
            session = start_session(pipeline.name, master=options.master, settings=options.settings, log=log)
        except SparkUnavailableError as error:
            raise RookeryError(str(error)) from error
        try:
            yield session
        finally:
            _stop(session)


def _stop(session: "SparkSession") -> None:
    """Stop the session. If the JVM was killed, there is nothing to stop, and the runner has reported the failure."""
    try:
        session.stop()
    except Exception as error:
        if not is_java_gone(error):
            raise


def run(file: Path, options: RunOptions, *, say: Callable[[str], None]) -> None:
    """Run the pipeline in `file` until it ends, or until SIGTERM or Ctrl-C.

    `say` is called with each status line for the user. Raises PipelineError, FlowFailedError, AlreadyRunningError.
    """
    from rookery.pipelines.platform import check_platform

    pipeline = read_pipeline(file)
    if options.available_now:
        pipeline = replace(pipeline, trigger=AvailableNow())
    states = _states()
    clock = SystemClock()
    with states.running(pipeline.name) as write, ExitStack() as resources:
        collector = FiguresCollector(pipeline.name)
        address = None
        if options.metrics_port is not None:
            port = resources.enter_context(serve_metrics(collector, options.metrics_host, options.metrics_port))
            address = f"http://{options.metrics_host}:{port}/metrics"
        state_writer = _StateWriter(pipeline, options, address, write, clock)
        state_writer.update(())
        stop = resources.enter_context(stopping_on_signals())
        check_platform(pipeline)
        say(f"{pipeline.name}: starting Spark on {options.master}")
        log = states.new_log(pipeline.name)
        session = resources.enter_context(spark_session(pipeline, options, log))
        # Starting Spark replaces the handler of SIGINT: install ours again.
        resources.enter_context(stopping_on_signals(stop))
        try:
            _run_flows(session, pipeline, stop, (state_writer.update, collector.update), clock=clock, say=say)
        except FlowFailedError as error:
            raise FlowFailedError(f"{error}\nSpark's own log is {log}") from None


def _run_flows(
    session: "SparkSession",
    pipeline: Pipeline,
    stop: Event,
    listeners: Sequence[Callable[[Sequence[Figures]], None]],
    *,
    clock: Clock,
    say: Callable[[str], None],
) -> None:
    from rookery.pipelines.checkpoint_files import CheckpointFiles
    from rookery.pipelines.checks import check_pipeline
    from rookery.pipelines.lag import LagLookup
    from rookery.pipelines.pins import write_pins
    from rookery.pipelines.platform import create_topics
    from rookery.pipelines.runner import Runner

    flows = check_pipeline(session, pipeline)
    for topic in create_topics(pipeline):
        say(f"{pipeline.name}: created the topic {topic}")
    write_pins(pipeline, CheckpointFiles(session))
    # The rows of a console sink and a live table would overwrite each other.
    live = sys.stdout.isatty() and not any(isinstance(sink, ConsoleSink) for sink in pipeline.sinks)
    with (
        LagLookup(pipeline.platform, clock) as lags,
        figures_display(pipeline.name, live=live, now_s=clock.monotonic) as show,
    ):

        def on_figures(figures: Sequence[Figures]) -> None:
            for listener in (*listeners, show):
                listener(figures)

        Runner(pipeline, flows, lags=lags, clock=clock).run(stop, on_figures)


class _StateWriter:
    """Writes the pipeline's state to the state directory, at most once per second."""

    def __init__(
        self,
        pipeline: Pipeline,
        options: RunOptions,
        metrics_address: str | None,
        write: Callable[[RunningPipeline], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._write = write
        self._next_s = 0.0
        self._running = RunningPipeline(
            name=pipeline.name,
            pid=os.getpid(),
            file=str(pipeline.file.absolute()),
            started_ms=clock.now_ms(),
            master=options.master,
            metrics_address=metrics_address,
            updated_ms=clock.now_ms(),
            flows=(),
        )

    def update(self, figures: Sequence[Figures]) -> None:
        now_s = self._clock.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _STATE_INTERVAL_S
            self._write(replace(self._running, updated_ms=self._clock.now_ms(), flows=tuple(figures)))


@contextmanager
def stopping_on_signals(stop: Event | None = None) -> Iterator[Event]:
    """Set the event on SIGTERM and Ctrl-C, so that the code that waits for it can end cleanly."""
    event = stop or Event()

    def set_event(number: int, frame: FrameType | None) -> None:
        event.set()

    before = {number: signal.signal(number, set_event) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
