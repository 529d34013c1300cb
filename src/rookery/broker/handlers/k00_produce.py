"""Produce (0): append one batch per partition to logs that this broker leads.

Stage 1 checks each batch (header and CRC only), stamps it and appends the same bytes, in the order of the connection's
requests. The answer follows at once unless it has to wait: `acks=all` for the in-sync replicas, and any `acks` but 0
for the fsync that `flush.messages` asks for; what does not get there in time is answered with REQUEST_TIMED_OUT.

- `acks=0` has no answer; an error closes the connection, which is how the client learns of it.
- A batch that the log has already (same producer, epoch and sequence) is answered with its old offset and no error.
- Partitions fail on their own: NOT_ENOUGH_REPLICAS, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD (with the index
  of the record), INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR and so on.
- Transactional batches are refused with INVALID_TXN_STATE: no transaction can have been begun.

Versions: v0 to v2 carry old message formats; they are advertised, for the sake of old clients, and refused with
UNSUPPORTED_VERSION. v3 is the first with v2 batches. v5 log start offset. v7 may use zstd. v8 record errors and
messages. v9 flexible. v10 the current leader, where this broker is not it (KIP-951). v11 and v12 concern transactions.
v13 names topics by id.
"""

import struct
from collections.abc import Awaitable, Set
from typing import Final, NamedTuple

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.base.files import FileSlice
from rookery.base.types import Buffer, TimestampMs, TopicPartition
from rookery.broker.context import RequestContext
from rookery.broker.parking import park
from rookery.controller.topics import INTERNAL_TOPICS
from rookery.protocol.hot import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    decode_produce,
    encode_produce_response,
)
from rookery.replication.replica import ACKS_ALL, ACKS_NONE, Appended, Replica

_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
_ZSTD_SINCE = 7
OLD_VERSIONS: Final = range(3)
# Kafka's own admin tools may write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"


class _Waiting(NamedTuple):
    """An append that is not acknowledged yet, and the place of its result."""

    partition: TopicPartition
    replica: Replica
    appended: Appended
    results: list[ProducePartitionResult]
    place: int


def handle(
    context: RequestContext, frame: memoryview, position: int
) -> list[Buffer | FileSlice] | Awaitable[list[Buffer | FileSlice] | None] | None:
    request = decode_produce(context.api_version, frame, position)
    waiting: list[_Waiting] = []
    topics = _append_all(context, request, waiting)
    if request.acks == ACKS_NONE:
        _close_on_error(topics)
        return None
    if not waiting:
        return _encode(context, topics)
    return park(
        context.services.pending,
        [each.partition for each in waiting],
        timeout_ms=request.timeout_ms,
        is_ready=lambda changed: _are_settled(context, request.acks, waiting, changed),
        finish=lambda: _finish(context, request.acks, waiting, topics),
    )


def _append_all(context: RequestContext, request: ProduceRequest, waiting: list[_Waiting]) -> list[ProduceTopicResult]:
    now_ms = context.services.clock.now_ms()
    topics: list[ProduceTopicResult] = []
    for name, topic_id, partitions in request.topics:
        if topic_id is not None:
            name = context.services.replicas.topic_name(topic_id)
        refusal = _refuse_topic(context, request.acks, name)
        results: list[ProducePartitionResult] = []
        for index, records in partitions:
            if refusal is None and name is not None:
                _append(context, TopicPartition(name, index), records, request.acks, now_ms, results, waiting)
            else:
                results.append(ProducePartitionResult(index, refusal or ErrorCode.UNKNOWN_TOPIC_ID))
        topics.append((name, topic_id, results))
    return topics


def _refuse_topic(context: RequestContext, acks: int, name: str | None) -> ErrorCode | None:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return None


def _append(
    context: RequestContext,
    partition: TopicPartition,
    records: memoryview | None,
    acks: int,
    now_ms: TimestampMs,
    results: list[ProducePartitionResult],
    waiting: list[_Waiting],
) -> None:
    replica = context.services.replicas.find(partition)
    if isinstance(replica, ErrorCode):
        results.append(_fail(context, partition, replica))
        return
    appended = replica.append(
        records if records is not None else memoryview(b""),
        acks=acks,
        now_ms=now_ms,
        zstd_allowed=context.api_version >= _ZSTD_SINCE,
    )
    if appended.error_code is not ErrorCode.NONE:
        results.append(_fail(context, partition, appended.error_code, appended))
        return
    if acks != ACKS_NONE and not replica.is_acknowledged(appended.end_offset, acks):
        waiting.append(_Waiting(partition, replica, appended, results, len(results)))
    results.append(
        ProducePartitionResult(
            partition.partition,
            ErrorCode.NONE,
            appended.base_offset,
            appended.log_append_time_ms,
            appended.log_start_offset,
        )
    )


def _fail(
    context: RequestContext, partition: TopicPartition, code: ErrorCode, appended: Appended | None = None
) -> ProducePartitionResult:
    result = ProducePartitionResult(partition.partition, code)
    if appended is not None:
        index, message = appended.record_index, appended.message
        result = result._replace(
            log_start_offset=appended.log_start_offset,
            record_errors=() if index is None else ((index, message),),
            error_message=message,
        )
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        result = result._replace(current_leader=context.services.current_leader(partition))
    return result


def _are_settled(context: RequestContext, acks: int, waiting: list[_Waiting], changed: Set[TopicPartition]) -> bool:
    # Cheapest first: most wake-ups concern one partition, and one that is not there yet settles the question.
    return all(_settle(context, acks, each) is not None for each in waiting if each.partition in changed) and all(
        _settle(context, acks, each) is not None for each in waiting
    )


def _settle(context: RequestContext, acks: int, waiting: _Waiting) -> ErrorCode | None:
    """What became of an append; None while it has to wait."""
    replica = context.services.replicas.find(waiting.partition)
    if isinstance(replica, ErrorCode):
        return replica
    if replica is not waiting.replica or not replica.state.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not replica.is_acknowledged(waiting.appended.end_offset, acks):
        return None
    if acks == ACKS_ALL and not replica.has_enough_replicas:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


def _finish(
    context: RequestContext, acks: int, waiting: list[_Waiting], topics: list[ProduceTopicResult]
) -> list[Buffer | FileSlice]:
    for each in waiting:
        outcome = _settle(context, acks, each)
        if outcome is None:
            outcome = ErrorCode.REQUEST_TIMED_OUT
        if outcome is not ErrorCode.NONE:
            each.results[each.place] = _fail(context, each.partition, outcome)
    return _encode(context, topics)


def _encode(context: RequestContext, topics: list[ProduceTopicResult]) -> list[Buffer | FileSlice]:
    leaders = {
        result.current_leader[0] for _, _, results in topics for result in results if result.current_leader is not None
    }
    endpoints = context.services.endpoints(leaders, context.listener) if leaders else ()
    return [encode_produce_response(context.api_version, topics, node_endpoints=endpoints)]


def _close_on_error(topics: list[ProduceTopicResult]) -> None:
    for name, topic_id, results in topics:
        for result in results:
            if result.error_code != ErrorCode.NONE:
                code = ErrorCode(result.error_code).name
                raise ProtocolError(f"produce with acks=0 to {name or topic_id}-{result.index} failed: {code}")


def refuse_old_version(version: int, frame: memoryview, position: int) -> list[Buffer | FileSlice]:
    """The answer to v0 to v2: every partition UNSUPPORTED_VERSION."""
    try:
        return [_encode_refusal(version, frame, position)]
    except struct.error as error:
        raise ProtocolError(f"malformed Produce v{version}") from error


def _encode_refusal(version: int, frame: memoryview, position: int) -> bytes:
    """Copies the request's structure: acks, timeout, then arrays of topics and their partitions with records."""
    out = bytearray()
    acks, _, topic_count = struct.unpack_from(">hii", frame, position)
    if acks == ACKS_NONE:
        raise ProtocolError(f"Produce v{version} is not supported")
    position += 10
    out += struct.pack(">i", topic_count)
    for _ in range(topic_count):
        (name_size,) = struct.unpack_from(">h", frame, position)
        name, partition_count = struct.unpack_from(f">{max(name_size, 0)}si", frame, position + 2)
        position += 6 + len(name)
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", partition_count)
        for _ in range(partition_count):
            index, size = struct.unpack_from(">ii", frame, position)
            position += 8 + max(size, 0)
            out += struct.pack(">ihq", index, ErrorCode.UNSUPPORTED_VERSION, -1)
            out += struct.pack(">q", -1) if version >= 2 else b""
    return bytes(out + (struct.pack(">i", 0) if version >= 1 else b""))
