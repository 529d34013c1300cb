"""A proxy for a plaintext broker in tests: it adds TLS and SASL logins, and forwards the requests.

    with gated_broker(tmp_path / "data", users={"alice": "secret"}) as gate:
        client = connect(gate.address, sasl=...)
    assert gate.logins == ["PLAIN alice"]

Like Apache Kafka it handles the requests of a connection one after the other, accepts only ApiVersions before the
login, and closes the connection after an invalid request; `hang_ups` has the reasons. A session that is older than
`session_lifetime_ms` is closed at its next request, unless that is a new login. A test may change `users` at any time.
"""

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import scramp

from rookery.base.errors import ErrorCode
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import decode_request, decode_response, encode_response
from rookery.protocol.framing import RequestHeader, parse_request_header, parse_response_header, response_prefix
from rookery.protocol.message import Message
from rookery.security.sasl import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from tests.support.broker import free_port, start_broker

ALL_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)

_ADDED = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_BEARER = re.compile(rb"n,,\x01auth=Bearer ([^\x01]+)\x01(?:[A-Za-z]+=[^\x01]+\x01)*\x01")
_START_TIMEOUT_S = 30
# The same value as in Kafka.
_SESSION_S_MIN = 1.0
# A session may last longer: on a busy machine, requests that were sent in time may be read late, and the test must not
# fail for that.
_GRACE_S = 15.0

# A generator that is sent the client's messages and yields the responses; returns the user and the last response.
_Login: TypeAlias = Generator[bytes, bytes, tuple[str, bytes]]
_Check: TypeAlias = Callable[[str], str | None]


class LoginFailedError(Exception):
    """The login failed; the text is sent to the client."""


class HangUpError(Exception):
    """The gate closes the connection; the text is added to `hang_ups`."""


class Gate:
    """The proxy. `check_token` returns the user of a bearer token; by default the token is the user's password."""

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        mechanisms: Collection[str] = ALL_MECHANISMS,
        check_token: _Check | None = None,
        tls: ssl.SSLContext | None = None,
        session_lifetime_ms: int = 0,
        host: str = "localhost",
    ) -> None:
        """Create a gate. Without `users` and `check_token` no login is needed.

        `host` is the address at which it listens, and which it advertises.
        """
        self.port = free_port()
        self._host = host
        self._listen = "127.0.0.1" if host == "localhost" else host
        self.broker_address = ""
        self.users = dict(users or {})
        self.mechanisms = mechanisms if users or check_token else ()
        self.session_lifetime_ms = session_lifetime_ms
        self.logins: list[str] = []
        self.hang_ups: list[str] = []
        self.check_token: _Check = check_token or self._owner
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def advertised(self) -> str:
        """The broker's setting with which clients connect to the gate."""
        return f"advertised.listeners=PLAINTEXT://{self.address}"

    def __enter__(self) -> "Gate":
        self._thread.start()
        assert self._started.wait(_START_TIMEOUT_S), "the gate does not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, self._listen, self.port, ssl=self._tls)
        self._started.set()
        await self._stopped.wait()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        try:
            await connection.serve()
        except HangUpError as reason:
            self.hang_ups.append(str(reason))
        except (OSError, asyncio.IncompleteReadError):
            pass  # The client or the broker has closed its connection.
        finally:
            connection.close()

    def _owner(self, token: str) -> str | None:
        return next((user for user, password in self.users.items() if password == token), None)


@contextmanager
def gated_broker(
    data_dir: Path,
    *settings: str,
    users: Mapping[str, str] | None = None,
    mechanisms: Collection[str] = ALL_MECHANISMS,
    check_token: _Check | None = None,
    tls: ssl.SSLContext | None = None,
    session_lifetime_ms: int = 0,
    host: str = "localhost",
) -> Iterator[Gate]:
    """Start a broker, and a gate that forwards to it."""
    gate = Gate(
        users=users,
        mechanisms=mechanisms,
        check_token=check_token,
        tls=tls,
        session_lifetime_ms=session_lifetime_ms,
        host=host,
    )
    port = free_port()
    gate.broker_address = f"127.0.0.1:{port}"
    with gate, start_broker(data_dir, gate.advertised, *settings, port=port):
        yield gate


class _Connection:
    def __init__(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._reader = reader
        self._writer = writer
        self._broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._is_logged_in = not gate.mechanisms
        self._session_end = 0.0
        self._logged_in_s = -inf
        self._mechanism = ""
        self._login: _Login | None = None

    async def serve(self) -> None:
        certificate = self._writer.get_extra_info("peercert")
        if certificate:
            names = {name: value for ((name, value),) in certificate["subject"]}
            self._gate.logins.append(f"SSL {names['commonName']}")
        while True:
            frame = await _read_frame(self._reader)
            header, position = parse_request_header(frame)
            if self._gate.mechanisms and header.api_key in _ADDED:
                await self._serve_login(header, decode_request(header.api_key, header.api_version, frame, position))
                continue
            self._check_request(header)
            response = await self._ask_broker(header, frame, position)
            if header.api_key == ApiKey.API_VERSIONS and self._gate.mechanisms:
                response = _with_login(header, response)
            self._writer.write(response)
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
        if self._broker is not None:
            self._broker[1].close()

    def _check_request(self, header: RequestHeader) -> None:
        api = ApiKey(header.api_key).name
        if self._login is not None:
            raise HangUpError(f"ILLEGAL_SASL_STATE: {api} in the middle of a login")
        if not self._is_logged_in and header.api_key != ApiKey.API_VERSIONS:
            raise HangUpError(f"ILLEGAL_SASL_STATE: {api} before the login")
        if self._session_end and asyncio.get_running_loop().time() > self._session_end:
            raise HangUpError(f"{api} after the end of the session")

    async def _ask_broker(self, header: RequestHeader, frame: bytes, position: int) -> bytes:
        if self._broker is None:
            host, _, port = self._gate.broker_address.rpartition(":")
            self._broker = await asyncio.open_connection(host, int(port))
        reader, writer = self._broker
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await writer.drain()
        if header.api_key == ApiKey.PRODUCE:
            request = decode_request(header.api_key, header.api_version, frame, position)
            if request.acks == 0:
                return b""
        response = await _read_frame(reader)
        return len(response).to_bytes(4, "big") + response

    async def _serve_login(self, header: RequestHeader, request: Message) -> None:
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            response = self._handshake(header, request)
        else:
            response = self._authenticate(request)
        self._writer.write(_response_frame(header, response))
        await self._writer.drain()
        if response.error_code != ErrorCode.NONE:
            raise HangUpError(ErrorCode(response.error_code).name)

    def _handshake(self, header: RequestHeader, request: Message) -> Message:
        if self._login is not None or header.api_version == 0:
            raise HangUpError("ILLEGAL_SASL_STATE: SASL_HANDSHAKE in the middle of a login, or of version 0")
        if asyncio.get_running_loop().time() - self._logged_in_s < _SESSION_S_MIN:
            raise HangUpError("ILLEGAL_SASL_STATE: a second login within a second")
        mechanisms = self._gate.mechanisms
        if request.mechanism not in mechanisms:
            return Message(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(mechanisms))
        self._mechanism = request.mechanism
        self._login = _login(self._gate, request.mechanism)
        next(self._login)
        return Message(error_code=ErrorCode.NONE, mechanisms=list(mechanisms))

    def _authenticate(self, request: Message) -> Message:
        if self._login is None:
            raise HangUpError("ILLEGAL_SASL_STATE: SASL_AUTHENTICATE without SASL_HANDSHAKE")
        try:
            return _auth_response(self._login.send(request.auth_bytes))
        except LoginFailedError as error:
            return _auth_response(b"", ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        except StopIteration as end:
            return self._logged_in(*end.value)

    def _logged_in(self, user: str, last_response: bytes) -> Message:
        self._gate.logins.append(f"{self._mechanism} {user}")
        self._login = None
        self._is_logged_in = True
        self._logged_in_s = asyncio.get_running_loop().time()
        lifetime_ms = self._gate.session_lifetime_ms
        if lifetime_ms:
            self._session_end = self._logged_in_s + lifetime_ms / 1000 + _GRACE_S
        return _auth_response(last_response, session_lifetime_ms=lifetime_ms)


def _login(gate: Gate, mechanism: str) -> _Login:
    if mechanism == PLAIN:
        return _plain(gate)
    return _bearer(gate) if mechanism == OAUTHBEARER else _scram(gate, mechanism)


def _plain(gate: Gate) -> _Login:
    received = yield b""
    fields = received.decode().split("\x00")
    if len(fields) != 3 or gate.users.get(fields[1]) != fields[2]:
        raise LoginFailedError("Authentication failed: Invalid username or password")
    return fields[1], b""


def _scram(gate: Gate, mechanism: str) -> _Login:
    user = ""

    def credentials(name: str) -> tuple[bytes, bytes, bytes, int] | None:
        nonlocal user
        user = name
        made: tuple[bytes, bytes, bytes, int] = scramp.ScramMechanism(mechanism).make_auth_info(gate.users[name])
        return made

    server = scramp.ScramMechanism(mechanism).make_server(credentials)
    try:
        server.set_client_first((yield b"").decode())
        server.set_client_final((yield server.get_server_first().encode()).decode())
    except scramp.ScramException:
        raise LoginFailedError(f"Authentication failed during authentication with SASL mechanism {mechanism}") from None
    return user, server.get_server_final().encode()


def _bearer(gate: Gate) -> _Login:
    match = _BEARER.fullmatch((yield b""))
    user = gate.check_token(match[1].decode()) if match else None
    if user is None:
        reason = json.dumps({"status": "invalid_token"})
        received = yield reason.encode()
        raise LoginFailedError(
            reason if received == b"\x01" else "Authentication failed: the client did not confirm the reason"
        )
    return user, b""


def _auth_response(
    data: bytes, error_code: ErrorCode = ErrorCode.NONE, message: str | None = None, *, session_lifetime_ms: int = 0
) -> Message:
    return Message(
        error_code=error_code, error_message=message, auth_bytes=data, session_lifetime_ms=session_lifetime_ms
    )


def _with_login(header: RequestHeader, frame: bytes) -> bytes:
    """Return the broker's ApiVersions response with the APIs that the gate handles itself."""
    version = header.api_version
    if version > DEFINED[ApiKey.API_VERSIONS].maximum:
        return frame  # The response tells the client to use a lower version.
    _, position = parse_response_header(header.api_key, version, frame[4:])
    response = decode_response(header.api_key, version, frame[4:], position)
    own = [Message(api_key=key, min_version=DEFINED[key].minimum, max_version=DEFINED[key].maximum) for key in _ADDED]
    response.api_keys = [row for row in response.api_keys if row.api_key not in _ADDED] + own
    return _response_frame(header, response)


def _response_frame(header: RequestHeader, response: Message) -> bytes:
    body = encode_response(header.api_key, header.api_version, response)
    prefix = response_prefix(
        header.api_key, header.api_version, correlation_id=header.correlation_id, body_size=len(body)
    )
    return prefix + body


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
