"""Hand-written codec of Produce, which neither copies nor parses the records.

In the broker a produced batch is a view of the request's frame; in the client it is a separate part of the body that is
written to the socket. The tests compare both directions of request and response with the general codec, for every
version. Changes by version:

    request   v9 flexible, v13 topics by id
    response  v5 log start offset, v8 error messages, v10 leader hints (KIP-951)
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.bounds import PRODUCE_PARTITIONS_MAX
from rookery.base.errors import ErrorCode
from rookery.base.types import Buffer, LeaderEpoch, NodeId, Offset, PartitionIndex, TimestampMs
from rookery.protocol import wire
from rookery.protocol.api import DEFINED, ApiKey
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
from rookery.protocol.wire import MALFORMED, malformed

_PRODUCE_FLEXIBLE = 9
_PRODUCE_TOPIC_IDS = 13
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
# The start of a flexible request, if the compact sizes of the transactional id and of the topics have one byte each.
_SINGLE_START = struct.Struct(">BhiB")
_ONE_ITEM = 2


# Plain tuples, because every request creates them. Either the name or the id of a topic is None, depending on the
# version.
ProducePartition: TypeAlias = tuple[PartitionIndex, memoryview | None]
ProduceTopic: TypeAlias = tuple[str | None, UUID | None, list[ProducePartition]]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResult(NamedTuple):
    index: PartitionIndex  # type: ignore[assignment]  # hides tuple.index, which is not needed
    error_code: int = ErrorCode.NONE
    base_offset: Offset = -1
    log_append_time_ms: TimestampMs = -1
    log_start_offset: Offset = -1
    # (index of the record in its batch, message)
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    # (leader id, leader epoch), for a client that sent its request to the wrong broker
    current_leader: tuple[NodeId, LeaderEpoch] | None = None


ProduceTopicResult: TypeAlias = tuple[str | None, UUID | None, Sequence[ProducePartitionResult]]
# The records of a partition in a client's request, as a sequence of buffers that are not copied.
OutgoingPartition: TypeAlias = tuple[PartitionIndex, Sequence[Buffer]]
OutgoingTopic: TypeAlias = tuple[str | None, UUID | None, Sequence[OutgoingPartition]]


class ProduceResponse(NamedTuple):
    topics: list[tuple[str | None, UUID | None, list[ProducePartitionResult]]]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]


_PRODUCE_DIALECTS = Dialects(ApiKey.PRODUCE, _PRODUCE_FLEXIBLE, _PRODUCE_TOPIC_IDS)


def decode_produce(version: int, frame: Buffer, position: int = 0) -> ProduceRequest:
    """Decode a request. The records are views of `frame`: writable if it is, and valid as long as it is."""
    dialect = _PRODUCE_DIALECTS[version]
    data = memoryview(frame)
    try:
        return (dialect.flexible and _read_single_batch(dialect, data, position)) or _read_produce(
            dialect, data, position
        )
    except MALFORMED as error:
        raise malformed("ProduceRequest", error) from error


def _read_single_batch(dialect: Dialect, data: memoryview, position: int) -> ProduceRequest | None:
    """Decode the most frequent request, one batch for one partition, with a tenth of the calls; None for others."""
    transactional_id_size, acks, timeout_ms, topics_size = _SINGLE_START.unpack_from(data, position)
    if transactional_id_size != 0 or topics_size != _ONE_ITEM:
        return None
    position += _SINGLE_START.size
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
    (index,) = INT32.unpack_from(data, position + 1)
    records, position = dialect.read_records(data, position + 5)
    # The tagged fields of the partition, the topic and the request.
    if data[position : position + 3].tobytes() != b"\x00\x00\x00":
        return None
    return ProduceRequest(None, acks, timeout_ms, [(name, topic_id, [(index, records)])])


def _read_produce(dialect: Dialect, data: memoryview, position: int) -> ProduceRequest:
    transactional_id, position = dialect.read_nullable_string(data, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
    count, position = read_count(dialect, data, position + _ACKS_AND_TIMEOUT.size)
    topics, partition_count = [], 0
    for _ in range(count):
        name, topic_id, position = read_topic(dialect, data, position)
        partitions, position = _read_produce_partitions(dialect, data, position)
        partition_count += len(partitions)
        check_items(partition_count, PRODUCE_PARTITIONS_MAX)
        topics.append((name, topic_id, partitions))
    if dialect.flexible:
        skip_tags(data, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_produce_partitions(dialect: Dialect, data: memoryview, position: int) -> tuple[list[ProducePartition], int]:
    read_records, flexible = dialect.read_records, dialect.flexible
    count, position = read_count(dialect, data, position)
    partitions = []
    for _ in range(count):
        (index,) = INT32.unpack_from(data, position)
        records, position = read_records(data, position + 4)
        if flexible:
            position = skip_tags(data, position)
        partitions.append((index, records))
    return partitions, skip_tags(data, position) if flexible else position


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
    out += INT32.pack(throttle_time_ms)
    if node_endpoints and version >= 10:
        write_endpoints(out, node_endpoints)
    elif flexible:
        out.append(0)
    return bytes(out)


def _pack_result_v3(index: int, code: int, base_offset: Offset, append_time_ms: TimestampMs, _: Offset) -> bytes:
    return _RESULT_V3.pack(index, code, base_offset, append_time_ms)


_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")


def _produce_result_layout(version: int) -> tuple[Callable[..., bytes], bytes]:
    """Return the function that packs a partition's result, and the bytes that follow if there is no error."""
    if version < 5:
        return _pack_result_v3, b""
    if version < 8:
        return _RESULT_V5.pack, b""
    # No record errors, no message, no tagged fields.
    return _RESULT_V5.pack, b"\x00\x00\x00\x00\xff\xff" if version < _PRODUCE_FLEXIBLE else b"\x01\x00\x00"


_PRODUCE_RESULTS = [_produce_result_layout(version) for version in range(DEFINED[ApiKey.PRODUCE].maximum + 1)]


def _write_produce_errors(out: bytearray, version: int, dialect: Dialect, result: ProducePartitionResult) -> None:
    if version >= 8:
        dialect.write_array_size(out, len(result.record_errors))
        for index, message in result.record_errors:
            out += INT32.pack(index)
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


def encode_produce_request(
    version: int,
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[OutgoingTopic],
) -> list[Buffer]:
    """Return the parts of the body, in order. Depending on the version, the name or the id of a topic is sent."""
    dialect = _PRODUCE_DIALECTS[version]
    flexible = dialect.flexible
    parts: list[Buffer] = []
    out = bytearray()
    dialect.write_nullable_string(out, transactional_id)
    out += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    dialect.write_array_size(out, len(topics))
    for name, topic_id, partitions in topics:
        dialect.write_topic(out, name, topic_id)
        dialect.write_array_size(out, len(partitions))
        for index, records in partitions:
            size = 0
            for part in records:
                size += len(part)
            out += INT32.pack(index)
            if flexible:
                wire.write_varint(out, size + 1)
            else:
                out += INT32.pack(size)
            parts.append(out)
            parts += records
            # The partition's tagged fields.
            out = bytearray(b"\x00") if flexible else bytearray()
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        parts.append(out)
    return parts


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    """Decode a response; `body` begins after the response header."""
    dialect = _PRODUCE_DIALECTS[version]
    try:
        return _read_produce_response(version, dialect, memoryview(body))
    except MALFORMED as error:
        raise malformed("ProduceResponse", error) from error


def _read_produce_response(version: int, dialect: Dialect, data: memoryview) -> ProduceResponse:
    topics = []
    topic_count, position = read_response_count(dialect, data, 0)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(dialect, data, position)
        count, position = read_response_count(dialect, data, position)
        results = []
        for _ in range(count):
            result, position = _read_produce_result(version, dialect, data, position)
            results.append(result)
        if dialect.flexible:
            position = skip_tags(data, position)
        topics.append((name, topic_id, results))
    (throttle_time_ms,) = INT32.unpack_from(data, position)
    position += 4
    endpoints: list[NodeEndpoint] = []
    if dialect.flexible and data[position]:
        tagged, position = wire.read_tagged_fields(data, position)
        if 0 in tagged and version >= 10:
            endpoints = read_whole(read_endpoints, tagged[0])
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_produce_result(
    version: int, dialect: Dialect, data: memoryview, position: int
) -> tuple[ProducePartitionResult, int]:
    if version < 5:
        index, code, base_offset, append_time_ms = _RESULT_V3.unpack_from(data, position)
        return ProducePartitionResult(index, code, base_offset, append_time_ms), position + _RESULT_V3.size
    index, code, base_offset, append_time_ms, start_offset = _RESULT_V5.unpack_from(data, position)
    position += _RESULT_V5.size
    no_errors = _PRODUCE_RESULTS[version][1]
    if data[position : position + len(no_errors)] == no_errors:
        result = ProducePartitionResult(index, code, base_offset, append_time_ms, start_offset)
        return result, position + len(no_errors)
    errors, position = _read_record_errors(dialect, data, position)
    message, position = dialect.read_nullable_string(data, position)
    leader = None
    if dialect.flexible:
        tagged, position = wire.read_tagged_fields(data, position)
        if 0 in tagged and version >= 10:
            leader = read_whole(read_leader, tagged[0])
    result = ProducePartitionResult(index, code, base_offset, append_time_ms, start_offset, errors, message, leader)
    return result, position


def _read_record_errors(dialect: Dialect, data: memoryview, position: int) -> tuple[list[tuple[int, str | None]], int]:
    count, position = read_response_count(dialect, data, position)
    errors = []
    for _ in range(count):
        (index,) = INT32.unpack_from(data, position)
        message, position = dialect.read_nullable_string(data, position + 4)
        if dialect.flexible:
            position = skip_tags(data, position)
        errors.append((index, message))
    return errors, position
