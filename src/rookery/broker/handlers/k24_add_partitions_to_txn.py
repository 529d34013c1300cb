"""AddPartitionsToTxn (24): partitions become part of a transaction, before or while their records are written.

All or nothing: if one partition cannot be added, those that could are OPERATION_NOT_ATTEMPTED. A partition that does
not exist is UNKNOWN_TOPIC_OR_PARTITION; to a client, one of an internal topic is TOPIC_AUTHORIZATION_FAILED. Whatever
the coordinator says (INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS and so on) is every partition's answer.

Versions: v0 to v3 are the clients', with one transaction; v4 and v5 the brokers', with several, which may ask whether
partitions are in their transaction instead of adding them (`verify_only`): those that are not are
TRANSACTION_ABORTABLE. v2 may answer PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v3 flexible.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from rookery.broker.answers import known_to, respond_to_all
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


class _Asked(NamedTuple):
    """One transaction of a request, of whatever version."""

    add: AddRequest
    topics: Sequence[AddPartitionsToTxnTopic]
    verify_only: bool


def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    asked = list(_transactions(context, request))

    def convert(outcomes: list[VerifiedPartitions | ErrorCode]) -> AddPartitionsToTxnResponse:
        results = [_results(context, each, outcome) for each, outcome in zip(asked, outcomes, strict=True)]
        if context.api_version < _BATCHES_SINCE:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
        return AddPartitionsToTxnResponse(
            error_code=ErrorCode.NONE,
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=each.add.transactional_id, topic_results=result)
                for each, result in zip(asked, results, strict=True)
            ],
        )

    return respond_to_all([_carry_out(context, each) for each in asked], convert)


def _transactions(context: RequestContext, request: AddPartitionsToTxnRequest) -> Iterator[_Asked]:
    if context.api_version >= _BATCHES_SINCE:
        for item in request.get("transactions", ()):
            add = _add_request(item.transactional_id, item.producer_id, item.producer_epoch, item.topics)
            yield _Asked(add, item.topics, item.verify_only)
    else:
        topics = request.get("v3_and_below_topics", ())
        add = _add_request(
            request.get("v3_and_below_transactional_id", ""),
            request.get("v3_and_below_producer_id", NO_PRODUCER_ID),
            request.get("v3_and_below_producer_epoch", NO_PRODUCER_EPOCH),
            topics,
        )
        yield _Asked(add, topics, verify_only=False)


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


def _carry_out(context: RequestContext, asked: _Asked) -> ResponseFuture[VerifiedPartitions]:
    refused = _refused(context, asked.topics)
    if refused:
        answer: ResponseFuture[VerifiedPartitions] = asyncio.get_running_loop().create_future()
        answer.set_result(
            tuple((each, refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)) for each in asked.add.partitions)
        )
        return answer
    transactions = context.services.transactions
    if asked.verify_only:
        return transactions.verify_partitions(asked.add)
    # An addition is answered by one code for all, which an answer may be in any case.
    return cast(ResponseFuture[VerifiedPartitions], transactions.add_partitions(asked.add))


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
    context: RequestContext, asked: _Asked, outcome: VerifiedPartitions | ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    codes: Mapping[tuple[str, int], ErrorCode] = {} if isinstance(outcome, ErrorCode) else dict(outcome)
    for_all = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE

    told = {
        code: known_to(context.api_version, code, fenced_since=_FENCED_SINCE) for code in {*codes.values(), for_all}
    }
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                # A plain tuple finds what was entered as a TopicPartition, and costs half as much: there may be many.
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=told[codes.get((topic.name, index), for_all)]
                )
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
