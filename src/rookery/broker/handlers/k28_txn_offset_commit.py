"""TxnOffsetCommit (28): a producer commits a group's offsets as part of its transaction.

The offsets are pending until the transaction ends. The group's partition of `__consumer_offsets` must be part of the
transaction. Until v4 the client has added it with AddOffsetsToTxn, which is verified (TRANSACTION_ABORTABLE if it has
not), unless `transaction.partition.verification.enable` is off; from v5 on it is added here. Topics and partitions that
do not exist are UNKNOWN_TOPIC_OR_PARTITION, and metadata above `offset.metadata.max.bytes` is
OFFSET_METADATA_TOO_LARGE; both are errors of single partitions. An empty group id is INVALID_GROUP_ID. A producer that
was fenced is INVALID_PRODUCER_EPOCH. If the transaction ends during the verification, the offsets are
INVALID_TXN_STATE. If the transaction's coordinator, which may be on another broker, cannot be asked, the offsets are
COORDINATOR_LOAD_IN_PROGRESS: the producer retries, without a look-up of the group's coordinator, which has not moved.

Versions: v2 leader epochs, and COORDINATOR_LOAD_IN_PROGRESS, which is COORDINATOR_NOT_AVAILABLE before. v3 flexible;
member id, generation and instance id, with UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (also for a stale member epoch) and
FENCED_INSTANCE_ID. v4 TRANSACTION_ABORTABLE, which is INVALID_TXN_STATE before. v5 adds the partition (KIP-890).
"""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_LEADER_EPOCH, TopicPartition
from rookery.broker.answers import CONNECTION_ERRORS, COORDINATOR_ERRORS, respond
from rookery.broker.context import RequestContext
from rookery.broker.partition_codes import codes_by_topic
from rookery.coordinators.group.offsets.commit import CommittedPartition, OffsetToCommit
from rookery.coordinators.group.offsets.transactional import TransactionalCommitRequest
from rookery.coordinators.runtime import ResponseFuture
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.protocol.messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_LOADING_SINCE = 2
_ABORTABLE_SINCE = 4
_ADDED_SINCE = 5

# The transaction coordinator was not reached, or it has not yet the image with the group's partition.
_UNVERIFIED = COORDINATOR_ERRORS | CONNECTION_ERRORS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class _Commit(NamedTuple):
    """A request, and the offsets of it that can be committed: those of partitions that exist."""

    context: RequestContext
    request: TxnOffsetCommitRequest
    offsets: tuple[OffsetToCommit, ...]
    # Invalid after the transaction has ended; an error if the group has no coordinator here.
    guard: object | ErrorCode


def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    guard = context.services.groups.guard(request.group_id, request.producer_id)
    commit = _Commit(context, request, _offsets(context, request), guard)
    if not commit.offsets:
        return _respond(commit, ())
    if not request.group_id:
        return _respond(commit, ErrorCode.INVALID_GROUP_ID)
    if isinstance(guard, ErrorCode):
        return _respond(commit, guard)
    verification = _verify_transaction(commit)
    if isinstance(verification, asyncio.Future) and not verification.done():
        return _commit_later(commit, verification)
    error_code = _verification_error(
        verification.result() if isinstance(verification, asyncio.Future) else verification
    )
    if error_code is not ErrorCode.NONE:
        return _respond(commit, error_code)
    return respond(_write(commit), lambda result: _respond(commit, result))


async def _commit_later(commit: _Commit, verification: ResponseFuture[VerifiedPartitions]) -> TxnOffsetCommitResponse:
    error_code = _verification_error(await verification)
    return _respond(commit, await _write(commit) if error_code is ErrorCode.NONE else error_code)


def _offsets(context: RequestContext, request: TxnOffsetCommitRequest) -> tuple[OffsetToCommit, ...]:
    known = context.services.image.topics
    return tuple(
        OffsetToCommit(
            TopicPartition(topic.name, partition.partition_index),
            partition.committed_offset,
            partition.get("committed_leader_epoch", NO_LEADER_EPOCH),
            partition.committed_metadata or "",
        )
        for topic in request.topics
        if topic.name in known
        for partition in topic.partitions
        if partition.partition_index in known[topic.name].partitions
    )


def _verify_transaction(commit: _Commit) -> ResponseFuture[VerifiedPartitions] | ErrorCode:
    """Verify that the group's partition is part of the transaction, or add it; NONE if verification is disabled."""
    context, request = commit.context, commit.request
    services = context.services
    partition = services.groups.partition_of(request.group_id)
    assert partition is not None, "the group has a coordinator"
    wanted = AddRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=frozenset({partition}),
    )
    if context.api_version >= _ADDED_SINCE:
        return services.partition_transactions.add_partitions(wanted)
    if not services.config().boolean("transaction.partition.verification.enable"):
        return ErrorCode.NONE
    return services.partition_transactions.verify_partitions(wanted)


def _verification_error(result: VerifiedPartitions | ErrorCode) -> ErrorCode:
    codes = [result] if isinstance(result, ErrorCode) else [code for _, code in result]
    found = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if found in _UNVERIFIED else found


def _write(commit: _Commit) -> ResponseFuture[tuple[CommittedPartition, ...]]:
    request = commit.request
    return commit.context.services.groups.commit_transactional(
        TransactionalCommitRequest(
            group_id=request.group_id,
            member_id=request.get("member_id", ""),
            instance_id=request.get("group_instance_id"),
            generation=request.get("generation_id", -1),
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            guard=commit.guard,
            offsets=commit.offsets,
        )
    )


def _respond(commit: _Commit, result: tuple[CommittedPartition, ...] | ErrorCode) -> TxnOffsetCommitResponse:
    if isinstance(result, ErrorCode):
        error_code = _known_code(result, commit.context.api_version)
        codes = {item.partition: error_code for item in commit.offsets}
    else:
        codes = dict(result)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for name, partitions in codes_by_topic(commit.request.topics, codes)
        ],
    )


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return `code`, or the corresponding code that producers of the version know."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
