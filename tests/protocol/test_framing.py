"""Headers of requests and responses."""

import random

import pytest

from rookery.base.errors import ProtocolError
from rookery.protocol import codec
from rookery.protocol.api import ApiKey
from rookery.protocol.framing import (
    RequestHeader,
    encode_request_frame,
    parse_request_header,
    parse_response_header,
    response_prefix,
)
from rookery.protocol.message import Message

# docs/formats/requests.md explains these two.
API_VERSIONS_REQUEST = bytes.fromhex("00000019 0012 0003 00000007 0004 74657374 00 05 6b636174 04 312e30 00")
API_VERSIONS_RESPONSE = bytes.fromhex("00000013 00000007 0000 02 0012 0000 0004 00 00000000 00")

HEADERS = [
    RequestHeader(ApiKey.METADATA, 1, 7, "test"),
    RequestHeader(ApiKey.METADATA, 12, -1, "täst"),
    RequestHeader(ApiKey.METADATA, 12, 2**31 - 1, None),
    RequestHeader(ApiKey.API_VERSIONS, 99, 1, ""),
    RequestHeader(12345, 3, 1, "unknown"),
]


@pytest.mark.parametrize("header", HEADERS)
def test_request_headers_round_trip(header: RequestHeader) -> None:
    frame = encode_request_frame(header, b"body")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    parsed, position = parse_request_header(memoryview(frame)[4:])
    assert parsed == header
    assert frame[4 + position :] == b"body"


@pytest.mark.parametrize("header", HEADERS)
def test_truncated_request_headers_are_rejected(header: RequestHeader) -> None:
    frame = encode_request_frame(header, b"")[4:]
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            parse_request_header(frame[:size])


def test_the_documented_request() -> None:
    header, position = parse_request_header(API_VERSIONS_REQUEST[4:])
    assert header == RequestHeader(ApiKey.API_VERSIONS, 3, 7, "test")
    message = codec.decode_request(ApiKey.API_VERSIONS, 3, API_VERSIONS_REQUEST[4:], position)
    assert message == Message(client_software_name="kcat", client_software_version="1.0")
    body = codec.encode_request(ApiKey.API_VERSIONS, 3, message)
    assert encode_request_frame(header, body) == API_VERSIONS_REQUEST


def test_the_documented_response() -> None:
    api = Message(api_key=18, min_version=0, max_version=4)
    message = Message(error_code=0, api_keys=[api], throttle_time_ms=0)
    body = codec.encode_response(ApiKey.API_VERSIONS, 3, message)
    assert response_prefix(ApiKey.API_VERSIONS, 3, 7, len(body)) + body == API_VERSIONS_RESPONSE


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 000c 00000001 ffff 01 05 02 aabb") + b"body"
    assert frame[parse_request_header(frame)[1] :] == b"body"


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("0003 000c 00000001 7fff 00"),  # a client id longer than the frame
        bytes.fromhex("0003 000c 00000001 0001 ff 00"),  # not UTF-8
        bytes.fromhex("0003 000c 00000001 ffff 01 05 7f 00"),  # a tagged field longer than the frame
        bytes.fromhex("0003 000c 00000001 ffff ffffffffff0f"),  # a varint that does not end
    ],
)
def test_malformed_headers_are_rejected(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(frame)


def test_garbage_raises_only_protocol_error() -> None:
    chance = random.Random(1)
    for _ in range(5000):
        frame = b"\x00\x03\x00\x0c" + chance.randbytes(chance.randint(0, 20))
        try:
            parse_request_header(frame)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    ("api_key", "version", "prefix"),
    [
        (ApiKey.METADATA, 1, "00000008 00000007"),
        (ApiKey.METADATA, 12, "00000009 00000007 00"),
        # A client must be able to read this response before it knows the broker's versions.
        (ApiKey.API_VERSIONS, 3, "00000008 00000007"),
    ],
)
def test_response_prefixes(api_key: int, version: int, prefix: str) -> None:
    encoded = response_prefix(api_key, version, correlation_id=7, body_size=4)
    assert encoded == bytes.fromhex(prefix)
    frame = (encoded + b"body")[4:]
    assert int.from_bytes(encoded[:4], "big") == len(frame)
    correlation_id, position = parse_response_header(api_key, version, frame)
    assert (correlation_id, frame[position:]) == (7, b"body")
    for size in range(position):
        with pytest.raises(ProtocolError):
            parse_response_header(api_key, version, frame[:size])
