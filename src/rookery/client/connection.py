"""One socket to one broker: requests go out at once, responses find their request by correlation id.

`Connection.open` asks the broker for its API versions first; every request then uses the highest version that both
sides know. Whatever goes wrong with the network is an `ApiError` with NETWORK_EXCEPTION or REQUEST_TIMED_OUT, so that
callers treat it like any other retriable answer. After the first failure a connection is closed and stays closed.
"""

import asyncio
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version as package_version
from typing import NamedTuple

from rookery.base.errors import ApiError, ErrorCode, ProtocolError
from rookery.client.address import Address
from rookery.protocol.api import DEFINED, ApiKey, VersionRange
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Message

_SIZE = struct.Struct(">i")
# More than any sane response; a stray HTTP server's first bytes read as a size of about 1.2 GB.
_RESPONSE_SIZE_BYTES_MAX = 512 * 1024 * 1024


def software() -> Message:
    """What we say of ourselves in ApiVersions."""
    return Message(client_software_name="rookery", client_software_version=package_version("rookery"))


class _Pending(NamedTuple):
    api_key: ApiKey
    api_version: int
    response: asyncio.Future[Message]


class Connection:
    """Built by `open`. Safe to use from many tasks of one event loop."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client_id: str
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._broker_versions: Mapping[int, VersionRange] = {}
        self._pending: dict[int, _Pending] = {}
        self._next_correlation_id = 0
        self._failure: ApiError | None = None
        self._receiver = asyncio.get_running_loop().create_task(self._receive())

    @classmethod
    async def open(cls, address: Address, *, client_id: str, timeout_s: float) -> "Connection":
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            # asyncio's own text for a refused connection hides the reason.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {address}: {reason}") from None
        connection = cls(address, reader, writer, client_id=client_id)
        try:
            await connection._negotiate(timeout_s)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    def version(self, api_key: ApiKey) -> int:
        """The highest version of an API that the broker and we both know."""
        ours, theirs = DEFINED[api_key], self._broker_versions.get(api_key)
        if theirs is None or ours.minimum > theirs.maximum or theirs.minimum > ours.maximum:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} serves no version of {api_key.name} we know")
        return min(ours.maximum, theirs.maximum)

    async def request(
        self, api_key: ApiKey, message: Message, *, timeout_s: float, api_version: int | None = None
    ) -> Message:
        """Send a request and wait for its response."""
        chosen = self.version(api_key) if api_version is None else api_version
        correlation_id = self._send(api_key, chosen, message)
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = _Pending(api_key, chosen, response)
        try:
            async with asyncio.timeout(timeout_s):
                await self._drain()
                return await response
        except TimeoutError:
            # Later answers on this socket are as doubtful as the missing one.
            late = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no answer from {self.address} within {timeout_s:g} s")
            self._fail(late)
            raise late from None

    async def send(self, api_key: ApiKey, message: Message) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        self._send(api_key, self.version(api_key), message)
        await self._drain()

    async def close(self) -> None:
        self._fail(ApiError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.address} was closed"))
        self._receiver.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await self._receiver
        with suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, api_key: ApiKey, api_version: int, message: Message) -> int:
        if self._failure is not None:
            raise ApiError(self._failure.code, self._failure.message)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(api_key, api_version, correlation_id, self._client_id)
        self._writer.write(encode_request_frame(header, encode_request(api_key, api_version, message)))
        return correlation_id

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            self._fail(self._lost(error))
            raise self._lost(error) from None

    async def _negotiate(self, timeout_s: float) -> None:
        message = software()
        newest = DEFINED[ApiKey.API_VERSIONS].maximum
        response = await self.request(ApiKey.API_VERSIONS, message, timeout_s=timeout_s, api_version=newest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = {row.api_key: row.max_version for row in response.api_keys}
            older = min(newest, offered.get(ApiKey.API_VERSIONS, 0))
            response = await self.request(ApiKey.API_VERSIONS, message, timeout_s=timeout_s, api_version=older)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), f"{self.address} refused to tell its API versions")
        self._broker_versions = {
            row.api_key: VersionRange(row.min_version, row.max_version) for row in response.api_keys
        }

    async def _receive(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not _SIZE.size <= size <= _RESPONSE_SIZE_BYTES_MAX:
                    raise ProtocolError(f"a response of {size} bytes")
                self._accept(await self._reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._fail(self._lost(error))
        except ProtocolError as error:
            self._fail(
                ApiError(ErrorCode.NETWORK_EXCEPTION, f"{self.address} does not speak Kafka's protocol: {error}")
            )

    def _accept(self, frame: bytes) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        pending = self._pending.get(correlation_id)
        if pending is None:
            raise ProtocolError(f"an answer to request {correlation_id}, which was not asked")
        message = _decode(pending.api_key, pending.api_version, frame)
        # Only now: what cannot be decoded fails the connection and with it everyone in `_pending`.
        del self._pending[correlation_id]
        if not pending.response.done():
            pending.response.set_result(message)

    def _fail(self, failure: ApiError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._writer.close()
        for pending in self._pending.values():
            if not pending.response.done():
                pending.response.set_exception(ApiError(failure.code, failure.message))
                # Who gave up waiting is not worth a warning about an exception that nobody looked at.
                pending.response.exception()

    def _lost(self, error: Exception) -> ApiError:
        reason = "the broker hung up" if isinstance(error, asyncio.IncompleteReadError) else str(error)
        return ApiError(ErrorCode.NETWORK_EXCEPTION, f"lost the connection to {self.address}: {reason}")


def _decode(api_key: ApiKey, api_version: int, frame: bytes) -> Message:
    _, position = parse_response_header(api_key, api_version, frame)
    if api_key == ApiKey.API_VERSIONS and frame[position : position + 2] == b"\x00\x23":
        # UNSUPPORTED_VERSION: the broker does not know our version and answers in the oldest one (KIP-511).
        api_version = 0
    return decode_response(api_key, api_version, frame, position)
