"""Hand-written codec of Fetch, which neither copies nor parses the records.

In the broker a fetched batch is a slice of a file that the connection passes to the socket; in the client it is a view
of the response's bytes. The tests compare both directions of request and response with the general codec, for every
version. Changes by version:

    request   v5 log start offset, v7 sessions, v9 leader epoch, v11 rack, v12 flexible and last fetched epoch,
              v13 topics by id, v15 replica state becomes a tagged field, v17 directory id, v18 high watermark
    response  v5 log start offset, v7 session, v11 preferred replica, v12 leader hints, v16 endpoints
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.errors import ErrorCode
from rookery.base.files import FileSlice
from rookery.base.types import NO_TOPIC_ID, Buffer, LeaderEpoch, NodeId, Offset, PartitionIndex
from rookery.protocol import wire
from rookery.protocol.api import ApiKey
from rookery.protocol.dialect import (
    INT32,
    Dialect,
    Dialects,
    NodeEndpoint,
    check_items,
    read_count,
    read_endpoints,
    read_leader,
    read_response_count,
    read_topic,
    read_whole,
    skip_tags,
    write_endpoints,
)
from rookery.protocol.framing import parts_size
from rookery.protocol.wire import MALFORMED, malformed

_FETCH_FLEXIBLE = 12
_FETCH_TOPIC_IDS = 13
_NO_HIGH_WATERMARK = 2**63 - 1
_CONSUMER = -1
_NO_EPOCH = -1


class FetchPartition(NamedTuple):
    partition: PartitionIndex
    fetch_offset: Offset
    partition_max_bytes: int
    current_leader_epoch: LeaderEpoch = -1
    last_fetched_epoch: LeaderEpoch = -1
    log_start_offset: Offset = -1
    replica_directory_id: UUID = NO_TOPIC_ID
    high_watermark: Offset = _NO_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """A topic of a request. Either the name or the id is None, depending on the version."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: list[PartitionIndex]


class FetchRequest(NamedTuple):
    replica_id: NodeId
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str = ""
    cluster_id: str | None = None
    replica_epoch: int = _NO_EPOCH


class FetchPartitionResult(NamedTuple):
    partition: PartitionIndex
    error_code: int = ErrorCode.NONE
    high_watermark: Offset = -1
    last_stable_offset: Offset = -1
    log_start_offset: Offset = -1
    # (producer id, first offset); None unless the fetch is `read_committed`
    aborted_transactions: Sequence[tuple[int, Offset]] | None = None
    preferred_read_replica: NodeId = -1
    records: Sequence[Buffer | FileSlice] | None = ()
    # (epoch, end offset)
    diverging_epoch: tuple[LeaderEpoch, Offset] | None = None
    current_leader: tuple[NodeId, LeaderEpoch] | None = None
    # (end offset, epoch)
    snapshot_id: tuple[Offset, LeaderEpoch] | None = None


class FetchedPartition(NamedTuple):
    """A partition of a response, for the client. `records` is a view of the response, valid as long as the response."""

    partition: PartitionIndex
    error_code: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    # (producer id, first offset); None unless the fetch is `read_committed`
    aborted_transactions: list[tuple[int, Offset]] | None
    preferred_read_replica: NodeId
    records: memoryview | None
    # (epoch, end offset)
    diverging_epoch: tuple[LeaderEpoch, Offset] | None = None
    current_leader: tuple[NodeId, LeaderEpoch] | None = None


FetchedTopic: TypeAlias = tuple[str | None, UUID | None, list[FetchedPartition]]


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]
    node_endpoints: list[NodeEndpoint]


FetchTopicResult: TypeAlias = tuple[str | None, UUID | None, Sequence[FetchPartitionResult]]
_Parts: TypeAlias = list[Buffer | FileSlice]
_FETCH_DIALECTS = Dialects(ApiKey.FETCH, _FETCH_FLEXIBLE, _FETCH_TOPIC_IDS)


_REQUEST_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")


def _partition_v4(data: Buffer, position: int) -> FetchPartition:
    return FetchPartition(*_PARTITION_V4.unpack_from(data, position))


def _partition_v5(data: Buffer, position: int) -> FetchPartition:
    partition, offset, log_start_offset, max_bytes = _PARTITION_V5.unpack_from(data, position)
    return FetchPartition(partition, offset, max_bytes, -1, -1, log_start_offset)


def _partition_v9(data: Buffer, position: int) -> FetchPartition:
    partition, epoch, offset, log_start_offset, max_bytes = _PARTITION_V9.unpack_from(data, position)
    return FetchPartition(partition, offset, max_bytes, epoch, -1, log_start_offset)


def _partition_v12(data: Buffer, position: int) -> FetchPartition:
    partition, epoch, offset, last_epoch, log_start_offset, max_bytes = _PARTITION_V12.unpack_from(data, position)
    return FetchPartition(partition, offset, max_bytes, epoch, last_epoch, log_start_offset)


def _partition_layout(version: int) -> tuple[Callable[[Buffer, int], FetchPartition], int]:
    if version >= 12:
        return _partition_v12, _PARTITION_V12.size
    if version >= 9:
        return _partition_v9, _PARTITION_V9.size
    if version >= 5:
        return _partition_v5, _PARTITION_V5.size
    return _partition_v4, _PARTITION_V4.size


def decode_fetch(version: int, frame: Buffer, position: int = 0) -> FetchRequest:
    dialect = _FETCH_DIALECTS[version]
    try:
        return _read_fetch(version, dialect, memoryview(frame), position)
    except MALFORMED as error:
        raise malformed("FetchRequest", error) from error


def _read_fetch(version: int, dialect: Dialect, data: memoryview, position: int) -> FetchRequest:
    replica_id, replica_epoch, cluster_id = _CONSUMER, -1, None
    if version < 15:
        (replica_id,) = INT32.unpack_from(data, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _REQUEST_LIMITS.unpack_from(data, position)
    position += _REQUEST_LIMITS.size
    session_id, session_epoch, rack_id = 0, -1, ""
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(data, position)
        position += _SESSION.size
    topics, position = _read_fetch_topics(version, dialect, data, position)
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        forgotten, position = _read_forgotten(dialect, data, position)
    if version >= 11:
        rack_id, position = dialect.read_string(data, position)
    if dialect.flexible and data[position]:
        tagged, position = wire.read_tagged_fields(data, position)
        if 0 in tagged:
            cluster_id = read_whole(wire.read_compact_nullable_string, tagged[0])
        if 1 in tagged and version >= 15:
            replica_id, replica_epoch = read_whole(_read_replica_state, tagged[1])
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        cluster_id,
        replica_epoch,
    )


def _read_replica_state(data: Buffer, position: int) -> tuple[tuple[NodeId, int], int]:
    replica_id, replica_epoch = struct.unpack_from(">iq", data, position)
    return (replica_id, replica_epoch), wire.skip_tagged_fields(data, position + 12)


def _read_fetch_topics(version: int, dialect: Dialect, data: memoryview, position: int) -> tuple[list[FetchTopic], int]:
    read_partition, size = _partition_layout(version)
    topics, partition_count = [], 0
    topic_count, position = read_count(dialect, data, position)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(dialect, data, position)
        count, position = read_count(dialect, data, position)
        partition_count += count
        check_items(partition_count)
        partitions = []
        for _ in range(count):
            partition = read_partition(data, position)
            position += size
            if dialect.flexible:
                partition, position = _read_partition_tags(version, data, position, partition)
            partitions.append(partition)
        if dialect.flexible:
            position = skip_tags(data, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _read_partition_tags(
    version: int, data: Buffer, position: int, partition: FetchPartition
) -> tuple[FetchPartition, int]:
    if data[position] == 0:
        return partition, position + 1
    tagged, position = wire.read_tagged_fields(data, position)
    if 0 in tagged and version >= 17:
        partition = partition._replace(replica_directory_id=read_whole(wire.read_uuid, tagged[0]))
    if 1 in tagged and version >= 18:
        partition = partition._replace(high_watermark=read_whole(_read_int64, tagged[1]))
    return partition, position


def _read_int64(data: Buffer, position: int) -> tuple[int, int]:
    return struct.unpack_from(">q", data, position)[0], position + 8


def _read_forgotten(dialect: Dialect, data: memoryview, position: int) -> tuple[list[ForgottenTopic], int]:
    forgotten, partition_count = [], 0
    topic_count, position = read_count(dialect, data, position)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(dialect, data, position)
        count, position = read_count(dialect, data, position)
        partition_count += count
        check_items(partition_count)
        partitions = list(struct.unpack_from(f">{count}i", data, position))
        position += 4 * count
        if dialect.flexible:
            position = skip_tags(data, position)
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchTopicResult],
    *,
    throttle_time_ms: int = 0,
    error_code: int = ErrorCode.NONE,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> _Parts:
    """Return the parts of the body, in order. Records are passed through as buffers or file slices."""
    dialect = _FETCH_DIALECTS[version]
    parts: _Parts = []
    out = bytearray(INT32.pack(throttle_time_ms))
    if version >= 7:
        out += struct.pack(">hi", error_code, session_id)
    dialect.write_array_size(out, len(topics))
    for name, topic_id, results in topics:
        dialect.write_topic(out, name, topic_id)
        dialect.write_array_size(out, len(results))
        for result in results:
            _write_fetch_result(out, version, dialect, result)
            if result.records:
                parts.append(out)
                parts += result.records
                out = bytearray()
            if dialect.flexible:
                _write_fetch_tags(out, result)
        if dialect.flexible:
            out.append(0)
    if dialect.flexible:
        write_endpoints(out, node_endpoints if version >= 16 else ())
    if out:
        parts.append(out)
    return parts


def _write_fetch_result(out: bytearray, version: int, dialect: Dialect, result: FetchPartitionResult) -> None:
    """Write the fields of a partition up to the size of its records."""
    if version >= 5:
        out += struct.pack(">ihqqq", *result[:5])
    else:
        out += struct.pack(">ihqq", *result[:4])
    _write_aborted(out, dialect, result.aborted_transactions)
    if version >= 11:
        out += INT32.pack(result.preferred_read_replica)
    size = -1 if result.records is None else parts_size(result.records)
    if dialect.flexible:
        wire.write_varint(out, size + 1)
    else:
        out += INT32.pack(size)


def _write_aborted(out: bytearray, dialect: Dialect, aborted: Sequence[tuple[int, Offset]] | None) -> None:
    if aborted is None:
        dialect.write_array_size(out, -1)
        return
    dialect.write_array_size(out, len(aborted))
    for transaction in aborted:
        out += struct.pack(">qqx" if dialect.flexible else ">qq", *transaction)


def _write_fetch_tags(out: bytearray, result: FetchPartitionResult) -> None:
    fields: list[tuple[int, Buffer]] = []
    if result.diverging_epoch is not None:
        fields.append((0, struct.pack(">iqx", *result.diverging_epoch)))
    if result.current_leader is not None:
        fields.append((1, struct.pack(">iix", *result.current_leader)))
    if result.snapshot_id is not None:
        fields.append((2, struct.pack(">qix", *result.snapshot_id)))
    wire.write_tagged_fields(out, fields)


_TWO_INT64 = struct.Struct(">qq")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESPONSE_V7 = struct.Struct(">ihi")


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """Encode a request; fields that the version does not have are left out."""
    dialect = _FETCH_DIALECTS[version]
    out = bytearray()
    if version < 15:
        out += INT32.pack(request.replica_id)
    out += _REQUEST_LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= 7:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    dialect.write_array_size(out, len(request.topics))
    for topic in request.topics:
        dialect.write_topic(out, topic.name, topic.topic_id)
        _write_fetch_partitions(out, version, dialect, topic.partitions)
    if version >= 7:
        _write_forgotten(out, dialect, request.forgotten_topics)
    if version >= 11:
        dialect.write_string(out, request.rack_id)
    if dialect.flexible:
        wire.write_tagged_fields(out, _fetch_request_tags(version, request))
    return bytes(out)


def _fetch_request_tags(version: int, request: FetchRequest) -> list[tuple[int, Buffer]]:
    fields: list[tuple[int, Buffer]] = []
    if request.cluster_id is not None:
        cluster_id = bytearray()
        wire.write_compact_nullable_string(cluster_id, request.cluster_id)
        fields.append((0, cluster_id))
    if version >= 15 and (request.replica_id, request.replica_epoch) != (_CONSUMER, _NO_EPOCH):
        fields.append((1, struct.pack(">iqx", request.replica_id, request.replica_epoch)))
    return fields


def _write_fetch_partitions(
    out: bytearray, version: int, dialect: Dialect, partitions: Sequence[FetchPartition]
) -> None:
    dialect.write_array_size(out, len(partitions))
    for partition in partitions:
        index, offset, max_bytes, epoch, last_epoch, start_offset, directory_id, high_watermark = partition
        if version >= 12:
            out += _PARTITION_V12.pack(index, epoch, offset, last_epoch, start_offset, max_bytes)
            fields: list[tuple[int, Buffer]] = []
            if version >= 17 and directory_id != NO_TOPIC_ID:
                fields.append((0, directory_id.bytes))
            if version >= 18 and high_watermark != _NO_HIGH_WATERMARK:
                fields.append((1, struct.pack(">q", high_watermark)))
            wire.write_tagged_fields(out, fields)
        elif version >= 9:
            out += _PARTITION_V9.pack(index, epoch, offset, start_offset, max_bytes)
        elif version >= 5:
            out += _PARTITION_V5.pack(index, offset, start_offset, max_bytes)
        else:
            out += _PARTITION_V4.pack(index, offset, max_bytes)
    if dialect.flexible:
        out.append(0)


def _write_forgotten(out: bytearray, dialect: Dialect, topics: Sequence[ForgottenTopic]) -> None:
    dialect.write_array_size(out, len(topics))
    for topic in topics:
        dialect.write_topic(out, topic.name, topic.topic_id)
        dialect.write_array_size(out, len(topic.partitions))
        out += struct.pack(f">{len(topic.partitions)}i", *topic.partitions)
        if dialect.flexible:
            out.append(0)


def decode_fetch_response(version: int, body: Buffer) -> FetchResponse:
    """Decode a response; `body` begins after the response header."""
    dialect = _FETCH_DIALECTS[version]
    try:
        return _read_fetch_response(version, dialect, memoryview(body))
    except MALFORMED as error:
        raise malformed("FetchResponse", error) from error


def _read_fetch_response(version: int, dialect: Dialect, data: memoryview) -> FetchResponse:
    error_code, session_id = 0, 0
    if version >= 7:
        throttle_time_ms, error_code, session_id = _RESPONSE_V7.unpack_from(data, 0)
        position = _RESPONSE_V7.size
    else:
        (throttle_time_ms,) = INT32.unpack_from(data, 0)
        position = INT32.size
    topics: list[FetchedTopic] = []
    topic_count, position = read_response_count(dialect, data, position)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(dialect, data, position)
        count, position = read_response_count(dialect, data, position)
        partitions = []
        for _ in range(count):
            partition, position = _read_fetched(version, dialect, data, position)
            partitions.append(partition)
        if dialect.flexible:
            position = skip_tags(data, position)
        topics.append((name, topic_id, partitions))
    endpoints: list[NodeEndpoint] = []
    if dialect.flexible and data[position]:
        tagged, position = wire.read_tagged_fields(data, position)
        if 0 in tagged and version >= 16:
            endpoints = read_whole(read_endpoints, tagged[0])
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _read_fetched(version: int, dialect: Dialect, data: memoryview, position: int) -> tuple[FetchedPartition, int]:
    start_offset = -1
    if version >= 5:
        index, code, high_watermark, stable_offset, start_offset = _RESULT_V5.unpack_from(data, position)
        position += _RESULT_V5.size
    else:
        index, code, high_watermark, stable_offset = _RESULT_V4.unpack_from(data, position)
        position += _RESULT_V4.size
    aborted, position = _read_aborted(dialect, data, position)
    replica = -1
    if version >= 11:
        (replica,) = INT32.unpack_from(data, position)
        position += 4
    records, position = dialect.read_records(data, position)
    diverging_epoch, leader = None, None
    if dialect.flexible:
        if data[position]:
            tagged, position = wire.read_tagged_fields(data, position)
            diverging_epoch, leader = _read_fetched_tags(tagged)
        else:
            position += 1
    partition = FetchedPartition(
        index,
        code,
        high_watermark,
        stable_offset,
        start_offset,
        aborted,
        replica,
        records,
        diverging_epoch,
        leader,
    )
    return partition, position


def _read_aborted(dialect: Dialect, data: memoryview, position: int) -> tuple[list[tuple[int, Offset]] | None, int]:
    count, position = dialect.read_array_size(data, position, _TWO_INT64.size)
    if count <= 0:
        return (None if count < 0 else []), position
    aborted = []
    for _ in range(count):
        aborted.append(_TWO_INT64.unpack_from(data, position))
        position += _TWO_INT64.size
        if dialect.flexible:
            position = skip_tags(data, position)
    return aborted, position


def _read_fetched_tags(
    tagged: dict[int, Buffer],
) -> tuple[tuple[LeaderEpoch, Offset] | None, tuple[NodeId, LeaderEpoch] | None]:
    diverging_epoch = read_whole(_read_diverging_epoch, tagged[0]) if 0 in tagged else None
    leader = read_whole(read_leader, tagged[1]) if 1 in tagged else None
    if 2 in tagged:
        # Only followers of the metadata log need the snapshot id. It is parsed so that malformed bytes are rejected.
        read_whole(_read_snapshot_id, tagged[2])
    return diverging_epoch, leader


def _read_diverging_epoch(data: Buffer, position: int) -> tuple[tuple[LeaderEpoch, Offset], int]:
    epoch, end_offset = struct.unpack_from(">iq", data, position)
    return (epoch, end_offset), skip_tags(data, position + 12)


def _read_snapshot_id(data: Buffer, position: int) -> tuple[tuple[Offset, LeaderEpoch], int]:
    end_offset, epoch = struct.unpack_from(">qi", data, position)
    return (end_offset, epoch), skip_tags(data, position + 12)
