"""How flows are started, watched, restarted and stopped, with fake queries."""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from rookery.base.clock import ManualClock
from rookery.base.types import TopicPartition
from rookery.pipelines import runner
from rookery.pipelines.builder import Flow
from rookery.pipelines.lag import LagLookup
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.progress import Figures
from rookery.pipelines.runner import Runner, stop_after_batch
from rookery.pipelines.sinks import must_run_twice
from rookery.pipelines.spec import FlowFailedError
from rookery.spark import compat

PIPELINE = parse_pipeline(
    "name: p\nrestarts: 2\nsources: {t: {generator: {}}}\nsinks: [{console: true, from: t}]", Path("p.yaml"), {}
)
TICK_MS = 20_000


class FakeQuery:
    """A query that follows a script; each step is a finished batch, an error, or the end."""

    def __init__(self, run_id: str, script: Sequence[str]) -> None:
        self._run_id = run_id
        self._script = list(script)
        self.progress: list[Any] = []
        self.isActive = True
        self._error: str | None = None
        self._is_java_gone = False
        self.was_stopped = False
        self.status = {"isTriggerActive": False}

    def step(self) -> None:
        word = self._script.pop(0) if self._script else "wait"
        if word == "batch":
            number = len(self.progress)
            report = {
                "runId": self._run_id,
                "batchId": number,
                "durationMs": {"addBatch": 1},
                "sources": [{"endOffset": {"t": {"0": 0}}}] if self._run_id.startswith("lagging") else [],
            }
            self.progress.append(SimpleNamespace(json=json.dumps(report), batchId=number))
        elif word == "the JVM is killed":
            self._is_java_gone = True
        elif word != "wait":
            self.isActive = False
            self._error = None if word == "end" else word

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        if self._is_java_gone:
            raise Py4JNetworkError("Answer from Java side is empty")
        return self.progress[-1] if self.progress else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's name
        return self.progress

    def exception(self) -> str | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False
        self.was_stopped = True


class Harness:
    """Runs flows by scripts, one for each start; the clock advances between two polls."""

    def __init__(self, scripts: dict[str, list[Sequence[str]]]) -> None:
        self._scripts = scripts
        self.queries: dict[str, list[FakeQuery]] = {name: [] for name in scripts}
        self.starts: list[str] = []
        self.clock = ManualClock()
        self.stop = Event()
        self.history: list[dict[str, Figures]] = []
        flows = [Flow(name, None, cast(Any, None), None) for name in scripts]
        self.oldest_ms: int | None = 0
        lags = cast(
            LagLookup,
            SimpleNamespace(oldest_ms=lambda positions, ends: self.oldest_ms, end_offsets=self._end_offsets),
        )
        self.runner = Runner(PIPELINE, flows, lags=lags, clock=self.clock, start=cast(Any, self._start))

    def _end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets that grow by one record per second."""
        return dict.fromkeys(partitions, self.clock.now_ms() // 1000)

    def _start(self, flow: Flow, pipeline: object) -> FakeQuery:
        queries = self.queries[flow.name]
        self.starts.append(flow.name)
        queries.append(FakeQuery(f"{flow.name}-{len(queries)}", self._scripts[flow.name][len(queries)]))
        return queries[-1]

    def run(self, until: Callable[[dict[str, Figures]], bool] = lambda figures: False) -> None:
        def on_figures(figures: Sequence[Figures]) -> None:
            self.history.append({each.flow: each for each in figures})
            self.clock.advance(TICK_MS)
            for queries in self.queries.values():
                if queries and queries[-1].isActive:
                    queries[-1].step()
            if until(self.history[-1]):
                self.stop.set()

        self.runner.run(self.stop, on_figures)

    @property
    def last(self) -> dict[str, Figures]:
        return self.history[-1]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_TICK_S", 0.0)


def test_flows_start_one_after_the_other_and_run_until_they_finish() -> None:
    harness = Harness({"one": [["batch", "batch", "end"]], "two": [["batch", "end"]]})
    harness.run()
    assert harness.starts == ["one", "two"]
    assert [(each.state, each.batches) for each in harness.last.values()] == [("finished", 2), ("finished", 1)]


def test_available_now_without_admission_control_runs_again_after_an_interrupted_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first query finishes only that batch, and ends."""
    unfinished = iter([True, False])
    monkeypatch.setattr(runner, "must_run_twice", lambda flow, pipeline: next(unfinished))
    harness = Harness({"one": [["batch", "end"], ["batch", "end"]]})
    harness.run()
    assert harness.starts == ["one", "one"]
    assert (harness.last["one"].state, harness.last["one"].batches, harness.last["one"].restarts) == ("finished", 2, 0)


@pytest.mark.parametrize(
    ("version", "trigger", "committed", "expected"),
    [
        ((4, 1), "available-now", False, True),
        ((4, 1), "available-now", True, False),
        ((4, 1), "continuous", False, False),
        ((4, 2), "available-now", False, False),
    ],
)
def test_which_flows_run_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int],
    trigger: str,
    committed: bool,
    expected: bool,
) -> None:
    monkeypatch.setattr(compat, "installed_version", lambda: compat.SparkVersion(*version))
    text = f"name: p\ncheckpoint: {tmp_path}\ntrigger: {trigger}\nsources: {{t: {{generator: {{}}}}}}\n"
    pipeline = parse_pipeline(f"{text}sinks: [{{console: true, from: t}}]", Path("p.yaml"), {})
    checkpoint = Path(pipeline.checkpoint_of("one"))
    for directory in ("offsets", "commits"):
        (checkpoint / directory).mkdir(parents=True)
    (checkpoint / "offsets" / "0").touch()
    if committed:
        (checkpoint / "commits" / "0").touch()
    flow = Flow("one", None, cast(Any, SimpleNamespace(sparkSession=None)), None)
    assert must_run_twice(flow, pipeline) is expected


def test_a_failed_flow_is_restarted_and_a_batch_resets_the_count_of_failures() -> None:
    failing: list[Sequence[str]] = [
        ["batch", "no broker"],
        ["batch", "no broker"],
        ["no broker"],
        ["batch", "no broker"],
        ["batch", "end"],
    ]
    harness = Harness({"one": failing})
    harness.run()
    assert (harness.last["one"].state, harness.last["one"].restarts, harness.last["one"].batches) == ("finished", 4, 4)
    assert any(figures["one"].error == "no broker" for figures in harness.history)


def test_a_flow_that_keeps_failing_ends_the_pipeline() -> None:
    harness = Harness({"one": [["no broker"], ["no broker"], ["no broker"]], "two": [["batch"]]})
    with pytest.raises(FlowFailedError, match="flow one failed: no broker"):
        harness.run()
    assert harness.starts.count("one") == 3
    assert harness.queries["two"][0].was_stopped
    assert {name: each.state for name, each in harness.last.items()} == {"one": "failed", "two": "stopped"}


def test_lasting_failures_are_not_retried() -> None:
    harness = Harness({"one": [["batch", "[CAST_INVALID_INPUT] The value is not a number. SQLSTATE: 22018"]]})
    with pytest.raises(FlowFailedError, match=r"The value is not a number\.$"):
        harness.run()
    assert harness.starts == ["one"]


def test_a_killed_jvm_is_reported_in_a_sentence() -> None:
    harness = Harness({"one": [["batch", "the JVM is killed"]]})
    with pytest.raises(FlowFailedError, match="JVM has exited"):
        harness.run()
    assert harness.starts == ["one"]


def test_the_lag_grows_in_a_long_batch_and_before_a_restart() -> None:
    harness = Harness({"lagging": [["batch", "wait", "wait", "no broker"], ["wait", "wait", "end"]]})
    harness.run()
    lags = [figures["lagging"].lag_records or 0 for figures in harness.history]
    assert len(set(lags)) >= 5, "it grows with each lookup"
    assert lags == sorted(lags)
    assert harness.last["lagging"].lag_s == harness.last["lagging"].lag_records


def test_an_unknown_age_is_not_shown() -> None:
    harness = Harness({"lagging": [["batch", "wait", "wait", "end"]]})

    def hide_age(figures: dict[str, Figures]) -> bool:
        if figures["lagging"].lag_s:
            harness.oldest_ms = None
        return False

    harness.run(until=hide_age)
    assert (harness.last["lagging"].lag_s, bool(harness.last["lagging"].lag_records)) == (None, True)


def test_a_stop_stops_all_flows() -> None:
    harness = Harness({"one": [["batch"]], "two": [["batch"]]})
    harness.run(until=lambda figures: all(each.batches for each in figures.values()))
    assert {each.state for each in harness.last.values()} == {"stopped"}
    assert all(queries[0].was_stopped for queries in harness.queries.values())


def test_a_stop_waits_for_the_running_batch() -> None:
    query = FakeQuery("x", [])
    polls = 0

    class Status(dict[str, bool]):
        def __getitem__(self, name: str) -> bool:
            nonlocal polls
            polls += 1
            if polls == 3:
                query._script = ["batch"]
                query.step()
            return True

    query.status = Status()
    stop_after_batch(cast(Any, query), ManualClock(), deadline_s=1.0)
    assert query.was_stopped
    assert polls == 3, "stopped when the batch was done"
