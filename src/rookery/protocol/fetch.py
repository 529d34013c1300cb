"""Fetch by hand: read and written without copying the records, and without looking at them.

A fetched batch is a slice of a file that the connection hands to the socket. The tests compare both with the general
codec, for every version. What the versions changed:

    request   v5 log start offset, v7 sessions, v9 leader epoch, v11 rack, v12 flexible and last fetched epoch,
              v13 topics by id, v15 replica state becomes a tagged field, v17 directory id, v18 high watermark
    response  v5 log start offset, v7 session, v11 preferred replica, v12 leader hints, v16 endpoints
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.errors import ErrorCode, ProtocolError
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
    read_topic,
    skip_tags,
    write_endpoints,
)
from rookery.protocol.framing import parts_size
from rookery.protocol.wire import MALFORMED, malformed

_FETCH_FLEXIBLE = 12
_FETCH_TOPIC_IDS = 13
_NO_HIGH_WATERMARK = 2**63 - 1
_CONSUMER = -1


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
    """One of name and id is None, depending on the version."""

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
    rack_id: str
    cluster_id: str | None
    replica_epoch: int


class FetchPartitionResult(NamedTuple):
    partition: PartitionIndex
    error_code: int = ErrorCode.NONE
    high_watermark: Offset = -1
    last_stable_offset: Offset = -1
    log_start_offset: Offset = -1
    # (producer id, first offset); None unless the fetch reads committed records only
    aborted_transactions: Sequence[tuple[int, Offset]] | None = None
    preferred_read_replica: NodeId = -1
    records: Sequence[Buffer | FileSlice] | None = ()
    # (epoch, end offset)
    diverging_epoch: tuple[LeaderEpoch, Offset] | None = None
    current_leader: tuple[NodeId, LeaderEpoch] | None = None
    # (end offset, epoch)
    snapshot_id: tuple[Offset, LeaderEpoch] | None = None


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
            cluster_id = _read_whole(wire.read_compact_nullable_string, tagged[0])
        if 1 in tagged and version >= 15:
            replica_id, replica_epoch = _read_whole(_read_replica_state, tagged[1])
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


def _read_whole(read: Callable[[Buffer, int], tuple[Any, int]], data: Buffer) -> Any:
    """Read a tagged field, which must fill its bytes."""
    value, end = read(data, 0)
    if end != len(data):
        raise ProtocolError("a tagged field does not have the bytes that it claims")
    return value


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
        partition = partition._replace(replica_directory_id=_read_whole(wire.read_uuid, tagged[0]))
    if 1 in tagged and version >= 18:
        partition = partition._replace(high_watermark=_read_whole(_read_int64, tagged[1]))
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
    """The parts of the body, in order. Records stay what they are: buffers or slices of files."""
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
    """Everything of a partition up to its records."""
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
