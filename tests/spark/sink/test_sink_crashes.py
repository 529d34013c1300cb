"""The sink with a simulated Spark: drivers die, fail and resume at every step, and each row is written once."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rookery.base.codes import UpgradeType
from rookery.client.sync import Admin
from rookery.spark.sink.commit_protocol import SinkError, TornBatchError
from rookery.spark.sink.committer import Committer
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.sink.sink_harness import POINTS, Incident, Kind, Play, Script, play, random_script

SEEDS = range(1, 9)
MANY_SEEDS = range(100, 400)
_USUAL = Script(speculative=frozenset({(1, 1)}), lost_attempts=frozenset({(1, 2)}))
V2, CLASSIC = 2, 1
KILLED, FAILED, PAUSED = Kind.KILL, Kind.FAIL, Kind.ZOMBIE
# The cases of `make test`. The others, most points of the classic protocol and every other point of most kinds, run in
# `make conformance`.
QUICK = {
    *((V2, KILLED, point) for point in POINTS),
    *((V2, FAILED, point) for point in POINTS[1::2]),
    *((V2, PAUSED, point) for point in POINTS[::2]),
    *((V2, Kind.TIME_OUT, point) for point in POINTS[1::2]),
    *((CLASSIC, kind, POINTS[6]) for kind in (KILLED, FAILED, PAUSED, Kind.TIME_OUT)),
    (V2, Kind.RESTART, POINTS[3]),
}
CASES = [
    pytest.param(
        level,
        Incident(kind, point[0], occurrence=point[1]),
        marks=[] if (level, kind, point) in QUICK else [pytest.mark.long],
        id=f"{'v2' if level == V2 else 'classic'}-{kind.name.lower()}-{point[0].replace(' ', '_')}-{point[1]}",
    )
    for level in (V2, CLASSIC)
    for kind in (KILLED, FAILED, PAUSED, Kind.TIME_OUT, Kind.RESTART)
    for point in POINTS
]


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[int, EmbeddedBroker]]:
    """Brokers by their level of transaction.version."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    with EmbeddedBroker(settings=settings) as newer, EmbeddedBroker(settings=settings) as older:
        with Admin({"bootstrap.servers": older.bootstrap_servers}) as admin:
            admin.update_features({"transaction.version": CLASSIC}, UpgradeType.SAFE_DOWNGRADE)
        yield {V2: newer, CLASSIC: older}


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """End transactions one by one, so that a driver can die between two of them."""
    monkeypatch.setattr(Committer, "concurrent_requests", 1)


@pytest.mark.parametrize(("level", "incident"), CASES)
def test_each_step_of_a_commit(brokers: dict[int, EmbeddedBroker], level: int, incident: Incident) -> None:
    """The replay has another number of tasks, unless a time-out may have torn the batch."""
    counts = (3,) if incident.kind is Kind.TIME_OUT else (3, 2)
    made = play(brokers[level], replace(_USUAL, incidents=[incident], task_counts=counts))
    if incident.kind in (KILLED, FAILED, PAUSED):
        assert made.restarts == 2
    assert made.open_count() == 0


def test_a_torn_batch_is_an_error_if_the_replay_has_other_tasks(brokers: dict[int, EmbeddedBroker]) -> None:
    made = Play(brokers[V2], Script([Incident(Kind.TIME_OUT, "ended")], task_counts=(3, 2)))
    with pytest.raises(TornBatchError, match=r"task 1, 4 rows"):
        made.run()
    missing = {f"1/{row}" for row in range(12) if row % 3}
    assert set(made.found()) == {*made.rows_of(0), *made.rows_of(1)} - missing


@pytest.mark.parametrize("seed", SEEDS)
def test_random_schedules(brokers: dict[int, EmbeddedBroker], seed: int) -> None:
    check_random(brokers[CLASSIC if seed % 3 == 0 else V2], seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_many_random_schedules(brokers: dict[int, EmbeddedBroker], seed: int) -> None:
    check_random(brokers[CLASSIC if seed % 3 == 0 else V2], seed)


def check_random(broker: EmbeddedBroker, seed: int) -> None:
    """A batch that a time-out has torn may end in an error, but no row may be written twice."""
    script = random_script(seed)
    made = Play(broker, script)
    try:
        made.run()
    except TornBatchError:
        assert Kind.TIME_OUT in {incident.kind for incident in script.incidents}
        assert len(set(script.task_counts)) > 1
        assert max(made.found().values(), default=1) == 1
    else:
        assert made.found() == made.expected()


@pytest.mark.parametrize("shares_workers", [False, True])
def test_an_empty_batch_and_an_old_checkpoint(brokers: dict[int, EmbeddedBroker], shares_workers: bool) -> None:
    made = Play(brokers[V2], Script(empty_batches=frozenset({1}), shares_workers=shares_workers))
    made.run()
    expected = made.expected()
    made.finished = 0
    with pytest.raises(SinkError, match=r"batch 0: the ledger is at batch 2, so this checkpoint is an older copy"):
        made.run()
    assert made.found() == expected
    assert made.open_count() == 0
