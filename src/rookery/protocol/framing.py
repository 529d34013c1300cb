"""Frames and headers: the bytes around every request and response.

A frame is a four-byte size and that many bytes. A request begins with header v1, or v2 if the version of the API is
flexible. A response begins with header v0, or v1 if the version is flexible, except that an ApiVersions response always
has v0, because the client does not know yet which versions the broker supports (KIP-511). `docs/formats/requests.md`
has an example.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from rookery.base.errors import ProtocolError
from rookery.base.files import FileSlice
from rookery.base.types import Buffer
from rookery.protocol.api import ApiKey, is_flexible
from rookery.protocol.wire import MALFORMED, malformed, skip_tagged_fields

SIZE_BYTES = 4

_REQUEST_START = struct.Struct(">hhih")
_REQUEST_FRAME_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")
_FLEXIBLE_RESPONSE_START = struct.Struct(">iib")
_NO_TAGGED_FIELDS = b"\x00"


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def parse_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a frame (without its size) and the position of the body.

    An unknown API key or version is not an error here: the caller responds to it, and needs the correlation id.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST_START.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header") from error
    position = _REQUEST_START.size
    client_id = None
    if size >= 0:
        client_id, position = _read_client_id(frame, position, position + size)
    if is_flexible(api_key, version):
        # Hardly any client sends tagged fields: check for the byte that says so first.
        has_none = position < len(frame) and frame[position] == 0
        position = position + 1 if has_none else _skip_tagged_fields(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _read_client_id(frame: Buffer, position: int, end: int) -> tuple[str, int]:
    """Read the client id. It is a plain string even in a flexible header, for brokers that do not know the version."""
    if end > len(frame):
        raise ProtocolError("the client id is longer than the request")
    try:
        return str(frame[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise ProtocolError("the client id is not UTF-8") from error


def _skip_tagged_fields(frame: Buffer, position: int) -> int:
    try:
        return skip_tagged_fields(frame, position)
    except MALFORMED as error:
        raise malformed("a header", error) from error


_API_VERSIONS = int(ApiKey.API_VERSIONS)


def has_flexible_response_header(api_key: int, version: int) -> bool:
    return api_key != _API_VERSIONS and is_flexible(api_key, version)


def response_prefix(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """Return the bytes before a response's body: the size of the frame and the header."""
    if has_flexible_response_header(api_key, version):
        return _FLEXIBLE_RESPONSE_START.pack(body_size + 5, correlation_id, 0)
    return _RESPONSE_START.pack(body_size + 4, correlation_id)


def parts_size(parts: Iterable[Buffer | FileSlice]) -> int:
    """Return the size of a body in bytes, without reading the file slices."""
    size = 0
    for part in parts:
        size += part.size if type(part) is FileSlice else len(part)
    return size


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """Return the correlation id of a frame (without its size) and the position of the body."""
    if len(frame) < 4:
        raise ProtocolError(f"a response of {len(frame)} bytes has no header")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    if has_flexible_response_header(api_key, version):
        return correlation_id, _skip_tagged_fields(frame, 4)
    return correlation_id, 4


def encode_request_frame(header: RequestHeader, body: Buffer) -> bytes:
    """Return a whole request, size included."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    client_id_size = -1 if header.client_id is None else len(client_id)
    tail = _NO_TAGGED_FIELDS if is_flexible(header.api_key, header.api_version) else b""
    size = _REQUEST_START.size + len(client_id) + len(tail) + len(body)
    start = _REQUEST_FRAME_START.pack(size, header.api_key, header.api_version, header.correlation_id, client_id_size)
    return b"".join((start, client_id, tail, body))
