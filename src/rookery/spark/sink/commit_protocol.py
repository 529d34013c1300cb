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
noticed (`committing` looks whether all pieces are open), the batch fails and is replayed. Between decision and end it
tears the batch. If no piece was committed, the replay's pieces are decided anew. If some were, each lost piece is
replaced by one of the replay with the same rows; if there is none, `TornBatchError` says which rows are missing.

`committing` carries this out; docs/decisions/0014-exactly-once-sink.md goes through the interleavings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from rookery.base.values import value_class
from rookery.client.prepared import EndOutcome, PreparedTransaction

# Aborted for good, whatever the reason.
_LOST: Final = (EndOutcome.FENCED, EndOutcome.ENDED_OTHERWISE)

Outcomes: TypeAlias = Mapping[PreparedTransaction, EndOutcome]


class SinkError(Exception):
    """A batch that could not be written, and why. Spark replays it when the query is started again."""


class TornBatchError(SinkError):
    """Some rows of a batch were committed and others are lost."""


@value_class
class Piece:
    """What one task has written. `digest` tells rows apart, in their order: see `digests`."""

    partition: int
    transaction: PreparedTransaction
    row_count: int
    digest: str


@value_class(kw_only=True)
class Entry:
    """Of one sink, its last. Without `pieces` nothing is decided about the batch; those before it are done."""

    batch: int
    pieces: tuple[Piece, ...] | None = None
    is_done: bool = False
    # Attempts at this batch that no decision will ever list.
    abandoned: frozenset[PreparedTransaction] = frozenset()

    @property
    def listed(self) -> frozenset[PreparedTransaction]:
        return frozenset(piece.transaction for piece in self.pieces or ())


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
class Nothing:
    """The batch is over. `reason` is for the log where that may surprise."""

    reason: str | None = None


Plan: TypeAlias = Decide | Finish | Done | Nothing


def plan_commit(entry: Entry | None, batch: int, fresh: Sequence[Piece]) -> Plan:
    """`fresh` are the pieces that the tasks of this run have written."""
    if entry is None or entry.batch < batch:
        # Nothing was written, and nothing will be missed: an empty batch leaves no trace.
        return _decide(Entry(batch=batch), fresh) if fresh else Nothing()
    if entry.batch > batch:
        return Nothing(f"batch {batch} is left out: the ledger is at batch {entry.batch}, of a later checkpoint")
    if entry.is_done:
        return Nothing()
    if entry.pieces is None:
        return _decide(entry, fresh) if fresh else Nothing()
    return Finish(entry)


def _decide(entry: Entry, fresh: Sequence[Piece], committed: tuple[Piece, ...] = ()) -> Decide:
    abandoned = {each.transactional_id for each in entry.abandoned}
    if any(piece.transaction.transactional_id in abandoned for piece in fresh):
        raise SinkError(f"batch {entry.batch}: its tasks' transactions are being aborted by another call")
    return Decide(replace(entry, pieces=(*committed, *fresh)), tuple(fresh))


def plan_after_ends(entry: Entry, outcomes: Outcomes, fresh: Sequence[Piece]) -> Decide | Done:
    """What `Finish` or `Decide` came to; `outcomes` are of all pieces of the entry."""
    pieces = entry.pieces or ()
    unknown = [piece for piece in pieces if outcomes[piece.transaction] is EndOutcome.UNKNOWN]
    if unknown:
        raise TornBatchError(
            f"batch {entry.batch}: the broker does not know {_named(unknown)} any more "
            "(transactional.id.expiration.ms), so nobody can tell whether these rows were committed. Read the topic, "
            "and if they are missing write them by hand; then go on with a new checkpoint"
        )
    lost = [piece for piece in pieces if outcomes[piece.transaction] in _LOST]
    if not lost:
        return Done(replace(entry, is_done=True, abandoned=frozenset()))
    if any(piece.transaction in entry.listed for piece in fresh):
        raise SinkError(
            f"batch {entry.batch}: the broker gave up {_named(lost)} before the batch was ended. Start the query again "
            "to repeat the batch; if this comes again, raise kafka.transaction.timeout.ms and the broker's "
            "transaction.max.timeout.ms"
        )
    if len(lost) == len(pieces):
        return _decide(replace(entry, pieces=None), fresh)
    committed = tuple(piece for piece in pieces if piece not in lost)
    return _decide(entry, _replacements(entry.batch, lost, fresh), committed)


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
    given_up: frozenset[PreparedTransaction]
    decided: tuple[Piece, ...]


def plan_abort(
    entry: Entry | None, batch: int, fresh: Iterable[PreparedTransaction], open_ones: Iterable[PreparedTransaction]
) -> AbortPlan:
    """Spark gives the batch up, also after a commit that raised: what was decided then is not undone.

    `fresh` is what finished tasks wrote, `open_ones` what is open of the sink: also of tasks that were killed, and
    perhaps of a newer driver's. That one will find its own abandoned, and repeat its batch. Of a batch that is over
    nothing is noted, so that nothing is aborted then but what is the caller's own.
    """
    if entry is not None and entry.batch > batch:
        return AbortPlan(entry=None, given_up=frozenset(fresh), decided=())
    known = entry if entry is not None and entry.batch == batch else Entry(batch=batch)
    if known.is_done:
        return AbortPlan(entry=None, given_up=frozenset(fresh) - known.listed, decided=())
    # By their names: of an open one nobody knows by which protocol it began.
    listed = {each.transactional_id for each in known.listed}
    named = {each.transactional_id: each for each in (*open_ones, *fresh)}
    given_up = frozenset(each for name, each in named.items() if name not in listed)
    noted = replace(known, abandoned=known.abandoned | given_up) if given_up else None
    return AbortPlan(entry=noted, given_up=given_up, decided=known.pieces or ())


def _named(pieces: Sequence[Piece]) -> str:
    return ", ".join(
        f"the transaction {piece.transaction.transactional_id} of task {piece.partition}" for piece in pieces
    )
