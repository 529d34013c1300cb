"""The plans of the sink's driver, case by case."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from rookery.client.prepared import EndOutcome, PreparedTransaction
from rookery.spark.sink.commit_protocol import (
    AbortPlan,
    Decide,
    Done,
    Entry,
    Finish,
    Piece,
    Plan,
    SinkError,
    Skip,
    TornBatchError,
    is_unsettled,
    plan_abort,
    plan_after_ends,
    settled,
    still_abandoned,
)
from rookery.spark.sink.commit_protocol import plan_commit as plan_any_commit
from rookery.spark.sink.ledger_records import decode_entry, encode_entry
from rookery.spark.sink.names import task_id

DONE, LOST, FENCED, UNKNOWN = EndOutcome.DONE, EndOutcome.ENDED_OTHERWISE, EndOutcome.FENCED, EndOutcome.UNKNOWN


def piece(name: str, partition: int = 0, digest: str | None = None, row_count: int = 5) -> Piece:
    return Piece(partition, PreparedTransaction(name, 7, 3), row_count, digest or f"rows of {partition}")


OLD = (piece("old-0", 0), piece("old-1", 1))
NEW = (piece("new-0", 0), piece("new-1", 1))
DECIDED = Entry(batch=5, pieces=OLD)


def plan_commit(entry: Entry | None, batch: int, fresh: Sequence[Piece], *, is_streaming: bool = True) -> Plan:
    return plan_any_commit(entry, batch, fresh, is_streaming=is_streaming)


def outcomes(entry: Entry, *given: EndOutcome) -> dict[PreparedTransaction, EndOutcome]:
    return {each.transaction: outcome for each, outcome in zip(entry.pieces or (), given, strict=True)}


# The commit


@pytest.mark.parametrize("before", [None, Entry(batch=4, pieces=OLD, is_done=True), Entry(batch=4, pieces=OLD)])
def test_a_new_batch_is_decided(before: Entry | None) -> None:
    assert plan_commit(before, 5, NEW) == Decide(Entry(batch=5, pieces=NEW), NEW)


@pytest.mark.parametrize("before", [None, Entry(batch=4, pieces=OLD, is_done=True), Entry(batch=5)])
def test_an_empty_batch_is_not_recorded(before: Entry | None) -> None:
    assert plan_commit(before, 5, ()) == Skip()


def test_a_replay_continues_with_the_decision() -> None:
    assert plan_commit(DECIDED, 5, NEW) == Finish(DECIDED)
    assert plan_commit(DECIDED, 5, ()) == Finish(DECIDED)


@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_replay_of_a_done_batch_is_skipped_with_a_reason(is_streaming: bool) -> None:
    is_done = replace(DECIDED, is_done=True)
    plan = plan_commit(is_done, 5, NEW, is_streaming=is_streaming)
    assert plan == Skip("batch 5 is skipped: it was already written")
    plan = plan_commit(is_done, 5, NEW[:1], is_streaming=is_streaming)
    assert isinstance(plan, Skip)
    assert plan.reason is not None
    assert "already written, AND WITH OTHER ROWS: 10 then, 5 now" in plan.reason


def test_a_write_of_an_earlier_version_is_skipped_with_a_reason() -> None:
    plan = plan_commit(DECIDED, 4, NEW, is_streaming=False)
    assert plan == Skip("batch 4 is skipped as already written: the ledger is at batch 5")


def test_an_old_checkpoint_is_refused() -> None:
    with pytest.raises(SinkError, match=r"batch 3: the ledger is at batch 5.*Batches 3 to 4 .*newest checkpoint"):
        plan_commit(DECIDED, 3, NEW)


def test_abandoned_pieces_are_not_decided_and_others_are() -> None:
    before = Entry(batch=5, abandoned=frozenset({NEW[1].transaction}))
    with pytest.raises(SinkError, match="being aborted by another call"):
        plan_commit(before, 5, NEW)
    assert plan_commit(before, 5, OLD) == Decide(replace(before, pieces=OLD), OLD)
    with pytest.raises(SinkError, match=r"batch 6: .* being aborted by another call"):
        plan_commit(before, 6, NEW)
    assert plan_commit(before, 6, OLD) == Decide(replace(before, batch=6, pieces=OLD), OLD)


def test_an_abandoned_id_may_be_reused() -> None:
    later = tuple(replace(each, transaction=replace(each.transaction, producer_epoch=4)) for each in NEW)
    before = Entry(batch=5, abandoned=transactions(NEW))
    assert plan_commit(before, 6, later) == Decide(replace(before, batch=6, pieces=later), later)


# An earlier batch that is not finished


def test_only_decided_entries_of_an_earlier_batch_are_unsettled() -> None:
    assert is_unsettled(DECIDED, 6)
    for entry in (None, replace(DECIDED, batch=6), replace(DECIDED, is_done=True), Entry(batch=5)):
        assert not is_unsettled(entry, 6)


def test_an_earlier_batch_is_settled() -> None:
    assert settled(DECIDED, outcomes(DECIDED, DONE, DONE)) == replace(DECIDED, is_done=True)
    assert settled(DECIDED, outcomes(DECIDED, LOST, FENCED)) == replace(DECIDED, pieces=None)
    with pytest.raises(TornBatchError, match=r"batch 5, .* torn: .*old-1 of task 1 .* Write batch 5 once more"):
        settled(DECIDED, outcomes(DECIDED, DONE, FENCED))
    with pytest.raises(TornBatchError, match=r"has removed .*old-0 of task 0 .* another txnAppId"):
        settled(DECIDED, outcomes(DECIDED, UNKNOWN, DONE))


# After the ends


def test_all_committed() -> None:
    assert plan_after_ends(DECIDED, outcomes(DECIDED, DONE, DONE), OLD) == Done(replace(DECIDED, is_done=True))


def test_the_first_run_has_lost_its_transactions() -> None:
    with pytest.raises(SinkError, match=r"old-1 of task 1 was aborted before .* raise kafka.transaction.timeout.ms"):
        plan_after_ends(DECIDED, outcomes(DECIDED, DONE, FENCED), OLD)


@pytest.mark.parametrize("fresh", [NEW, NEW[:1], ()])
def test_if_all_pieces_are_lost_the_replay_is_decided(fresh: tuple[Piece, ...]) -> None:
    plan = plan_after_ends(DECIDED, outcomes(DECIDED, LOST, FENCED), fresh)
    assert plan == Decide(Entry(batch=5, pieces=fresh), fresh)


def test_a_lost_piece_is_replaced_by_one_with_the_same_rows() -> None:
    plan = plan_after_ends(DECIDED, outcomes(DECIDED, DONE, LOST), NEW)
    assert plan == Decide(Entry(batch=5, pieces=(OLD[0], NEW[1])), (NEW[1],))


def test_the_same_rows_may_come_from_another_partition_but_each_piece_is_used_once() -> None:
    entry = Entry(batch=5, pieces=(piece("a", 0), piece("b", 1, "same"), piece("c", 2, "same")))
    fresh = (piece("x", 2, "same"), piece("y", 7, "same"))
    plan = plan_after_ends(entry, outcomes(entry, DONE, LOST, LOST), fresh)
    assert isinstance(plan, Decide)
    assert {each.transaction.transactional_id for each in plan.unproven} == {"x", "y"}
    with pytest.raises(TornBatchError):
        plan_after_ends(entry, outcomes(entry, DONE, LOST, LOST), fresh[:1])


@pytest.mark.parametrize(
    "fresh",
    [(), (piece("new-1", 1, "other"),), (piece("new-1", 1, row_count=6),)],
    ids=["none", "other rows", "more rows"],
)
def test_a_torn_batch_says_what_is_missing(fresh: tuple[Piece, ...]) -> None:
    with pytest.raises(TornBatchError, match=r"batch 5 is torn.* task 1, 5 rows"):
        plan_after_ends(DECIDED, outcomes(DECIDED, DONE, LOST), fresh)


def test_an_id_that_the_broker_has_removed() -> None:
    with pytest.raises(TornBatchError, match=r"has removed .*old-0 of task 0 \(transactional.id.expiration.ms\)"):
        plan_after_ends(DECIDED, outcomes(DECIDED, UNKNOWN, DONE), NEW)


def test_an_abandoned_piece_replaces_no_lost_one() -> None:
    entry = replace(DECIDED, abandoned=frozenset({NEW[1].transaction}))
    with pytest.raises(SinkError):
        plan_after_ends(entry, outcomes(entry, DONE, LOST), NEW)


# The abort


def transactions(pieces: Sequence[Piece]) -> frozenset[PreparedTransaction]:
    return frozenset(each.transaction for each in pieces)


def test_an_abort_before_the_decision_is_recorded_first() -> None:
    to_abort = transactions(NEW)
    earlier = Entry(batch=4, pieces=OLD, is_done=True)
    for before, noted in ((None, Entry(batch=-1)), (Entry(batch=5), Entry(batch=5)), (earlier, earlier)):
        for finished, killed in ((NEW, ()), (NEW[:1], NEW[1:]), ((), NEW)):
            assert plan_abort(before, 5, transactions(finished), transactions(killed)) == AbortPlan(
                entry=replace(noted, abandoned=to_abort), to_abort=to_abort, decided=()
            )


def test_an_abort_does_not_undo_a_decision() -> None:
    nothing: frozenset[PreparedTransaction] = frozenset()
    old = transactions(OLD)
    assert plan_abort(DECIDED, 5, old, old) == AbortPlan(entry=None, to_abort=nothing, decided=OLD)
    is_done = replace(DECIDED, is_done=True)
    assert plan_abort(is_done, 5, old, ()) == AbortPlan(entry=None, to_abort=nothing, decided=())


def test_an_abort_of_a_replay_aborts_only_undecided_pieces() -> None:
    new = transactions(NEW)
    plan = plan_abort(DECIDED, 5, new, transactions(OLD))
    assert plan == AbortPlan(entry=replace(DECIDED, abandoned=new), to_abort=new, decided=OLD)


def test_an_abort_of_a_done_or_superseded_batch_aborts_only_the_callers_pieces() -> None:
    """No entry is written, so another driver could not see before its decision that its pieces are abandoned."""
    new, others = transactions(NEW[:1]), transactions(NEW[1:])
    assert plan_abort(replace(DECIDED, is_done=True), 5, new, others) == AbortPlan(entry=None, to_abort=new, decided=())
    assert plan_abort(DECIDED, 4, new, others) == AbortPlan(entry=None, to_abort=new, decided=())


def test_abandoned_transactions_are_kept_as_long_as_they_may_be_open() -> None:
    old, new = transactions(OLD), transactions(NEW)
    for before in (Entry(batch=4, abandoned=old), Entry(batch=5, abandoned=old)):
        for open_ones, left in ((None, old), ([OLD[0].transaction], transactions(OLD[:1])), ([], transactions(()))):
            noted = plan_abort(before, 5, new, open_ones).entry
            assert noted == replace(before, abandoned=new | left)
            assert still_abandoned(before, open_ones) == replace(before, abandoned=left)


# The ledger's records


@pytest.mark.parametrize(
    "entry",
    [
        DECIDED,
        replace(DECIDED, is_done=True),
        Entry(batch=0, pieces=()),
        Entry(batch=2**40, abandoned=frozenset(each.transaction for each in (*OLD, *NEW))),
        Entry(batch=1, pieces=tuple(piece(f"many-{number}", number) for number in range(1000))),
        replace(DECIDED, pieces=(Piece(0, PreparedTransaction("classic", 1, 2, is_v2=False), 0, ""),)),
    ],
)
def test_entries_are_read_as_they_were_written(entry: Entry) -> None:
    assert decode_entry("sink", encode_entry(entry)) == entry


def test_the_example_of_the_format_page() -> None:
    entry = Entry(batch=17, pieces=(Piece(0, PreparedTransaction("rookery-sink-q-4be1-0", 12, 5), 2, "value:1"),))
    assert encode_entry(entry) == (
        b'{"version":1,"batch":17,"state":"decided","pieces":[{"partition":0,"rows":2,"digest":"value:1",'
        b'"transactional_id":"rookery-sink-q-4be1-0","producer_id":12,"producer_epoch":5,"v2":true}],"abandoned":[]}'
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (zlib.compress(b"[]"), "cannot be read"),
        (b'{"version": 2}', "has version 2"),
        (b'{"version": 1, "batch": 1, "state": "decided"}', "cannot be read"),
    ],
)
def test_invalid_records_are_errors(value: bytes, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        decode_entry("sink", value)


def test_the_entry_for_many_tasks_fits_the_default_limit_of_brokers() -> None:
    randomness = Random(1)
    workers = [randomness.randbytes(8).hex() for _ in range(64)]
    pieces = []
    for number in range(10_000):
        name = task_id("6f1cbb52-8f5b-4c3e-9d43-2a0f5e0a7c11", workers[number % 64], number // 64)
        sums = ",".join(f"{column}:{randomness.randrange(2**32):08x}" for column in ("key", "key.length", "value"))
        transaction = PreparedTransaction(name, randomness.randrange(10**6), randomness.randrange(100))
        pieces.append(Piece(number, transaction, randomness.randrange(10**6), sums))
    assert len(encode_entry(Entry(batch=1, pieces=tuple(pieces)))) < 750_000
