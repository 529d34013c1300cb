"""SASL logins by hand on a socket, in the versions and with the messages that a test needs."""

import socket
from types import TracebackType
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Struct
from rookery.protocol.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest

TIMEOUT_S = 30


class RawLogin:
    """A connection on which the mechanism is chosen: `version` 0 of SaslHandshake is followed by bare tokens."""

    def __init__(self, address: str, mechanism: str, version: int = 1) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._version = version
        found = self.request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))
        assert found.error_code == ErrorCode.NONE

    def request(self, key: ApiKey, version: int, message: Struct) -> Any:
        body = encode_request(key, version, message)
        self._socket.sendall(encode_request_frame(RequestHeader(key, version, 7, "raw"), body))
        reply = self._frame()
        _, position = parse_response_header(key, version, reply)
        return decode_response(key, version, reply, position)

    def authenticate(self, message: bytes) -> Any:
        """Send a message of the mechanism in a request; returns the response."""
        return self.request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message))

    def send_token(self, token: bytes) -> None:
        self._socket.sendall(len(token).to_bytes(4, "big") + token)

    def exchange_token(self, token: bytes) -> bytes:
        self.send_token(token)
        return self._frame()

    def broker_addresses(self) -> list[str]:
        """Return the addresses in Metadata, which is served after a login only."""
        found = self.request(ApiKey.METADATA, 4, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return [f"{broker.host}:{broker.port}" for broker in found.brokers]

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection without another byte."""
        return self._socket.recv(1) == b""

    def _frame(self) -> bytes:
        size = int.from_bytes(self._receive(4), "big")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker has closed the connection"
            data += part
        return data

    def __enter__(self) -> "RawLogin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
