"""DescribeTransactions (65): the state of transactional ids that this broker coordinates.

Each id has its own error: TRANSACTIONAL_ID_NOT_FOUND for an unknown one, INVALID_REQUEST for an empty one, and errors
about the coordinator. The partitions are those of the open transaction, also while it is being ended.

Versions: v0, flexible.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, indexes_by_topic
from rookery.broker.answers import respond_to_all
from rookery.broker.context import RequestContext
from rookery.coordinators.txn.results import DescribedTransaction
from rookery.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopicData,
    DescribeTransactionsResponseTransactionState,
)


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    transactional_ids = request.transactional_ids

    def convert(results: list[DescribedTransaction | ErrorCode]) -> DescribeTransactionsResponse:
        states = [_state(*pair) for pair in zip(transactional_ids, results, strict=True)]
        return DescribeTransactionsResponse(transaction_states=states)

    transactions = context.services.transactions
    return respond_to_all([transactions.describe(each) for each in transactional_ids], convert)


def _state(
    transactional_id: str, found: DescribedTransaction | ErrorCode
) -> DescribeTransactionsResponseTransactionState:
    if isinstance(found, ErrorCode):
        return _missing(transactional_id, found)
    return DescribeTransactionsResponseTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            DescribeTransactionsResponseTopicData(topic=topic, partitions=indexes)
            for topic, indexes in indexes_by_topic(found.partitions).items()
        ],
    )


def _missing(transactional_id: str, code: ErrorCode) -> DescribeTransactionsResponseTransactionState:
    return DescribeTransactionsResponseTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        topics=[],
    )
