"""The partitions of a transaction: adding them, and verifying that they were added.

A partition is added before a record is written to it. The end of the transaction would otherwise not reach it: its
records would stay open for ever, and hold back all consumers that read committed records.
"""

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, TimestampMs
from rookery.coordinators.result import CoordinatorResult
from rookery.coordinators.txn.records import TransactionRecord
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import CLASSIC, Transaction


def add(
    transaction: Transaction | None, request: AddRequest, now_ms: TimestampMs
) -> CoordinatorResult[VerifiedPartitions]:
    """Add all partitions, or none; the response is one code for all of them."""
    code = _check(transaction, request)
    if transaction is None or code is not ErrorCode.NONE:
        return CoordinatorResult(response=code)
    if request.partitions <= transaction.partitions:
        return CoordinatorResult(response=ErrorCode.NONE)
    updated = transaction.moved(
        State.ONGOING,
        now_ms,
        partitions=transaction.partitions | request.partitions,
        start_ms=transaction.start_ms if transaction.state is State.ONGOING else now_ms,
        # The producer uses its epoch, so that it has received the response with it and will not retry for it.
        last_producer_epoch=NO_PRODUCER_EPOCH,
        client_version=CLASSIC,
    )
    return CoordinatorResult(response=ErrorCode.NONE, records=[TransactionRecord(updated.transactional_id, updated)])


def verify(transaction: Transaction | None, request: AddRequest) -> VerifiedPartitions | ErrorCode:
    code = _check(transaction, request)
    if transaction is None or code is not ErrorCode.NONE:
        return code
    return tuple(
        (each, ErrorCode.NONE if each in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE)
        for each in sorted(request.partitions)
    )


def _check(transaction: Transaction | None, request: AddRequest) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if transaction is None or transaction.state is State.DEAD:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.is_prepared and (request.producer_id, request.producer_epoch) == transaction.next_producer:
        # The client's next transaction. Its producer id may be one that replaces the present id upon completion.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.is_prepared else ErrorCode.NONE
