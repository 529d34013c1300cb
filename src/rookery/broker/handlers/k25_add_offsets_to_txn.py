"""AddOffsetsToTxn (25): add a group's offsets to a transaction, before they are committed in it.

The request adds the partition of `__consumer_offsets` in which the group's offsets are stored. If the topic does not
exist yet, it is created here.

Versions: v2 may return PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v3 flexible. v4 may return
TRANSACTION_ABORTABLE, which never happens here.
"""

from collections.abc import Awaitable

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker import internal_topics
from rookery.broker.answers import code_known_to, respond
from rookery.broker.context import RequestContext
from rookery.coordinators.runtime import ResponseFuture
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.metadata.internal_topics import OFFSETS_TOPIC
from rookery.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_SINCE = 2


def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    partition = context.services.groups.partition_of(request.group_id)
    if partition is None:
        return _create_and_add(context, request)
    return respond(_add(context, request, partition), lambda code: _respond(context.api_version, code))


async def _create_and_add(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    await internal_topics.create(context.services, OFFSETS_TOPIC)
    partition = context.services.groups.partition_of(request.group_id)
    if partition is None:
        return _respond(context.api_version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _respond(context.api_version, await _add(context, request, partition))


def _add(
    context: RequestContext, request: AddOffsetsToTxnRequest, partition: TopicPartition
) -> ResponseFuture[VerifiedPartitions]:
    return context.services.transactions.add_partitions(
        AddRequest(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=frozenset({partition}),
        )
    )


def _respond(version: int, code: VerifiedPartitions | ErrorCode) -> AddOffsetsToTxnResponse:
    assert isinstance(code, ErrorCode), "an addition has one code for all partitions"
    return AddOffsetsToTxnResponse(error_code=code_known_to(version, code, fenced_since=_FENCED_SINCE))
