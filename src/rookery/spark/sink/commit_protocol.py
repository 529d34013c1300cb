"""Plans the steps by which the sink's driver commits or aborts a batch. Pure: no socket, clock or thread.

Theory of operation. A task writes its rows in its own transaction and leaves it open; its message to the driver is a
`Piece`. The driver writes the list of a batch's pieces into the ledger (it *decides*), then commits each of them (it
*ends* them), then records in the ledger that the batch is *done*. A replay of the batch finds the decision and
continues from there. The ledger holds one `Entry` per sink, the last one, and only the newest driver can write it.

Exactly once follows from these invariants:

    1  A piece is committed only after an entry that lists it was written. The sink aborts a piece only if no entry
       will ever list it: its batch is done or superseded, or an entry lists it as abandoned.
    2  All entries of a sink are in one order: each is written by a producer that has taken over the sink's
       transactional id, which fences its predecessors, and that has read the entry before.
    3  A committed transaction stays committed, and an aborted one stays aborted. The result of EndTxn is therefore
       final, whichever driver requested it.

A broker may still abort an open transaction when its time-out expires. Before the decision this is detected
(`committer` checks that all pieces are open); the batch fails and is replayed. Between decision and end it tears the
batch. If no piece was committed, the pieces of the replay are decided instead. If some were, each lost piece is
replaced by a piece of the replay with the same rows; if there is none, `TornBatchError` says which rows are missing.

Batches of a stream do not overlap: Spark starts one when the one before is committed, and then reuses its
transactional ids. This does not hold for named batch writes, whose batches are versions that users choose: an entry
may be replaced by one of a later batch only after its own pieces are ended (`settled`).

`committer` carries out the plans; docs/decisions/0014-exactly-once-sink.md discusses the interleavings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from rookery.base.values import value_class
from rookery.client.prepared import EndOutcome, PreparedTransaction
from rookery.spark.query_error import QueryError

# The batch of an entry that was written before any decision.
_NO_BATCH: Final = -1
# Outcomes of transactions that were aborted, and so will never be committed.
_LOST: Final = (EndOutcome.FENCED, EndOutcome.ENDED_OTHERWISE)

Outcomes: TypeAlias = Mapping[PreparedTransaction, EndOutcome]
_Identity: TypeAlias = tuple[str, int, int]


class SinkError(QueryError):
    """A batch could not be written; the message says why. Spark replays it when the query is restarted."""


class TornBatchError(SinkError):
    """Some rows of a batch were committed and others are lost."""

    is_lasting = True


class StaleCheckpointError(SinkError):
    """The ledger is ahead of the query's checkpoint."""

    is_lasting = True


class RivalDriverError(SinkError):
    """Other drivers write to the same sink. A restart would fence them, and they would fence it in turn."""

    is_lasting = True


@value_class
class Piece:
    """The rows that one task has written. `digest` identifies the rows and their order: see `digests`."""

    partition: int
    transaction: PreparedTransaction
    row_count: int
    digest: str


@value_class(kw_only=True)
class Entry:
    """The last entry of a sink. Without `pieces`, no row of the batch is committed."""

    batch: int
    pieces: tuple[Piece, ...] | None = None
    is_done: bool = False
    # Transactions of attempts, also at other batches, that no decision will ever list.
    abandoned: frozenset[PreparedTransaction] = frozenset()

    @property
    def listed(self) -> frozenset[PreparedTransaction]:
        return frozenset(piece.transaction for piece in self.pieces or ())

    @property
    def row_count(self) -> int:
        return sum(piece.row_count for piece in self.pieces or ())


@value_class
class Decide:
    """Check that the `unproven` pieces, which are not committed yet, are open; write the entry; end its pieces."""

    entry: Entry
    unproven: tuple[Piece, ...]


@value_class
class Finish:
    """End the pieces of the entry, which is already in the ledger."""

    entry: Entry


@value_class
class Done:
    """All pieces are committed. Write the entry; after that, all other open transactions may be aborted."""

    entry: Entry


@value_class
class Skip:
    """Do not write the batch. `reason` is logged; it is None where skipping is expected."""

    reason: str | None = None


Plan: TypeAlias = Decide | Finish | Done | Skip


def is_unsettled(entry: Entry | None, batch: int) -> bool:
    """Whether an earlier batch of a batch write must be ended and `settled` first."""
    return entry is not None and entry.batch < batch and entry.pieces is not None and not entry.is_done


def settled(entry: Entry, outcomes: Outcomes) -> Entry:
    """Return the final state of an unsettled entry: done, or undecided if all its pieces were aborted."""
    pieces = entry.pieces or ()
    _check_known(entry.batch, pieces, outcomes)
    lost = [piece for piece in pieces if outcomes[piece.transaction] in _LOST]
    if lost and len(lost) < len(pieces):
        raise TornBatchError(
            f"batch {entry.batch}, which was begun before this one, is torn: the broker aborted {_named(lost)} between "
            f"decision and commit, and others of the batch were committed. Write batch {entry.batch} once more, with "
            "the same rows, to add the missing ones; or write them by other means, and continue with another txnAppId"
        )
    return replace(entry, pieces=None) if lost else replace(entry, is_done=True)


def plan_commit(entry: Entry | None, batch: int, fresh: Sequence[Piece], *, is_streaming: bool) -> Plan:
    """Plan the commit of a batch. `fresh` are the pieces that the tasks of this run have written."""
    if entry is None or entry.batch < batch:
        # An empty batch is not recorded: a replay of it would write nothing either.
        known = Entry(batch=batch, abandoned=frozenset() if entry is None else entry.abandoned)
        return _decide(known, fresh) if fresh else Skip()
    if entry.batch > batch and is_streaming:
        raise StaleCheckpointError(
            f"batch {batch}: the ledger is at batch {entry.batch}, so this checkpoint is an older copy of the query's. "
            f"Batches {batch} to {entry.batch - 1} were written already, perhaps with other rows; the sink neither "
            "repeats nor silently skips them. Continue with the newest checkpoint; or use a new one, with "
            "startingOffsets where the topic's rows end"
        )
    if entry.batch > batch:
        return Skip(f"batch {batch} is skipped as already written: the ledger is at batch {entry.batch}")
    if entry.is_done:
        return Skip(_already_written(entry, sum(piece.row_count for piece in fresh)))
    if entry.pieces is None:
        return _decide(entry, fresh) if fresh else Skip()
    return Finish(entry)


def _already_written(entry: Entry, row_count: int) -> str:
    text = f"batch {entry.batch} is skipped: it was already written"
    if row_count == entry.row_count:
        return text
    return (
        f"{text}, AND WITH OTHER ROWS: {entry.row_count} then, {row_count} now. The topic has the former rows. "
        "Is this another checkpoint, or were txnAppId and txnVersion used for something else?"
    )


def _decide(entry: Entry, fresh: Sequence[Piece], committed: tuple[Piece, ...] = ()) -> Decide:
    abandoned = {_identity(each) for each in entry.abandoned}
    if any(_identity(piece.transaction) in abandoned for piece in fresh):
        raise SinkError(f"batch {entry.batch}: its tasks' transactions are being aborted by another call")
    return Decide(replace(entry, pieces=(*committed, *fresh)), tuple(fresh))


def _identity(transaction: PreparedTransaction) -> _Identity:
    """Return the fields that identify a transaction; `is_v2` is not known for a transaction that was listed as open."""
    return transaction.transactional_id, transaction.producer_id, transaction.producer_epoch


def plan_after_ends(entry: Entry, outcomes: Outcomes, fresh: Sequence[Piece]) -> Decide | Done:
    """Plan the step after the pieces of an entry were ended. `outcomes` has the outcomes of all of them."""
    pieces = entry.pieces or ()
    _check_known(entry.batch, pieces, outcomes)
    lost = [piece for piece in pieces if outcomes[piece.transaction] in _LOST]
    if not lost:
        return Done(replace(entry, is_done=True))
    if any(piece.transaction in entry.listed for piece in fresh):
        raise SinkError(
            f"batch {entry.batch}: {_named(lost)} was aborted before the batch was ended, by the broker after its "
            "time-out or by an administrator. Restart the query to repeat the batch; if this happens again, raise "
            "kafka.transaction.timeout.ms and the broker's transaction.max.timeout.ms"
        )
    if len(lost) == len(pieces):
        return _decide(replace(entry, pieces=None), fresh)
    committed = tuple(piece for piece in pieces if piece not in lost)
    return _decide(entry, _replacements(entry.batch, lost, fresh), committed)


def _check_known(batch: int, pieces: Sequence[Piece], outcomes: Outcomes) -> None:
    unknown = [piece for piece in pieces if outcomes[piece.transaction] is EndOutcome.UNKNOWN]
    if unknown:
        raise TornBatchError(
            f"batch {batch}: the broker has removed {_named(unknown)} (transactional.id.expiration.ms), so the sink "
            "cannot determine whether these rows were committed. Read the topic, and if they are missing, write them "
            "by other means; then continue with a new checkpoint, or another txnAppId"
        )


def still_abandoned(entry: Entry, open_ones: Iterable[PreparedTransaction] | None) -> Entry:
    """Return the entry without those abandoned transactions that have ended.

    They need not be listed, because every decision checks first that its pieces are open. `open_ones` None: the open
    transactions could not be listed, so all are kept.
    """
    if open_ones is None:
        return entry
    found = {_identity(each) for each in open_ones}
    return replace(entry, abandoned=frozenset(each for each in entry.abandoned if _identity(each) in found))


def _replacements(batch: int, lost: Sequence[Piece], fresh: Sequence[Piece]) -> list[Piece]:
    """Return a fresh piece with the same rows for each lost one, preferably of the same partition."""
    left, found = list(fresh), []
    for piece in lost:
        same = [other for other in left if (other.row_count, other.digest) == (piece.row_count, piece.digest)]
        if not same:
            raise TornBatchError(
                f"batch {batch} is torn: the broker aborted {_named([piece])} between decision and commit, others of "
                "the batch were committed, and the replay has no task with the same rows. Exactly these rows of the "
                f"batch are missing: task {piece.partition}, {piece.row_count} rows. Write them by other means and "
                "continue with a new checkpoint; or write this batch once with delivery=at-least-once, which repeats "
                "the others"
            )
        chosen = min(same, key=lambda other: (other.partition != piece.partition, other.partition))
        left.remove(chosen)
        found.append(chosen)
    return found


@value_class(kw_only=True)
class AbortPlan:
    """Write `entry`, if there is one; only then abort `to_abort`. The `decided` pieces are still committed."""

    entry: Entry | None
    to_abort: frozenset[PreparedTransaction]
    decided: tuple[Piece, ...]


def plan_abort(
    entry: Entry | None,
    batch: int,
    fresh: Iterable[PreparedTransaction],
    open_ones: Iterable[PreparedTransaction] | None,
) -> AbortPlan:
    """Plan the abort of a batch. Spark also aborts after a commit that raised: a decision made then is not undone.

    `fresh` are the transactions of finished tasks. `open_ones` are the open transactions of the sink; they include
    those of killed tasks, and perhaps those of a newer driver, which then finds its own transactions abandoned and
    repeats its batch. It is None if they could not be listed. For a batch that is done or superseded no entry is
    written, so only the caller's own transactions are aborted. If the last entry is of an earlier batch, the abandoned
    transactions are added to it: an abort must not advance the ledger's batch.
    """
    if entry is not None and entry.batch > batch:
        return AbortPlan(entry=None, to_abort=frozenset(fresh), decided=())
    known = entry or Entry(batch=_NO_BATCH)
    is_own = known.batch == batch
    if is_own and known.is_done:
        return AbortPlan(entry=None, to_abort=frozenset(fresh) - known.listed, decided=())
    listed = {_identity(each) for each in known.listed}
    named = {_identity(each): each for each in (*(open_ones or ()), *fresh)}
    to_abort = frozenset(each for identity, each in named.items() if identity not in listed)
    still = still_abandoned(known, open_ones).abandoned
    noted = replace(known, abandoned=still | to_abort) if to_abort else None
    return AbortPlan(entry=noted, to_abort=to_abort, decided=(known.pieces or ()) if is_own else ())


def _named(pieces: Sequence[Piece]) -> str:
    return ", ".join(
        f"the transaction {piece.transaction.transactional_id} of task {piece.partition}" for piece in pieces
    )
