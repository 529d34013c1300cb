"""DescribeTransactions and ListTransactions. A transactional id in state DEAD counts as missing."""

from collections.abc import Iterable

from rookery.base.errors import ErrorCode
from rookery.base.types import TimestampMs
from rookery.coordinators.txn.results import DescribedTransaction, ListedTransaction, ListFilters
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import Transaction


def describe(transaction: Transaction | None, transactional_id: str) -> DescribedTransaction | ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if transaction is None or transaction.state is State.DEAD:
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return DescribedTransaction(
        transactional_id=transactional_id,
        state=transaction.state,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        start_ms=transaction.start_ms,
        partitions=transaction.partitions,
    )


def list_filtered(
    transactions: Iterable[Transaction], filters: ListFilters, now_ms: TimestampMs
) -> list[ListedTransaction]:
    return [
        ListedTransaction(each.transactional_id, each.producer_id, each.state)
        for each in transactions
        if _is_listed(each, filters, now_ms)
    ]


def _is_listed(transaction: Transaction, filters: ListFilters, now_ms: TimestampMs) -> bool:
    return (
        transaction.state is not State.DEAD
        and (not filters.states or transaction.state in filters.states)
        and (not filters.producer_ids or transaction.producer_id in filters.producer_ids)
        and (filters.duration_ms < 0 or now_ms - transaction.start_ms > filters.duration_ms)
        and (filters.matches is None or filters.matches(transaction.transactional_id))
    )
