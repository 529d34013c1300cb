"""Checks that the harness finds bugs: each test plants a plausible bug and plays the schedule that reveals it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest

from rookery.client.prepared import PreparedTransaction
from rookery.spark.sink import committer, ledger, names, task_writer
from rookery.spark.sink.commit_protocol import AbortPlan, Decide, Entry, Piece, Plan
from rookery.spark.sink.committer import Committer
from rookery.spark.sink.ledger_records import decode_entry
from rookery.spark.sink.task_writer import TaskIdentity, TaskIds
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.sink.sink_harness import Incident, Kind, Play, Script


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[EmbeddedBroker]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Committer, "concurrent_requests", 1)


def is_caught(broker: EmbeddedBroker, script: Script) -> bool:
    """Whether the output is wrong, or the query never ends."""
    made = Play(broker, script)
    try:
        made.run()
    except Exception:
        return True
    return made.found() != made.expected()


def test_an_abort_that_undoes_what_is_decided(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(
        entry: Entry | None,
        batch: int,
        fresh: Iterable[PreparedTransaction],
        open_ones: Iterable[PreparedTransaction] | None,
    ) -> AbortPlan:
        return AbortPlan(entry=None, to_abort=frozenset(fresh), decided=())

    monkeypatch.setattr(committer, "plan_abort", plan)
    script = Script([Incident(Kind.FAIL, "ended")], task_counts=(3, 2))
    assert is_caught(plain_broker, script)
    monkeypatch.undo()
    assert not is_caught(plain_broker, script)


def test_transactional_ids_that_attempts_share(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def take(_: TaskIds, identity: TaskIdentity) -> str:
        return names.task_id(identity.sink, "0" * names.PROCESS_NAME_LENGTH, identity.partition)

    monkeypatch.setattr(TaskIds, "take", take)
    assert is_caught(plain_broker, Script(speculative=frozenset({(1, 0), (1, 1), (1, 2)})))


def test_drivers_that_do_not_fence_each_other(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie writes the entry of batch 1 after batch 2 was decided; the replay of batch 2 then finds no decision."""
    numbers = count()
    script = Script(
        [
            Incident(Kind.ZOMBIE, "checked", batch=1),
            Incident(Kind.WAKE, "committed", batch=2),
            Incident(Kind.KILL, "committed", batch=2),
        ]
    )
    monkeypatch.setattr(ledger, "decisions_id", lambda sink: f"{sink}-{next(numbers)}")
    monkeypatch.setattr(Committer, "_open_transactions", _nothing_open)
    assert is_caught(plain_broker, script)
    monkeypatch.undo()
    monkeypatch.setattr(Committer, "_open_transactions", _nothing_open)
    assert not is_caught(plain_broker, script)


async def _nothing_open(_: Committer, batch: int, known: object = ()) -> list[object]:
    return []


def test_a_replay_that_ignores_the_ledger(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(entry: Entry | None, batch: int, fresh: Sequence[Piece], *, is_streaming: bool) -> Plan:
        return Decide(Entry(batch=batch, pieces=tuple(fresh)), tuple(fresh))

    monkeypatch.setattr(committer, "plan_commit", plan)
    assert is_caught(plain_broker, Script([Incident(Kind.KILL, "committed")]))


def test_ends_without_a_decision(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(self: Committer, batch: int, fresh: Sequence[Piece]) -> None:
        await self._end_all(Entry(batch=batch, pieces=tuple(fresh)))

    monkeypatch.setattr(Committer, "_commit", commit)
    assert is_caught(plain_broker, Script([Incident(Kind.KILL, "ended", occurrence=2)]))


def test_a_repetition_by_the_other_protocol(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(sink: str, value: bytes) -> Entry:
        entry = decode_entry(sink, value)
        turned = (replace(each, transaction=replace(each.transaction, is_v2=False)) for each in entry.pieces or ())
        return replace(entry, pieces=tuple(turned))

    monkeypatch.setattr(ledger, "decode_entry", decode)
    assert is_caught(plain_broker, Script([Incident(Kind.KILL, "ended", occurrence=3)]))


def test_an_id_that_is_reused_too_soon(plain_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: TaskIds, identity: TaskIdentity) -> str:
        return names.task_id(identity.sink, self._process, identity.partition)

    monkeypatch.setattr(task_writer.TaskIds, "take", take)
    script = Script([Incident(Kind.KILL, "ended", occurrence=2)], shares_workers=True, task_counts=(3, 2))
    assert is_caught(plain_broker, script)
