"""Serves a running pipeline's figures to Prometheus (`rookery pipelines run --metrics-port`); see docs/pipelines.md."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rookery.pipelines.progress import Figures

_PREFIX: Final = "rookery_pipeline_"
_LABELS: Final = ("pipeline", "flow")
_MS_PER_S: Final = 1000
# Name without the prefix, help text, and the figure.
COUNTERS: Final[Sequence[tuple[str, str, Callable[[Figures], float]]]] = (
    ("rows_in", "Rows read from sources", lambda figures: figures.rows_in),
    ("rows_out", "Rows written to the sink", lambda figures: figures.rows_out),
    ("dead_letters", "Records written to dead-letter topics", lambda figures: figures.dead_letters),
    ("batches", "Micro-batches finished", lambda figures: figures.batches),
    ("restarts", "Starts after a failure", lambda figures: figures.restarts),
)
GAUGES: Final[Sequence[tuple[str, str, Callable[[Figures], float | None]]]] = (
    ("up", "1 while the flow's query runs", lambda figures: float(figures.state == "running")),
    ("rows_in_per_second", "Rows read per second, of the last batch", lambda figures: figures.rows_in_per_s),
    ("rows_out_per_second", "Rows written per second, of the last batch", lambda figures: figures.rows_out_per_s),
    ("batch_duration_seconds", "Time of the last micro-batch", lambda figures: figures.batch_ms / _MS_PER_S),
    ("lag_records", "Records that are not processed yet", lambda figures: figures.lag_records),
    ("lag_seconds", "Age of the first record that is not processed yet", lambda figures: figures.lag_s),
)


class FiguresCollector(Collector):
    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._figures: Sequence[Figures] = ()

    def update(self, figures: Sequence[Figures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        for name, text, figure in COUNTERS:
            counter = CounterMetricFamily(_PREFIX + name, text, labels=_LABELS)
            for each in self._figures:
                counter.add_metric([self._pipeline, each.flow], figure(each))
            yield counter
        for name, text, reading in GAUGES:
            gauge = GaugeMetricFamily(_PREFIX + name, text, labels=_LABELS)
            for each in self._figures:
                value = reading(each)
                if value is not None:
                    gauge.add_metric([self._pipeline, each.flow], value)
            yield gauge


@contextmanager
def serve_metrics(collector: FiguresCollector, host: str, port: int) -> Iterator[int]:
    """Serve `/metrics` and yield the port; for port 0 the operating system chooses one."""
    registry = CollectorRegistry()
    registry.register(collector)
    server, thread = start_http_server(port, host, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
