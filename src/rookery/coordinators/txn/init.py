"""InitProducerId: a producer's first request, and its recovery from some errors (KIP-98, KIP-360).

A new instance sends no producer id. It gets the next epoch, which fences all earlier instances. If one of them left a
transaction open, that is aborted first, and the new instance must retry.

An instance that resumes sends its producer id and epoch. If they are the present ones, it gets the next epoch. If they
are those before its latest bump, the request is a retry whose response was lost, and gets the same response. Any other
instance has been fenced.
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
    updated = _next_transaction(transaction, request, now_ms, new_producer_id)
    if updated is None:
        return CoordinatorResult(response=NEEDS_PRODUCER_ID)
    return CoordinatorResult(
        response=InitResult(ErrorCode.NONE, updated.producer_id, updated.producer_epoch),
        records=[TransactionRecord(updated.transactional_id, updated)],
    )


def _check(transaction: Transaction | None, request: InitRequest, settings: TransactionSettings) -> ErrorCode:
    is_incomplete = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if not request.transactional_id or is_incomplete:
        return ErrorCode.INVALID_REQUEST
    if not settings.allows_timeout(request.timeout_ms):
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if transaction is None:
        # Also for an instance that resumes: its transactional id has expired.
        return ErrorCode.NONE
    if not _may_bump(transaction, request):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.is_prepared else ErrorCode.NONE


def _is_resuming(request: InitRequest) -> bool:
    return request.producer_id != NO_PRODUCER_ID


def _may_bump(transaction: Transaction, request: InitRequest) -> bool:
    """Whether the instance may get another epoch; False if a newer instance has fenced it."""
    if not _is_resuming(request):
        return True
    given = (request.producer_id, request.producer_epoch)
    if given == (transaction.producer_id, transaction.producer_epoch):
        return True
    if transaction.state is State.ONGOING:
        # The instance that began the transaction has received its epoch. A retry from before that is of an older one;
        # if it got an epoch, it would abort the transaction of its successor.
        return False
    return given == transaction.last_producer or (transaction.is_prepared and given == transaction.next_producer)


def _fence(
    transaction: Transaction, request: InitRequest, transaction_version: int, now_ms: TimestampMs
) -> CoordinatorResult[InitResult]:
    """Abort the ongoing transaction under a bumped epoch, which fences its producer; the request must be retried.

    The retry of a new instance gets the epoch after that, the retry of one that resumes gets the bumped epoch.
    """
    aborted = fenced(transaction, now_ms, transaction_version, keep_last_epoch=_is_resuming(request))
    return CoordinatorResult(
        response=InitResult(ErrorCode.CONCURRENT_TRANSACTIONS),
        records=[TransactionRecord(aborted.transactional_id, aborted)],
        effects=[markers_of(aborted)],
    )


def _next_transaction(
    transaction: Transaction | None, request: InitRequest, now_ms: TimestampMs, new_producer_id: ProducerId | None
) -> Transaction | None:
    """Return the transactional id prepared for its next transaction; None if that requires a new producer id."""
    if transaction is None:
        return None if new_producer_id is None else _new(request, new_producer_id, now_ms)
    is_retry = _is_resuming(request) and request.producer_epoch != transaction.producer_epoch
    if is_retry and transaction.producer_epoch < EPOCH_MAX:
        return _emptied(transaction, request, now_ms)
    last_epoch = request.producer_epoch if _is_resuming(request) else NO_PRODUCER_EPOCH
    if not transaction.is_exhausted:
        bumped = replace(transaction, producer_epoch=transaction.producer_epoch + 1, last_producer_epoch=last_epoch)
        return _emptied(bumped, request, now_ms)
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
