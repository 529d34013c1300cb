"""What the sink's driver does about a batch: decisions without a socket, a clock or a thread.

Theory of operation. A task writes its rows in a transaction of its own and leaves it open; what it hands to the driver
is a `Piece`. The driver writes the list of a batch's pieces into the ledger (it *decides*), then has each of them
committed (it *ends* them), then notes in the ledger that this is *done*. A replay of the batch finds the decision, and
goes on from there. The ledger has one `Entry` for each sink, the last one, and only the newest driver can write it.

What makes this exactly once:

    1  A piece is committed only after an entry that lists it was written, and is aborted by the sink only if no entry
       will ever list it: its batch is done or over, or an entry says that it is abandoned.
    2  All entries of a sink are in one order: each is written by a producer that took over the sink's transactional id,
       which locks its predecessors out, and that has read the entry before.
    3  A transaction that was committed stays so, and so does one that was aborted. What EndTxn says about it is
       therefore true for ever, whoever asked.

What a broker may do against it: abort an open transaction because its time is over. Before the decision that is
noticed (`committer` looks whether all pieces are open), the batch fails and is replayed. Between decision and end it
tears the batch. If no piece was committed, the replay's pieces are decided anew. If some were, each lost piece is
replaced by one of the replay with the same rows; if there is none, `TornBatchError` says which rows are missing.

Batches of a stream come one after the other: Spark begins one when the one before is committed, and then uses its
transactional ids again. Nothing says so of batch writes with a name, whose batches are versions that users choose: an
entry may be replaced by one of a later batch only when its own pieces are ended (`settled`).

`committer` carries this out; docs/decisions/0014-exactly-once-sink.md goes through the interleavings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from rookery.base.values import value_class
from rookery.client.prepared import EndOutcome, PreparedTransaction
from rookery.spark.query_error import QueryError

# Of an entry that was written before any decision.
_BEFORE_ALL: Final = -1
# Aborted for good, whatever the reason.
_LOST: Final = (EndOutcome.FENCED, EndOutcome.ENDED_OTHERWISE)

Outcomes: TypeAlias = Mapping[PreparedTransaction, EndOutcome]
_Identity: TypeAlias = tuple[str, int, int]


class SinkError(QueryError):
    """A batch that could not be written, and why. Spark replays it when the query is started again."""


class TornBatchError(SinkError):
    """Some rows of a batch were committed and others are lost."""

    is_lasting = True


class StaleCheckpointError(SinkError):
    """The ledger is further than the query's checkpoint."""

    is_lasting = True


class RivalDriverError(SinkError):
    """Other drivers write to the same sink. Starting again would keep up the fight."""

    is_lasting = True


@value_class
class Piece:
    """What one task has written. `digest` tells rows apart, in their order: see `digests`."""

    partition: int
    transaction: PreparedTransaction
    row_count: int
    digest: str


@value_class(kw_only=True)
class Entry:
    """Of one sink, its last. Without `pieces` nothing of the batch is committed."""

    batch: int
    pieces: tuple[Piece, ...] | None = None
    is_done: bool = False
    # Attempts, also at other batches, that no decision will ever list.
    abandoned: frozenset[PreparedTransaction] = frozenset()

    @property
    def listed(self) -> frozenset[PreparedTransaction]:
        return frozenset(piece.transaction for piece in self.pieces or ())

    @property
    def row_count(self) -> int:
        return sum(piece.row_count for piece in self.pieces or ())


@value_class
class Decide:
    """Write the entry, once the pieces that were not committed yet are known to be open; then end its pieces."""

    entry: Entry
    unproven: tuple[Piece, ...]


@value_class
class Finish:
    """The entry is in the ledger: end its pieces."""

    entry: Entry


@value_class
class Done:
    """All is committed. Write the entry; then nothing else that is open is of use."""

    entry: Entry


@value_class
class Skip:
    """The batch is over. `reason` is for the log where that may surprise."""

    reason: str | None = None


Plan: TypeAlias = Decide | Finish | Done | Skip


def is_unsettled(entry: Entry | None, batch: int) -> bool:
    """Whether an earlier batch of a batch write is to be ended, and `settled`, before anything else."""
    return entry is not None and entry.batch < batch and entry.pieces is not None and not entry.is_done


def settled(entry: Entry, outcomes: Outcomes) -> Entry:
    """What an unsettled entry came to: done, or as if it had never been decided."""
    pieces = entry.pieces or ()
    _check_known(entry.batch, pieces, outcomes)
    lost = [piece for piece in pieces if outcomes[piece.transaction] in _LOST]
    if lost and len(lost) < len(pieces):
        raise TornBatchError(
            f"batch {entry.batch}, which was begun before this one, is torn: the broker gave up {_named(lost)} between "
            f"decision and commit, and others of the batch were committed. Write batch {entry.batch} once more, with "
            "the same rows, to add what is missing; or write it by hand, and go on with another txnAppId"
        )
    return replace(entry, pieces=None) if lost else replace(entry, is_done=True)


def plan_commit(entry: Entry | None, batch: int, fresh: Sequence[Piece], *, is_streaming: bool) -> Plan:
    """`fresh` are the pieces that the tasks of this run have written."""
    if entry is None or entry.batch < batch:
        # Nothing was written, and nothing will be missed: an empty batch leaves no trace.
        known = Entry(batch=batch, abandoned=frozenset() if entry is None else entry.abandoned)
        return _decide(known, fresh) if fresh else Skip()
    if entry.batch > batch and is_streaming:
        raise StaleCheckpointError(
            f"batch {batch}: the ledger is at batch {entry.batch}, so this checkpoint is an older copy of the query's. "
            f"Batches {batch} to {entry.batch - 1} were written already, perhaps with other rows, and are neither "
            "repeated nor left out in silence. Go on with the newest checkpoint; or take a new one, with "
            "startingOffsets where the topic's rows end"
        )
    if entry.batch > batch:
        return Skip(f"batch {batch} is left out as already written: the ledger is at batch {entry.batch}")
    if entry.is_done:
        return Skip(_already_written(entry, sum(piece.row_count for piece in fresh)))
    if entry.pieces is None:
        return _decide(entry, fresh) if fresh else Skip()
    return Finish(entry)


def _already_written(entry: Entry, row_count: int) -> str:
    text = f"batch {entry.batch} is left out: it was already written"
    if row_count == entry.row_count:
        return text
    return (
        f"{text}, AND WITH OTHER ROWS: {entry.row_count} then, {row_count} now. The topic has those of the first time. "
        "Is it another checkpoint, or are these the same txnAppId and txnVersion for something else?"
    )


def _decide(entry: Entry, fresh: Sequence[Piece], committed: tuple[Piece, ...] = ()) -> Decide:
    abandoned = {_identity(each) for each in entry.abandoned}
    if any(_identity(piece.transaction) in abandoned for piece in fresh):
        raise SinkError(f"batch {entry.batch}: its tasks' transactions are being aborted by another call")
    return Decide(replace(entry, pieces=(*committed, *fresh)), tuple(fresh))


def _identity(transaction: PreparedTransaction) -> _Identity:
    """Of an open one nobody knows by which protocol it began."""
    return transaction.transactional_id, transaction.producer_id, transaction.producer_epoch


def plan_after_ends(entry: Entry, outcomes: Outcomes, fresh: Sequence[Piece]) -> Decide | Done:
    """What `Finish` or `Decide` came to; `outcomes` are of all pieces of the entry."""
    pieces = entry.pieces or ()
    _check_known(entry.batch, pieces, outcomes)
    lost = [piece for piece in pieces if outcomes[piece.transaction] in _LOST]
    if not lost:
        return Done(replace(entry, is_done=True))
    if any(piece.transaction in entry.listed for piece in fresh):
        raise SinkError(
            f"batch {entry.batch}: {_named(lost)} was aborted before the batch was ended, by the broker after its "
            "time-out or by an administrator. Start the query again to repeat the batch; if this comes again, raise "
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
            f"batch {batch}: the broker does not know {_named(unknown)} any more (transactional.id.expiration.ms), so "
            "nobody can tell whether these rows were committed. Read the topic, and if they are missing write them by "
            "hand; then go on with a new checkpoint, or another txnAppId"
        )


def still_abandoned(entry: Entry, open_ones: Iterable[PreparedTransaction] | None) -> Entry:
    """Without what is open no more: nobody decides about that without looking. None: nobody could tell."""
    if open_ones is None:
        return entry
    found = {_identity(each) for each in open_ones}
    return replace(entry, abandoned=frozenset(each for each in entry.abandoned if _identity(each) in found))


def _replacements(batch: int, lost: Sequence[Piece], fresh: Sequence[Piece]) -> list[Piece]:
    """For each lost piece a fresh one with the same rows, best of the same partition."""
    left, found = list(fresh), []
    for piece in lost:
        same = [other for other in left if (other.row_count, other.digest) == (piece.row_count, piece.digest)]
        if not same:
            raise TornBatchError(
                f"batch {batch} is torn: the broker gave up {_named([piece])} between decision and commit, others of "
                "the batch were committed, and the replay has no task with the same rows. Exactly these rows of the "
                f"batch are missing: task {piece.partition}, {piece.row_count} rows. Write them by hand, then go on "
                "with a new checkpoint; or write this batch once with delivery=at-least-once, which repeats the others"
            )
        chosen = min(same, key=lambda other: (other.partition != piece.partition, other.partition))
        left.remove(chosen)
        found.append(chosen)
    return found


@value_class(kw_only=True)
class AbortPlan:
    """Write `entry`, if there is one; only then abort what is given up. What is decided is committed all the same."""

    entry: Entry | None
    to_abort: frozenset[PreparedTransaction]
    decided: tuple[Piece, ...]


def plan_abort(
    entry: Entry | None,
    batch: int,
    fresh: Iterable[PreparedTransaction],
    open_ones: Iterable[PreparedTransaction] | None,
) -> AbortPlan:
    """Spark gives the batch up, also after a commit that raised: what was decided then is not undone.

    `fresh` is what finished tasks wrote, `open_ones` what is open of the sink: also of tasks that were killed, and
    perhaps of a newer driver's. That one will find its own abandoned, and repeat its batch. Of a batch that is over
    nothing is noted, so that nothing is aborted then but what is the caller's own. The note is added to the entry of
    an earlier batch, if that is the last: what is given up is no progress. `open_ones` is None where nobody could tell.
    """
    if entry is not None and entry.batch > batch:
        return AbortPlan(entry=None, to_abort=frozenset(fresh), decided=())
    known = entry or Entry(batch=_BEFORE_ALL)
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
