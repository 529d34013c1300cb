"""A client that sends exactly the bytes of a test, well formed or not, and reads whole responses."""

import socket
from types import TracebackType
from typing import Any

from rookery.base.types import Buffer
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Message

TIMEOUT_S = 30
CORRELATION_ID = 4711


class WireClient:
    """One connection. Every read raises after a time-out, so that a broker that hangs fails the test."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: Buffer) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """Return the next frame without its size; raises ConnectionError if the broker has closed the connection."""
        return self._read_exactly(int.from_bytes(self._read_exactly(4), "big"))

    def call(self, api_key: ApiKey, version: int, **fields: Any) -> Message:
        self.send(request_frame(api_key, version, **fields))
        return self.read_response(api_key, version)

    def read_response(self, api_key: ApiKey, version: int) -> Message:
        frame = self.read_frame()
        correlation_id, position = parse_response_header(api_key, version, frame)
        assert correlation_id == CORRELATION_ID
        return decode_response(api_key, version, frame, position)

    def is_closed_by_broker(self) -> bool:
        """Return whether the broker closes the connection without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)


def request_frame(api_key: ApiKey, version: int, **fields: Any) -> bytes:
    """Return a well-formed request, size included."""
    header = RequestHeader(api_key, version, CORRELATION_ID, "wire")
    return encode_request_frame(header, encode_request(api_key, version, Message(**fields)))


def produce_frame(topic: str, records: Buffer | None, *, version: int = 9, acks: int = -1) -> bytes:
    """Return a Produce request for partition 0; `records` may be any bytes."""
    partition = Message(index=0, records=None if records is None else bytes(records))
    return request_frame(
        ApiKey.PRODUCE,
        version,
        transactional_id=None,
        acks=acks,
        timeout_ms=TIMEOUT_S * 1000,
        topic_data=[Message(name=topic, partition_data=[partition])],
    )
