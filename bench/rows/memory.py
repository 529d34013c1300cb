"""Resident memory: of an idle broker, of one under load, and what 2,000 idle connections add."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping

from bench.load import Load, run_loads
from bench.model import MEGABYTE, Bench, Broker, Metric, Row
from bench.probe import Probe
from bench.topics import topic

_SETTLE_S = 4.0
_SAMPLE_INTERVAL_S = 0.05
_RECORD_BYTES = 1000
_RECORDS = 1_000_000
_PARTITIONS = 12
_CONNECTIONS = 2000
_CONNECTIONS_MIN = 100
_BESIDE_S = 3.0


def idle(bench: Bench) -> Mapping[str, float]:
    """Measure some seconds after the start."""
    with _started(bench) as broker:
        return {"memory.idle: RSS": broker.rss_bytes() / MEGABYTE}


def loaded(bench: Bench) -> Mapping[str, float]:
    """Measure while 1 GB is produced and consumed in batches: the highest value, and the value some seconds later."""
    with _started(bench) as broker, topic(broker, _PARTITIONS) as name:
        options = {
            "bootstrap": broker.bootstrap,
            "topic": name,
            "partitions": _PARTITIONS,
            "record_bytes": _RECORD_BYTES,
            "records": bench.scaled(_RECORDS, minimum=1000),
            "settings": {},
        }
        with _Sampler(broker) as sampler:
            for action in ("produce", "consume"):
                run_loads([Load("bench.librdkafka", action, options)], broker)
        _settle(bench)
        return {
            "memory.loaded: highest RSS": sampler.highest_bytes / MEGABYTE,
            "memory.loaded: RSS afterwards": broker.rss_bytes() / MEGABYTE,
        }


def idle_connections(bench: Bench) -> Mapping[str, float]:
    """Measure with connections that requested ApiVersions once and stay open, while another one sends requests."""
    count = bench.scaled(_CONNECTIONS, minimum=_CONNECTIONS_MIN)
    with _started(bench) as broker, contextlib.ExitStack() as connections:
        before_bytes = broker.rss_bytes()
        for _ in range(count):
            connections.enter_context(Probe(broker.port)).api_versions()
        _settle(bench)
        added_bytes = broker.rss_bytes() - before_bytes
        with Probe(broker.port) as probe:
            requests_per_second = _requests_per_second(probe, max(0.2, _BESIDE_S * min(1.0, bench.scale)))
        return {
            # A heap that was already large enough does not grow.
            "connections.idle: added for each": max(added_bytes, 1) / count / 1000,
            "connections.idle: requests/s beside them": requests_per_second,
        }


def _requests_per_second(probe: Probe, seconds: float) -> float:
    requests = 0
    started = time.perf_counter()
    while (elapsed_s := time.perf_counter() - started) < seconds:
        probe.metadata([])
        requests += 1
    return requests / elapsed_s


@contextlib.contextmanager
def _started(bench: Bench) -> Iterator[Broker]:
    broker = bench.system.start(bench.directory / "broker")
    try:
        _settle(bench)
        yield broker
    finally:
        broker.stop()


def _settle(bench: Bench) -> None:
    time.sleep(max(0.2, _SETTLE_S * min(1.0, bench.scale)))


class _Sampler:
    """Samples a broker's memory while the load runs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.highest_bytes = 0

    def __enter__(self) -> "_Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_INTERVAL_S):
            self.highest_bytes = max(self.highest_bytes, self._broker.rss_bytes())


ROWS = (
    Row(
        name="memory/idle",
        title="idle, after the start",
        family="Memory",
        metrics=(Metric(name="memory.idle: RSS", unit="MB", better="lower", goal="<= 70 MB, <= 0.25"),),
        run=idle,
        shared=False,
        warm_up=False,
    ),
    Row(
        name="memory/loaded",
        title="1 GB in and out, 12 partitions",
        family="Memory",
        metrics=(
            Metric(name="memory.loaded: highest RSS", unit="MB", better="lower"),
            Metric(name="memory.loaded: RSS afterwards", unit="MB", better="lower"),
        ),
        run=loaded,
        shared=False,
        warm_up=False,
    ),
    Row(
        name="connections/idle",
        title="2,000 idle connections",
        family="Connections",
        metrics=(
            Metric(name="connections.idle: added for each", unit="KB", better="lower"),
            Metric(name="connections.idle: requests/s beside them", unit="requests/s", better="higher"),
        ),
        run=idle_connections,
        shared=False,
        warm_up=False,
    ),
)
