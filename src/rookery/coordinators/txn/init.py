"""InitProducerId: a producer's first request, and its way back after some errors (KIP-98, KIP-360).

A new instance does not say who it is. It gets the next epoch, which fences all instances before it; a transaction that
one of them left open is aborted first, for which the new instance must ask again.

An instance that goes on says which id and epoch it has. If these are the present ones, it gets the next epoch. If they
are those from before its latest raise, this is the same request once more, because the answer was lost, and the answer
is the same. Any other instance has been fenced.
"""

from dataclasses import replace

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TimestampMs
from rookery.coordinators.result import CoordinatorResult
from rookery.coordinators.txn.end_txn import fenced
from rookery.coordinators.txn.records import TransactionRecord
from rookery.coordinators.txn.results import (
    NEEDS_PRODUCER_ID,
    InitRequest,
    InitResult,
    NeedsProducerId,
    markers_of,
)
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import CLASSIC, EPOCH_MAX, Transaction


def init(
    transaction: Transaction | None,
    request: InitRequest,
    *,
    settings: TransactionSettings,
    transaction_version: int,
    now_ms: TimestampMs,
    new_producer_id: ProducerId | None,
) -> CoordinatorResult[InitResult | NeedsProducerId]:
    code = _check(transaction, request, settings)
    if code is not ErrorCode.NONE:
        return CoordinatorResult(response=InitResult(code))
    if transaction is not None and transaction.state is State.ONGOING:
        return _fence(transaction, request, transaction_version, now_ms)
    begun = _begin(transaction, request, now_ms, new_producer_id)
    if begun is None:
        return CoordinatorResult(response=NEEDS_PRODUCER_ID)
    return CoordinatorResult(
        response=InitResult(ErrorCode.NONE, begun.producer_id, begun.producer_epoch),
        records=[TransactionRecord(begun.transactional_id, begun)],
    )


def _check(transaction: Transaction | None, request: InitRequest, settings: TransactionSettings) -> ErrorCode:
    is_half = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if not request.transactional_id or is_half:
        return ErrorCode.INVALID_REQUEST
    if not settings.allows_timeout(request.timeout_ms):
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if transaction is None:
        # Also for an instance that goes on: its transactional id has expired meanwhile.
        return ErrorCode.NONE
    if not _is_known(transaction, request):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.is_prepared else ErrorCode.NONE


def _goes_on(request: InitRequest) -> bool:
    return request.producer_id != NO_PRODUCER_ID


def _is_known(transaction: Transaction, request: InitRequest) -> bool:
    """Whether the instance may have another epoch."""
    if not _goes_on(request):
        return True
    given = (request.producer_id, request.producer_epoch)
    if given == (transaction.producer_id, transaction.producer_epoch):
        return True
    if transaction.state is State.ONGOING:
        # Whoever began the transaction had the answer that a repeated request would ask for.
        return False
    return given == transaction.last_producer or (transaction.is_prepared and given == transaction.next_producer)


def _fence(
    transaction: Transaction, request: InitRequest, transaction_version: int, now_ms: TimestampMs
) -> CoordinatorResult[InitResult]:
    """The epoch of the fence is nobody's: a new instance gets the one after it."""
    aborted = fenced(transaction, now_ms, transaction_version, keeps_instance=_goes_on(request))
    return CoordinatorResult(
        response=InitResult(ErrorCode.CONCURRENT_TRANSACTIONS),
        records=[TransactionRecord(aborted.transactional_id, aborted)],
        effects=[markers_of(aborted)],
    )


def _begin(
    transaction: Transaction | None, request: InitRequest, now_ms: TimestampMs, new_producer_id: ProducerId | None
) -> Transaction | None:
    """The transactional id for its next transaction; None if that takes another producer id."""
    if transaction is None:
        return None if new_producer_id is None else _new(request, new_producer_id, now_ms)
    is_repeated = _goes_on(request) and request.producer_epoch != transaction.producer_epoch
    if is_repeated and transaction.producer_epoch < EPOCH_MAX:
        return _emptied(transaction, request, now_ms)
    last_epoch = request.producer_epoch if _goes_on(request) else NO_PRODUCER_EPOCH
    if not transaction.is_exhausted:
        raised = replace(transaction, producer_epoch=transaction.producer_epoch + 1, last_producer_epoch=last_epoch)
        return _emptied(raised, request, now_ms)
    if new_producer_id is None:
        return None
    rotated = replace(
        transaction,
        producer_id=new_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        last_producer_epoch=last_epoch,
    )
    return _emptied(rotated, request, now_ms)


def _new(request: InitRequest, producer_id: ProducerId, now_ms: TimestampMs) -> Transaction:
    return Transaction(
        transactional_id=request.transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=request.timeout_ms,
        update_ms=now_ms,
    )


def _emptied(transaction: Transaction, request: InitRequest, now_ms: TimestampMs) -> Transaction:
    return transaction.moved(
        State.EMPTY, now_ms, timeout_ms=request.timeout_ms, start_ms=NO_TIMESTAMP, client_version=CLASSIC
    )
