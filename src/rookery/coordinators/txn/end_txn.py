"""EndTxn, and the other ways in which transactions end.

The end has two phases. The first writes PREPARE_COMMIT or PREPARE_ABORT, after which the outcome is fixed; its effect
is that the markers are sent. The second, `complete`, follows when all markers are written.

A client retries an EndTxn whose response it has not received. In the classic protocol a retry looks like the first
request, and the state determines the response. In the newer one (KIP-890) the first request has bumped the epoch: a
retry has the epoch before that, and a request with the present epoch concerns the next transaction.
"""

from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, TimestampMs
from rookery.coordinators.result import CoordinatorResult
from rookery.coordinators.txn.records import TransactionRecord
from rookery.coordinators.txn.results import NEEDS_PRODUCER_ID, EndRequest, EndResult, NeedsProducerId, markers_of
from rookery.coordinators.txn.states import COMPLETED, PREPARED, State
from rookery.coordinators.txn.transaction import (
    CLASSIC,
    EPOCH_BUMP,
    EPOCH_MAX,
    LAST_EPOCH,
    Transaction,
)


def end(
    transaction: Transaction | None, request: EndRequest, *, now_ms: TimestampMs, new_producer_id: ProducerId | None
) -> CoordinatorResult[EndResult | NeedsProducerId]:
    if not request.transactional_id:
        return _rejected(ErrorCode.INVALID_REQUEST)
    if transaction is None or transaction.state is State.DEAD:
        return _rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.client_version < EPOCH_BUMP:
        return _end_classic(transaction, request, now_ms)
    return _end_with_bump(transaction, request, now_ms, new_producer_id)


def _rejected(code: ErrorCode) -> CoordinatorResult[EndResult]:
    return CoordinatorResult(response=EndResult(code))


def _end_classic(transaction: Transaction, request: EndRequest, now_ms: TimestampMs) -> CoordinatorResult[EndResult]:
    if request.producer_id != transaction.producer_id:
        return _rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != transaction.producer_epoch:
        return _rejected(ErrorCode.PRODUCER_FENCED)
    if transaction.state is State.ONGOING:
        return _prepared(transaction.moved(_prepare_state(request), now_ms, client_version=CLASSIC))
    return _retry_result(transaction, request)


def _end_with_bump(
    transaction: Transaction, request: EndRequest, now_ms: TimestampMs, new_producer_id: ProducerId | None
) -> CoordinatorResult[EndResult | NeedsProducerId]:
    if _is_retry(transaction, request):
        return _retry_result(transaction, request)
    given = (request.producer_id, request.producer_epoch)
    if transaction.is_prepared and given == transaction.next_producer:
        # It concerns the next transaction, which cannot begin before this one is complete.
        return _rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.producer_id != transaction.producer_id:
        return _rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != transaction.producer_epoch:
        return _rejected(ErrorCode.PRODUCER_FENCED)
    if transaction.state is not State.ONGOING and request.commit:
        # There is nothing to commit. Success would acknowledge records of which the coordinator has no partition.
        return _rejected(ErrorCode.INVALID_TXN_STATE)
    if transaction.is_exhausted and new_producer_id is None:
        return CoordinatorResult(response=NEEDS_PRODUCER_ID)
    bumped = _bumped(transaction)
    if transaction.is_exhausted:
        bumped["next_producer_id"] = new_producer_id
    if transaction.state is State.ONGOING:
        return _prepared(transaction.moved(_prepare_state(request), now_ms, **bumped))
    return _abort_without_partitions(transaction.moved(State.PREPARE_ABORT, now_ms, start_ms=now_ms, **bumped), now_ms)


def _prepare_state(request: EndRequest) -> State:
    return State.PREPARE_COMMIT if request.commit else State.PREPARE_ABORT


def _bumped(transaction: Transaction) -> dict[str, Any]:
    """Return the changes that bump the epoch.

    At EPOCH_MAX there is no next epoch, and the end is marked CLASSIC: partitions reject a marker of the newer protocol
    unless its epoch is higher than that of the transaction's records.
    """
    epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
    return {
        "producer_epoch": epoch,
        "last_producer_epoch": transaction.producer_epoch,
        "client_version": EPOCH_BUMP if epoch > transaction.producer_epoch else CLASSIC,
    }


def _is_retry(transaction: Transaction, request: EndRequest) -> bool:
    """Whether an earlier copy of this request has already bumped the epoch."""
    if transaction.client_version < EPOCH_BUMP or transaction.state not in PREPARED | COMPLETED:
        return False
    if transaction.producer_epoch == 0:
        # It used up the epochs of its producer id, which was then replaced.
        given = (request.producer_id, request.producer_epoch)
        return given == (transaction.previous_producer_id, LAST_EPOCH)
    if transaction.state in COMPLETED and transaction.producer_epoch == EPOCH_MAX:
        # The producer was fenced at its last epoch. EPOCH_MAX, which fenced it, is never given to a producer.
        return False
    return (request.producer_id, request.producer_epoch + 1) == (transaction.producer_id, transaction.producer_epoch)


def _retry_result(transaction: Transaction, request: EndRequest) -> CoordinatorResult[EndResult]:
    """Return the response to a request without an ongoing transaction: it has been ended before, or never began.

    An outcome that was decided never changes: a commit after an abort, or an abort after a commit, is an error.
    """
    if transaction.state is _prepare_state(request):
        return _rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is (State.COMPLETE_COMMIT if request.commit else State.COMPLETE_ABORT):
        return CoordinatorResult(response=EndResult(ErrorCode.NONE, *transaction.next_producer))
    return _rejected(ErrorCode.INVALID_TXN_STATE)


def _prepared(transaction: Transaction) -> CoordinatorResult[EndResult]:
    # The markers are an effect, which runs only after this record is committed. If they were sent earlier, a fail-over
    # could lose the record after some partitions have the marker; the next coordinator would find the transaction
    # ongoing and might abort it: committed in some partitions, aborted in others.
    return CoordinatorResult(
        response=EndResult(ErrorCode.NONE, *transaction.next_producer),
        records=[TransactionRecord(transaction.transactional_id, transaction)],
        effects=[markers_of(transaction)],
    )


def _abort_without_partitions(prepared: Transaction, now_ms: TimestampMs) -> CoordinatorResult[EndResult]:
    """Prepare and complete an abort in one batch: without partitions there are no markers to wait for."""
    done = completed(prepared, now_ms)
    return CoordinatorResult(
        response=EndResult(ErrorCode.NONE, *done.next_producer),
        records=[TransactionRecord(each.transactional_id, each) for each in (prepared, done)],
    )


def fenced(
    transaction: Transaction, now_ms: TimestampMs, transaction_version: int, *, keep_last_epoch: bool
) -> Transaction:
    """Return an ongoing transaction as aborted by the coordinator, with a bumped epoch that fences its producer.

    `keep_last_epoch`: the same producer may obtain the next epoch with InitProducerId, by naming its own.
    """
    bumped = _bumped(transaction)
    if not keep_last_epoch:
        bumped["last_producer_epoch"] = NO_PRODUCER_EPOCH
    if transaction_version < EPOCH_BUMP:
        bumped["client_version"] = CLASSIC
    return transaction.moved(State.PREPARE_ABORT, now_ms, **bumped)


def complete(
    transaction: Transaction | None, prepared: Transaction, now_ms: TimestampMs
) -> CoordinatorResult[ErrorCode]:
    """Complete a prepared transaction, all of whose markers are written."""
    if transaction is not prepared:
        # The call is late: the shard was reloaded, or another delivery has completed the transaction and the next one
        # may be prepared already. Completing that one now would drop its partitions before they have their markers,
        # and they would stay open for ever.
        return CoordinatorResult(response=ErrorCode.NONE)
    done = completed(prepared, now_ms)
    return CoordinatorResult(response=ErrorCode.NONE, records=[TransactionRecord(done.transactional_id, done)])


def completed(prepared: Transaction, now_ms: TimestampMs) -> Transaction:
    state = State.COMPLETE_COMMIT if prepared.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    producer_id, producer_epoch = prepared.next_producer
    is_rotated = producer_id != prepared.producer_id
    return prepared.moved(
        state,
        now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=prepared.producer_id if is_rotated else prepared.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )
