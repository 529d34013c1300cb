"""Shared parts of the hand-written Produce and Fetch: the primitives of each version, topic names or ids, endpoints."""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from rookery.base.bounds import WHOLE_REQUEST_ITEMS_MAX
from rookery.base.errors import ProtocolError, UnsupportedVersionError
from rookery.base.types import Buffer, LeaderEpoch, NodeId
from rookery.protocol import wire
from rookery.protocol.api import DEFINED, ApiKey

INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">ii")


class NodeEndpoint(NamedTuple):
    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


class Dialect(NamedTuple):
    """The primitives of one version: compact or plain lengths, topics by name or by id."""

    read_string: Callable[[Buffer, int], tuple[Any, int]]
    read_nullable_string: Callable[[Buffer, int], tuple[Any, int]]
    read_records: Callable[[Buffer, int], tuple[Any, int]]
    read_array_size: Callable[[Buffer, int, int], tuple[int, int]]
    write_string: Callable[[bytearray, Any], None]
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


def _dialect(*, flexible: bool, topic_ids: bool) -> Dialect:
    by_name = _write_compact_topic_name if flexible else _write_topic_name
    return Dialect(
        wire.STRING_READERS[flexible, False],
        wire.STRING_READERS[flexible, True],
        wire.read_compact_bytes_view if flexible else wire.read_bytes_view,
        wire.read_compact_array_size if flexible else wire.read_array_size,
        wire.STRING_WRITERS[flexible, False],
        wire.STRING_WRITERS[flexible, True],
        wire.write_compact_array_size if flexible else wire.write_array_size,
        _write_topic_id if topic_ids else by_name,
        flexible,
        topic_ids,
    )


_PLAIN = _dialect(flexible=False, topic_ids=False)
_COMPACT = _dialect(flexible=True, topic_ids=False)
_BY_ID = _dialect(flexible=True, topic_ids=True)


class Dialects(dict[int, Dialect]):
    """The dialect of each defined version of an API; raises UnsupportedVersionError for other versions."""

    def __init__(self, api_key: ApiKey, flexible_from: int, topic_ids_from: int) -> None:
        self._name = api_key.name
        for version in range(DEFINED[api_key].minimum, DEFINED[api_key].maximum + 1):
            self[version] = _PLAIN if version < flexible_from else _COMPACT if version < topic_ids_from else _BY_ID

    def __missing__(self, version: int) -> Dialect:
        raise UnsupportedVersionError(f"{self._name} has no version {version}")


def read_count(dialect: Dialect, data: Buffer, position: int) -> tuple[int, int]:
    """Read the size of a request's array that cannot be null. Items of Produce and Fetch have three or more bytes."""
    count, position = dialect.read_array_size(data, position, 3)
    if count < 0:
        raise ProtocolError("null where an array is needed")
    check_items(count)
    return count, position


def read_response_count(dialect: Dialect, data: Buffer, position: int) -> tuple[int, int]:
    """Read the size of a response's array that cannot be null.

    Unlike `read_count`, it has no limit on the items: the client has requested them.
    """
    count, position = dialect.read_array_size(data, position, 3)
    if count < 0:
        raise ProtocolError("null where an array is needed")
    return count, position


def check_items(count: int, items_max: int = WHOLE_REQUEST_ITEMS_MAX) -> None:
    if count > items_max:
        raise ProtocolError("a message with too many array items")


def read_topic(dialect: Dialect, data: Buffer, position: int) -> tuple[str | None, UUID | None, int]:
    if dialect.topic_ids:
        topic_id, position = wire.read_uuid(data, position)
        return None, topic_id, position
    name, position = dialect.read_string(data, position)
    return name, None, position


def skip_tags(data: Buffer, position: int) -> int:
    return position + 1 if data[position] == 0 else wire.skip_tagged_fields(data, position)


def read_whole(read: Callable[[Buffer, int], tuple[Any, int]], data: Buffer) -> Any:
    """Read a tagged field; raises ProtocolError unless it ends exactly at the end of `data`."""
    value, end = read(data, 0)
    if end != len(data):
        raise ProtocolError("a tagged field does not have the bytes that it claims")
    return value


def read_leader(data: Buffer, position: int) -> tuple[tuple[NodeId, LeaderEpoch], int]:
    """Read a hint about a partition's leader (KIP-951)."""
    leader_id, leader_epoch = _LEADER.unpack_from(data, position)
    return (leader_id, leader_epoch), skip_tags(data, position + _LEADER.size)


def read_endpoints(data: Buffer, position: int) -> tuple[list[NodeEndpoint], int]:
    """Read the brokers of the leader hints; `position` is after the tag."""
    count, position = read_response_count(_COMPACT, data, position)
    endpoints = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(data, position)
        host, position = _COMPACT.read_string(data, position + 4)
        (port,) = INT32.unpack_from(data, position)
        rack, position = _COMPACT.read_nullable_string(data, position + 4)
        position = skip_tags(data, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return endpoints, position


def write_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    if not endpoints:
        out.append(0)
        return
    encoded = bytearray()
    wire.write_compact_array_size(encoded, len(endpoints))
    for endpoint in endpoints:
        encoded += INT32.pack(endpoint.node_id)
        wire.write_compact_string(encoded, endpoint.host)
        encoded += INT32.pack(endpoint.port)
        wire.write_compact_nullable_string(encoded, endpoint.rack)
        encoded.append(0)
    wire.write_tagged_fields(out, [(0, encoded)])
