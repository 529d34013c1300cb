from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from bench.model import FLOOR, PLAIN, WARM_UP_ROUND, Bench, Broker, Deployment, Metric, Row
from bench.results import RowResult
from bench.runner import COLD_WARM_UPS, Plan, Runner, select

METRIC = Metric(name="row: MB/s", unit="MB/s", better="higher")


class FakeBroker:
    bootstrap, port, pid = "127.0.0.1:1", 1, 1

    def __init__(self) -> None:
        self.running = True

    def address(self, protocol: str) -> str:
        return self.bootstrap

    def is_running(self) -> bool:
        return self.running

    def cpu_seconds(self) -> float:
        return 0.0

    def rss_bytes(self) -> int:
        return 0

    def stop(self) -> None:
        self.running = False

    def kill(self) -> None:
        self.running = False


class FakeSystem:
    def __init__(self, name: str) -> None:
        self.name = name
        self.brokers: list[FakeBroker] = []
        self.started: list[tuple[dict[str, str], tuple[str, ...]]] = []

    def prepare(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        pass

    def spawn(
        self, directory: Path, settings: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> Broker:
        self.started.append((dict(settings or {}), tuple(protocols)))
        self.brokers.append(FakeBroker())
        return self.brokers[-1]

    start = spawn


class Recorder:
    """A row's function that records its turns."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, int]] = []
        self.fails_on = ""

    def __call__(self, bench: Bench) -> Mapping[str, float]:
        self.turns.append((bench.contestant, bench.round))
        if bench.system.name == self.fails_on:
            raise RuntimeError("no luck")
        (bench.directory / "scratch").touch()
        return {METRIC.name: 1.0 + bench.round}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def systems() -> list[FakeSystem]:
    return [FakeSystem("rookery"), FakeSystem("kafka")]


def run(row: Row, systems: list[FakeSystem], directory: Path, rounds: int = 3) -> RowResult:
    plan = Plan(
        rows=[row], systems=systems, rounds=rounds, scale=1.0, warm_up=True, directory=directory, commit="abc1234"
    )
    (result,) = Runner(plan, Console(quiet=True)).run()
    return result


def make_row(
    recorder: Recorder, *, shared: bool = True, compared: bool = True, contestants: tuple[str, ...] = ()
) -> Row:
    return Row(
        name="row",
        title="row",
        family="Produce",
        metrics=(METRIC,),
        run=recorder,
        shared=shared,
        compared=compared,
        contestants=contestants,
    )


def test_the_systems_take_turns_after_warming_up(recorder: Recorder, systems: list[FakeSystem], tmp_path: Path) -> None:
    result = run(make_row(recorder), systems, tmp_path)
    warm_up = [(name, WARM_UP_ROUND) for name in ("kafka", "rookery") for _ in range(COLD_WARM_UPS)]
    assert recorder.turns[: 2 * COLD_WARM_UPS] == warm_up
    assert recorder.turns[2 * COLD_WARM_UPS :] == [
        ("rookery", 0),
        ("kafka", 0),
        ("kafka", 1),
        ("rookery", 1),
        ("rookery", 2),
        ("kafka", 2),
    ]
    assert result.values == {METRIC.name: {"rookery": [1.0, 2.0, 3.0], "kafka": [1.0, 2.0, 3.0]}}
    assert [len(system.brokers) for system in systems] == [1, 1]
    assert not any(broker.running for system in systems for broker in system.brokers)
    assert not list(tmp_path.rglob("scratch/*"))


def test_clients_take_turns_on_the_first_systems_broker(
    recorder: Recorder, systems: list[FakeSystem], tmp_path: Path
) -> None:
    result = run(make_row(recorder, contestants=("ours", "theirs")), systems, tmp_path, rounds=2)
    assert [name for name, number in recorder.turns if number >= 0] == ["ours", "theirs", "theirs", "ours"]
    assert result.values == {METRIC.name: {"ours": [1.0, 2.0], "theirs": [1.0, 2.0]}}


def test_brokers_run_only_for_the_rows_of_their_deployment(systems: list[FakeSystem], tmp_path: Path) -> None:
    prepared: list[Broker] = []
    secure = Deployment(
        name="secure", protocols=("SSL",), settings=lambda files: {"store": files.name}, prepare=prepared.append
    )
    used: list[tuple[str, list[str], list[bool]]] = []

    def note(name: str, bench: Bench) -> Mapping[str, float]:
        running = [broker.running for system in systems for broker in system.brokers]
        used.append((name, list(bench.shared_brokers), running))
        return {METRIC.name: 1.0}

    def new_row(name: str, *deployments: Deployment) -> Row:
        run = partial(note, name)
        return Row(name=name, title=name, family="Produce", metrics=(METRIC,), run=run, deployments=deployments)

    rows = [new_row("secure", secure), new_row("plain", PLAIN), new_row("both", PLAIN, secure)]
    plan = Plan(rows=rows, systems=systems[:1], rounds=1, scale=1.0, warm_up=False, directory=tmp_path, commit="a")
    assert not any(result.errors for result in Runner(plan, Console(quiet=True)).run())
    assert used == [
        ("plain", ["plain"], [True]),
        ("secure", ["secure"], [False, True]),
        ("both", ["plain", "secure"], [False, True, True]),
    ]
    plain: tuple[dict[str, str], tuple[str, ...]] = ({}, ())
    secured = ({"store": "files"}, ("SSL",))
    assert systems[0].started == [plain, secured, plain]
    assert prepared == [systems[0].brokers[1]]
    assert not any(broker.running for broker in systems[0].brokers)


def test_a_failure_is_recorded_and_the_other_system_continues(
    recorder: Recorder, systems: list[FakeSystem], tmp_path: Path
) -> None:
    recorder.fails_on = "kafka"
    result = run(make_row(recorder), systems, tmp_path)
    assert result.errors == {"kafka": "RuntimeError: no luck"}
    assert result.values == {METRIC.name: {"rookery": [1.0, 2.0, 3.0]}}
    assert [name for name, _ in recorder.turns].count("kafka") == 1


def test_rows_without_a_broker_start_none(recorder: Recorder, systems: list[FakeSystem], tmp_path: Path) -> None:
    result = run(make_row(recorder, shared=False, compared=False), systems, tmp_path, rounds=2)
    assert result.values == {METRIC.name: {FLOOR: [1.0, 2.0]}}
    assert [len(system.brokers) for system in systems] == [0, 0]


def test_patterns_select_rows(recorder: Recorder) -> None:
    rows = [
        Row(name=name, title=name, family="Produce", metrics=(), run=recorder)
        for name in ("produce/1KB/1p", "produce/100B/1p", "produce-raw/1MB", "startup")
    ]

    def names(patterns: str) -> list[str]:
        return [row.name for row in select(rows, patterns)]

    assert names("") == [row.name for row in rows]
    assert names("produce/*") == names("produce") == ["produce/1KB/1p", "produce/100B/1p"]
    assert names("startup, produce/1KB") == ["produce/1KB/1p", "startup"]
    with pytest.raises(ValueError, match="no row is named fly"):
        names("fly")
