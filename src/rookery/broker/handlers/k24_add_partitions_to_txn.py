"""AddPartitionsToTxn (24): add partitions to a transaction, before or while their records are written.

If one partition cannot be added, none is, and the others are OPERATION_NOT_ATTEMPTED. A partition that does
not exist is UNKNOWN_TOPIC_OR_PARTITION; to a client, one of an internal topic is TOPIC_AUTHORIZATION_FAILED. An
error of the coordinator (INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS and others) is every partition's error.

Versions: v0 to v3 are for clients, with one transaction. v4 and v5 are for brokers, with several, which may check
whether partitions are in their transaction instead of adding them (`verify_only`): those that are not are
TRANSACTION_ABORTABLE. v2 may return PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v3 flexible.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from rookery.broker.answers import code_known_to, respond_to_all
from rookery.broker.context import RequestContext
from rookery.coordinators.runtime import ResponseFuture
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.metadata.internal_topics import INTERNAL_TOPICS
from rookery.protocol.messages import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_FENCED_SINCE = 2
_BATCHES_SINCE = 4


class _TransactionItem(NamedTuple):
    """One transaction of a request of any version."""

    add: AddRequest
    topics: Sequence[AddPartitionsToTxnTopic]
    verify_only: bool


def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    items = list(_transactions(context, request))

    def convert(outcomes: list[VerifiedPartitions | ErrorCode]) -> AddPartitionsToTxnResponse:
        results = [_results(context, each, outcome) for each, outcome in zip(items, outcomes, strict=True)]
        if context.api_version < _BATCHES_SINCE:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
        return AddPartitionsToTxnResponse(
            error_code=ErrorCode.NONE,
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=each.add.transactional_id, topic_results=result)
                for each, result in zip(items, results, strict=True)
            ],
        )

    return respond_to_all([_carry_out(context, each) for each in items], convert)


def _transactions(context: RequestContext, request: AddPartitionsToTxnRequest) -> Iterator[_TransactionItem]:
    if context.api_version >= _BATCHES_SINCE:
        for item in request.get("transactions", ()):
            add = _add_request(item.transactional_id, item.producer_id, item.producer_epoch, item.topics)
            yield _TransactionItem(add, item.topics, item.verify_only)
    else:
        topics = request.get("v3_and_below_topics", ())
        add = _add_request(
            request.get("v3_and_below_transactional_id", ""),
            request.get("v3_and_below_producer_id", NO_PRODUCER_ID),
            request.get("v3_and_below_producer_epoch", NO_PRODUCER_EPOCH),
            topics,
        )
        yield _TransactionItem(add, topics, verify_only=False)


def _add_request(
    transactional_id: str, producer_id: int, producer_epoch: int, topics: Iterable[AddPartitionsToTxnTopic]
) -> AddRequest:
    return AddRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=frozenset(_partitions(topics)),
    )


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _carry_out(context: RequestContext, item: _TransactionItem) -> ResponseFuture[VerifiedPartitions]:
    refused = _refused(context, item.topics)
    if refused:
        answer: ResponseFuture[VerifiedPartitions] = asyncio.get_running_loop().create_future()
        answer.set_result(
            tuple((each, refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)) for each in item.add.partitions)
        )
        return answer
    transactions = context.services.transactions
    if item.verify_only:
        return transactions.verify_partitions(item.add)
    return transactions.add_partitions(item.add)


def _refused(context: RequestContext, topics: Iterable[AddPartitionsToTxnTopic]) -> Mapping[TopicPartition, ErrorCode]:
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = context.services.image.topics.get(topic.name)
        indexes = topic.partitions
        if context.api_version < _BATCHES_SINCE and topic.name in INTERNAL_TOPICS:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif found is not None:
            indexes = [index for index in indexes if index not in found.partitions]
        refused.update((TopicPartition(topic.name, index), code) for index in indexes)
    return refused


def _results(
    context: RequestContext, item: _TransactionItem, outcome: VerifiedPartitions | ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    codes: Mapping[tuple[str, int], ErrorCode] = {} if isinstance(outcome, ErrorCode) else dict(outcome)
    for_all = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE

    sent_codes = {
        code: code_known_to(context.api_version, code, fenced_since=_FENCED_SINCE)
        for code in {*codes.values(), for_all}
    }
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                # A plain tuple equals a TopicPartition and costs half as much: there may be many partitions.
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=sent_codes[codes.get((topic.name, index), for_all)]
                )
                for index in topic.partitions
            ],
        )
        for topic in item.topics
    ]
