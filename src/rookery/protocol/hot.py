"""Produce and Fetch by hand: the two messages that carry records, read and written without copying them.

A produced batch is a view of the request's frame; a fetched one is a slice of a file that the connection hands to the
socket. The tests compare both with the general codec, for every version. What the versions changed:

    Produce   v9 flexible, v13 topics by id
    response  v5 log start offset, v8 error messages, v10 leader hints (KIP-951)
    Fetch     v5 log start offset, v7 sessions, v9 leader epoch, v11 rack, v12 flexible and last fetched epoch,
              v13 topics by id, v15 replica state becomes a tagged field, v17 directory id, v18 high watermark
    response  v5 log start offset, v7 session, v11 preferred replica, v12 leader hints, v16 endpoints
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from rookery.base.files import FileSlice
from rookery.base.types import NO_TOPIC_ID, Buffer, LeaderEpoch, NodeId, Offset, PartitionIndex, TimestampMs
from rookery.protocol import wire
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.framing import parts_size
from rookery.protocol.wire import ITEMS_MAX, MALFORMED, malformed

_PRODUCE_FLEXIBLE = 9
_PRODUCE_TOPIC_IDS = 13
_FETCH_FLEXIBLE = 12
_FETCH_TOPIC_IDS = 13
_NO_HIGH_WATERMARK = 2**63 - 1
_CONSUMER = -1

_INT32 = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
# The sizes of a compact string and of a compact array, as the bytes that they are if they are small.
_LONE_START = struct.Struct(">BhiB")
_ONE_ITEM = 2


# Plain tuples, since every request makes them. Of a topic's name and id one is None, depending on the version.
ProducePartition: TypeAlias = tuple[PartitionIndex, memoryview | None]
ProduceTopic: TypeAlias = tuple[str | None, UUID | None, list[ProducePartition]]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResult(NamedTuple):
    index: PartitionIndex  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    error_code: int = ErrorCode.NONE
    base_offset: Offset = -1
    log_append_time_ms: TimestampMs = -1
    log_start_offset: Offset = -1
    # (index of the record in its batch, message)
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    # (leader id, leader epoch), for a client that asked the wrong broker
    current_leader: tuple[NodeId, LeaderEpoch] | None = None


class NodeEndpoint(NamedTuple):
    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


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


ProduceTopicResult: TypeAlias = tuple[str | None, UUID | None, Sequence[ProducePartitionResult]]
FetchTopicResult: TypeAlias = tuple[str | None, UUID | None, Sequence[FetchPartitionResult]]
_Parts: TypeAlias = list[Buffer | FileSlice]


class _Dialect(NamedTuple):
    """The primitives of one version: compact or not, topics by name or by id."""

    read_string: Callable[[Buffer, int], tuple[Any, int]]
    read_nullable_string: Callable[[Buffer, int], tuple[Any, int]]
    read_records: Callable[[Buffer, int], tuple[Any, int]]
    read_array_size: Callable[[Buffer, int, int], tuple[int, int]]
    write_nullable_string: Callable[[bytearray, Any], None]
    write_array_size: Callable[[bytearray, int], None]
    write_topic: Callable[[bytearray, str | None, UUID | None], None]
    flexible: bool
    topic_ids: bool


def _write_topic_name(out: bytearray, name: str | None, _: object) -> None:
    wire.write_string(out, name or "")


def _write_compact_topic_name(out: bytearray, name: str | None, _: object) -> None:
    wire.write_compact_string(out, name or "")


def _write_topic_id(out: bytearray, _: object, topic_id: UUID | None) -> None:
    wire.write_uuid(out, topic_id)


def _dialect(*, flexible: bool, topic_ids: bool) -> _Dialect:
    by_name = _write_compact_topic_name if flexible else _write_topic_name
    return _Dialect(
        wire.STRING_READERS[flexible, False],
        wire.STRING_READERS[flexible, True],
        wire.read_compact_bytes_view if flexible else wire.read_bytes_view,
        wire.read_compact_array_size if flexible else wire.read_array_size,
        wire.STRING_WRITERS[flexible, True],
        wire.write_compact_array_size if flexible else wire.write_array_size,
        _write_topic_id if topic_ids else by_name,
        flexible,
        topic_ids,
    )


_PLAIN = _dialect(flexible=False, topic_ids=False)
_COMPACT = _dialect(flexible=True, topic_ids=False)
_BY_ID = _dialect(flexible=True, topic_ids=True)


class _Dialects(dict[int, _Dialect]):
    """By version, of those that are defined."""

    def __init__(self, api_key: ApiKey, flexible_from: int, topic_ids_from: int) -> None:
        self._name = api_key.name
        for version in range(DEFINED[api_key].minimum, DEFINED[api_key].maximum + 1):
            self[version] = _PLAIN if version < flexible_from else _COMPACT if version < topic_ids_from else _BY_ID

    def __missing__(self, version: int) -> _Dialect:
        raise UnsupportedVersionError(f"{self._name} has no version {version}")


_PRODUCE_DIALECTS = _Dialects(ApiKey.PRODUCE, _PRODUCE_FLEXIBLE, _PRODUCE_TOPIC_IDS)
_FETCH_DIALECTS = _Dialects(ApiKey.FETCH, _FETCH_FLEXIBLE, _FETCH_TOPIC_IDS)


def decode_produce(version: int, frame: Buffer, position: int = 0) -> ProduceRequest:
    """The records are views of `frame`: writable if it is, and valid as long as it is."""
    dialect = _PRODUCE_DIALECTS[version]
    data = memoryview(frame)
    try:
        return (dialect.flexible and _read_lone_batch(dialect, data, position)) or _read_produce(
            dialect, data, position
        )
    except MALFORMED as error:
        raise malformed("ProduceRequest", error) from error


def _read_lone_batch(dialect: _Dialect, data: memoryview, position: int) -> ProduceRequest | None:
    """The most frequent request, a batch for one partition, in a tenth of the calls; None for any other shape."""
    transactional_id_size, acks, timeout_ms, topics_size = _LONE_START.unpack_from(data, position)
    if transactional_id_size != 0 or topics_size != _ONE_ITEM:
        return None
    position += _LONE_START.size
    name, topic_id = None, None
    if dialect.topic_ids:
        topic_id, position = wire.read_uuid(data, position)
    elif 0 < (name_size := data[position]) < 0x80:
        name = str(data[position + 1 : position + name_size], "utf-8")
        position += name_size
    else:
        return None
    if data[position] != _ONE_ITEM:
        return None
    (index,) = _INT32.unpack_from(data, position + 1)
    records, position = dialect.read_records(data, position + 5)
    # The tagged fields of the partition, the topic and the request.
    if data[position : position + 3].tobytes() != b"\x00\x00\x00":
        return None
    return ProduceRequest(None, acks, timeout_ms, [(name, topic_id, [(index, records)])])


def _read_produce(dialect: _Dialect, data: memoryview, position: int) -> ProduceRequest:
    transactional_id, position = dialect.read_nullable_string(data, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
    count, position = _read_count(dialect, data, position + _ACKS_AND_TIMEOUT.size)
    topics, partition_count = [], 0
    for _ in range(count):
        name, topic_id, position = _read_topic(dialect, data, position)
        partitions, position = _read_produce_partitions(dialect, data, position)
        partition_count += len(partitions)
        _check_items(partition_count)
        topics.append((name, topic_id, partitions))
    if dialect.flexible:
        _skip_tags(data, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_produce_partitions(dialect: _Dialect, data: memoryview, position: int) -> tuple[list[ProducePartition], int]:
    read_records, flexible = dialect.read_records, dialect.flexible
    count, position = _read_count(dialect, data, position)
    partitions = []
    for _ in range(count):
        (index,) = _INT32.unpack_from(data, position)
        records, position = read_records(data, position + 4)
        if flexible:
            position = _skip_tags(data, position)
        partitions.append((index, records))
    return partitions, _skip_tags(data, position) if flexible else position


def _read_count(dialect: _Dialect, data: Buffer, position: int) -> tuple[int, int]:
    """The size of an array that cannot be null. Whatever the items are, none is smaller than three bytes."""
    count, position = dialect.read_array_size(data, position, 3)
    if count < 0:
        raise ProtocolError("null where an array is needed")
    _check_items(count)
    return count, position


def _check_items(count: int) -> None:
    if count > ITEMS_MAX:
        raise ProtocolError("a message with too many array items")


def _read_topic(dialect: _Dialect, data: Buffer, position: int) -> tuple[str | None, UUID | None, int]:
    if dialect.topic_ids:
        topic_id, position = wire.read_uuid(data, position)
        return None, topic_id, position
    name, position = dialect.read_string(data, position)
    return name, None, position


def _skip_tags(data: Buffer, position: int) -> int:
    return position + 1 if data[position] == 0 else wire.skip_tagged_fields(data, position)


def encode_produce_response(
    version: int,
    topics: Sequence[ProduceTopicResult],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    dialect = _PRODUCE_DIALECTS[version]
    pack_result, no_errors = _PRODUCE_RESULTS[version]
    write_array_size, flexible = dialect.write_array_size, dialect.flexible
    out = bytearray()
    write_array_size(out, len(topics))
    for name, topic_id, results in topics:
        dialect.write_topic(out, name, topic_id)
        write_array_size(out, len(results))
        for result in results:
            index, code, base_offset, append_time_ms, start_offset, errors, message, leader = result
            out += pack_result(index, code, base_offset, append_time_ms, start_offset)
            if errors or message is not None or leader is not None:
                _write_produce_errors(out, version, dialect, result)
            else:
                out += no_errors
        if flexible:
            out.append(0)
    out += _INT32.pack(throttle_time_ms)
    if node_endpoints and version >= 10:
        _write_endpoints(out, node_endpoints)
    elif flexible:
        out.append(0)
    return bytes(out)


def _pack_result_v3(index: int, code: int, base_offset: Offset, append_time_ms: TimestampMs, _: Offset) -> bytes:
    return _RESULT_V3.pack(index, code, base_offset, append_time_ms)


_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")


def _produce_result_layout(version: int) -> tuple[Callable[..., bytes], bytes]:
    """What packs a partition's result, and the bytes that follow where there is no error to tell."""
    if version < 5:
        return _pack_result_v3, b""
    if version < 8:
        return _RESULT_V5.pack, b""
    # No record errors, no message, no tagged fields.
    return _RESULT_V5.pack, b"\x00\x00\x00\x00\xff\xff" if version < _PRODUCE_FLEXIBLE else b"\x01\x00\x00"


_PRODUCE_RESULTS = [_produce_result_layout(version) for version in range(DEFINED[ApiKey.PRODUCE].maximum + 1)]


def _write_produce_errors(out: bytearray, version: int, dialect: _Dialect, result: ProducePartitionResult) -> None:
    if version >= 8:
        dialect.write_array_size(out, len(result.record_errors))
        for index, message in result.record_errors:
            out += _INT32.pack(index)
            dialect.write_nullable_string(out, message)
            if dialect.flexible:
                out.append(0)
        dialect.write_nullable_string(out, result.error_message)
    if not dialect.flexible:
        return
    if result.current_leader is None or version < 10:
        out.append(0)
    else:
        wire.write_tagged_fields(out, [(0, struct.pack(">iix", *result.current_leader))])


def _write_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    if not endpoints:
        out.append(0)
        return
    encoded = bytearray()
    wire.write_compact_array_size(encoded, len(endpoints))
    for endpoint in endpoints:
        encoded += _INT32.pack(endpoint.node_id)
        wire.write_compact_string(encoded, endpoint.host)
        encoded += _INT32.pack(endpoint.port)
        wire.write_compact_nullable_string(encoded, endpoint.rack)
        encoded.append(0)
    wire.write_tagged_fields(out, [(0, encoded)])


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


def _read_fetch(version: int, dialect: _Dialect, data: memoryview, position: int) -> FetchRequest:
    replica_id, replica_epoch, cluster_id = _CONSUMER, -1, None
    if version < 15:
        (replica_id,) = _INT32.unpack_from(data, position)
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


def _read_fetch_topics(
    version: int, dialect: _Dialect, data: memoryview, position: int
) -> tuple[list[FetchTopic], int]:
    read_partition, size = _partition_layout(version)
    topics, partition_count = [], 0
    topic_count, position = _read_count(dialect, data, position)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(dialect, data, position)
        count, position = _read_count(dialect, data, position)
        partition_count += count
        _check_items(partition_count)
        partitions = []
        for _ in range(count):
            partition = read_partition(data, position)
            position += size
            if dialect.flexible:
                partition, position = _read_partition_tags(version, data, position, partition)
            partitions.append(partition)
        if dialect.flexible:
            position = _skip_tags(data, position)
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


def _read_forgotten(dialect: _Dialect, data: memoryview, position: int) -> tuple[list[ForgottenTopic], int]:
    forgotten, partition_count = [], 0
    topic_count, position = _read_count(dialect, data, position)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(dialect, data, position)
        count, position = _read_count(dialect, data, position)
        partition_count += count
        _check_items(partition_count)
        partitions = list(struct.unpack_from(f">{count}i", data, position))
        position += 4 * count
        if dialect.flexible:
            position = _skip_tags(data, position)
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
    out = bytearray(_INT32.pack(throttle_time_ms))
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
        _write_endpoints(out, node_endpoints if version >= 16 else ())
    if out:
        parts.append(out)
    return parts


def _write_fetch_result(out: bytearray, version: int, dialect: _Dialect, result: FetchPartitionResult) -> None:
    """Everything of a partition up to its records."""
    if version >= 5:
        out += struct.pack(">ihqqq", *result[:5])
    else:
        out += struct.pack(">ihqq", *result[:4])
    _write_aborted(out, dialect, result.aborted_transactions)
    if version >= 11:
        out += _INT32.pack(result.preferred_read_replica)
    size = -1 if result.records is None else parts_size(result.records)
    if dialect.flexible:
        wire.write_varint(out, size + 1)
    else:
        out += _INT32.pack(size)


def _write_aborted(out: bytearray, dialect: _Dialect, aborted: Sequence[tuple[int, Offset]] | None) -> None:
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
