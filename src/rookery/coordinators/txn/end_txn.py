"""EndTxn, and the other ways in which transactions end.

The end has two steps. The first, PREPARE_COMMIT or PREPARE_ABORT, is the decision; its effect is that the markers are
sent. The second, `complete`, comes when all markers are written.

Clients repeat an EndTxn whose answer they have not got. In the classic protocol the repetition looks like the first
request, and the state tells what to answer. In the newer one (KIP-890) the first request has raised the epoch, so that
the repetition comes with the epoch before; a request with the present epoch is about the next transaction.
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
        return _refused(ErrorCode.INVALID_REQUEST)
    if transaction is None or transaction.state is State.DEAD:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.client_version < EPOCH_BUMP:
        return _end_classic(transaction, request, now_ms)
    return _end_with_bump(transaction, request, now_ms, new_producer_id)


def _refused(code: ErrorCode) -> CoordinatorResult[EndResult]:
    return CoordinatorResult(response=EndResult(code))


def _end_classic(transaction: Transaction, request: EndRequest, now_ms: TimestampMs) -> CoordinatorResult[EndResult]:
    if request.producer_id != transaction.producer_id:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != transaction.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    if transaction.state is State.ONGOING:
        return _prepared(transaction.moved(_outcome(request), now_ms, client_version=CLASSIC))
    return _repeated(transaction, request)


def _end_with_bump(
    transaction: Transaction, request: EndRequest, now_ms: TimestampMs, new_producer_id: ProducerId | None
) -> CoordinatorResult[EndResult | NeedsProducerId]:
    if _is_repeated(transaction, request):
        return _repeated(transaction, request)
    given = (request.producer_id, request.producer_epoch)
    if transaction.is_prepared and given == transaction.next_producer:
        # It is about the next transaction, which cannot begin before this one is complete.
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.producer_id != transaction.producer_id:
        return _refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer_epoch != transaction.producer_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    if transaction.state is not State.ONGOING and request.commit:
        return _refused(ErrorCode.INVALID_TXN_STATE)
    if transaction.is_exhausted and new_producer_id is None:
        return CoordinatorResult(response=NEEDS_PRODUCER_ID)
    raised = _raised(transaction)
    if transaction.is_exhausted:
        raised["next_producer_id"] = new_producer_id
    if transaction.state is State.ONGOING:
        return _prepared(transaction.moved(_outcome(request), now_ms, **raised))
    return _abort_nothing(transaction.moved(State.PREPARE_ABORT, now_ms, start_ms=now_ms, **raised), now_ms)


def _outcome(request: EndRequest) -> State:
    return State.PREPARE_COMMIT if request.commit else State.PREPARE_ABORT


def _raised(transaction: Transaction) -> dict[str, Any]:
    """The next epoch. With the newer protocol, markers without a raised epoch would be refused."""
    epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
    return {
        "producer_epoch": epoch,
        "last_producer_epoch": transaction.producer_epoch,
        "client_version": EPOCH_BUMP if epoch > transaction.producer_epoch else CLASSIC,
    }


def _is_repeated(transaction: Transaction, request: EndRequest) -> bool:
    """Whether the request has raised the epoch already."""
    if transaction.client_version < EPOCH_BUMP or transaction.state not in PREPARED | COMPLETED:
        return False
    if transaction.producer_epoch == 0:
        # The epochs were used up by it, and another id has followed.
        given = (request.producer_id, request.producer_epoch)
        return given == (transaction.previous_producer_id, LAST_EPOCH)
    if transaction.state in COMPLETED and transaction.producer_epoch == EPOCH_MAX:
        # It was fenced at its last epoch, and the one that fenced it is for nobody.
        return False
    return (request.producer_id, request.producer_epoch + 1) == (transaction.producer_id, transaction.producer_epoch)


def _repeated(transaction: Transaction, request: EndRequest) -> CoordinatorResult[EndResult]:
    """The answer to a request for an end that has been decided; or was never to be."""
    if transaction.state is _outcome(request):
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is (State.COMPLETE_COMMIT if request.commit else State.COMPLETE_ABORT):
        return CoordinatorResult(response=EndResult(ErrorCode.NONE, *transaction.next_producer))
    return _refused(ErrorCode.INVALID_TXN_STATE)


def _prepared(transaction: Transaction) -> CoordinatorResult[EndResult]:
    return CoordinatorResult(
        response=EndResult(ErrorCode.NONE, *transaction.next_producer),
        records=[TransactionRecord(transaction.transactional_id, transaction)],
        effects=[markers_of(transaction)],
    )


def _abort_nothing(prepared: Transaction, now_ms: TimestampMs) -> CoordinatorResult[EndResult]:
    """There is nobody to send a marker to."""
    done = completed(prepared, now_ms)
    return CoordinatorResult(
        response=EndResult(ErrorCode.NONE, *done.next_producer),
        records=[TransactionRecord(each.transactional_id, each) for each in (prepared, done)],
    )


def fenced(
    transaction: Transaction, now_ms: TimestampMs, transaction_version: int, *, keeps_instance: bool
) -> Transaction:
    """An ongoing transaction, aborted against its producer's will; `keeps_instance` if that may ask for the epoch."""
    raised = _raised(transaction)
    if not keeps_instance:
        raised["last_producer_epoch"] = NO_PRODUCER_EPOCH
    if transaction_version < EPOCH_BUMP:
        raised["client_version"] = CLASSIC
    return transaction.moved(State.PREPARE_ABORT, now_ms, **raised)


def complete(
    transaction: Transaction | None, prepared: Transaction, now_ms: TimestampMs
) -> CoordinatorResult[ErrorCode]:
    """All markers are written. Nothing happens if the transaction is not, or no longer, the one that they were for."""
    if transaction is not prepared:
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
