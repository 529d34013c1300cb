"""The login of one connection, as Kafka's brokers do it. Pure: frames and outcomes in, actions out.

    state            accepts                                     then
    start            ApiVersions; SaslHandshake                  handshake due; tokens or requests
    handshake due    SaslHandshake                               tokens or requests
    tokens           any frame: a message of the mechanism       the same, until the exchange ends (SaslHandshake v0)
    requests         SaslAuthenticate                            the same, until the exchange ends (SaslHandshake v1)
    logged in        everything; SaslHandshake may begin again   tokens or requests (KIP-368)
    failed           nothing

Everything else fails the login. No request of another API is decoded before the login.

An action says what the caller has to do with a frame: pass it on (`PASS_ON`), send a reply, evaluate a message with
`exchange` (perhaps in a thread) and report the result to `evaluated` or `rejected`, or end the connection.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Final, TypeAlias

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.base.types import TimestampMs
from rookery.base.values import value_class
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import decode_request, encode_response
from rookery.protocol.framing import RequestHeader, parse_request_header, response_prefix
from rookery.protocol.message import Struct
from rookery.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from rookery.protocol.principal import Principal
from rookery.security.sasl_server.exchange import (
    Identity,
    InvalidCredentialsError,
    LoginError,
    Mechanism,
    ServerExchange,
    TransientLoginError,
)

# As in Kafka, a second login begins at the earliest after this time.
_REPEATED_LOGIN_MS_MIN: Final = 1000
_SIZE_BYTES: Final = 4


class _State(Enum):
    START = auto()
    HANDSHAKE_DUE = auto()
    TOKENS = auto()
    REQUESTS = auto()
    LOGGED_IN = auto()
    FAILED = auto()


class PassOn(Enum):
    PASS_ON = auto()


PASS_ON: Final = PassOn.PASS_ON


@value_class
class Answer:
    """Send a reply, a whole frame; nothing if it is empty."""

    reply: bytes


@value_class
class Evaluate:
    """Send `message` into the exchange."""

    message: bytes = field(repr=False)


@value_class
class End:
    """Send `reply`, if there is one, after the delay for failed logins, and close the connection."""

    reply: bytes
    reason: str


Action: TypeAlias = PassOn | Answer | Evaluate | End


class LoginSession:
    """The login of one connection. `max_reauth_ms` has the longest session by mechanism, 0 without a limit."""

    def __init__(self, mechanisms: Mapping[str, Mechanism], max_reauth_ms: Mapping[str, int]) -> None:
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._state = _State.START
        self._mechanism: Mechanism | None = None
        self._request: RequestHeader | None = None
        self._logged_in_ms: TimestampMs = 0
        self.exchange: ServerExchange | None = None
        self.principal: Principal | None = None
        # When the session ends; None if it never does.
        self.expires_ms: TimestampMs | None = None

    @property
    def is_logged_in(self) -> bool:
        return self._state is _State.LOGGED_IN

    @property
    def is_repeated(self) -> bool:
        """Whether the present login repeats an earlier one."""
        return self.principal is not None

    @property
    def mechanism(self) -> Mechanism | None:
        return self._mechanism

    def receive(self, frame: memoryview, now_ms: TimestampMs) -> Action:
        """Take a frame of the client, without its size. Raises ProtocolError if it is malformed."""
        if self._state is _State.LOGGED_IN:
            return self._receive_logged_in(frame, now_ms)
        if self._state is _State.TOKENS:
            return Evaluate(bytes(frame))
        if self._state is _State.FAILED:
            raise ProtocolError("a request after a failed login")
        header, position = parse_request_header(frame)
        if self._state is _State.REQUESTS:
            return self._authenticate(header, frame, position)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(header, frame, position)
        if header.api_key == ApiKey.API_VERSIONS and self._state is _State.START:
            # A version that is not served is answered with those that are, and the client may ask again.
            if header.api_version <= DEFINED[ApiKey.API_VERSIONS].maximum:
                self._state = _State.HANDSHAKE_DUE
            return PASS_ON
        return self._unexpected(header, "the SASL handshake")

    def evaluated(self, response: bytes | Identity, now_ms: TimestampMs) -> Action:
        """The exchange has yielded a response, or has returned the client's identity."""
        if not isinstance(response, Identity):
            return Answer(self._reply(response))
        if self.principal not in (None, response.principal):
            was, now = self.principal, response.principal
            assert was is not None
            return self.rejected(
                LoginError(
                    "Cannot change principals during re-authentication from "
                    f"{was.type}.{was.name}: {now.type}.{now.name}"
                )
            )
        lifetime_ms = self._lifetime_ms(response, now_ms)
        self.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self.principal = response.principal
        self._logged_in_ms = now_ms
        reply = b""
        if response.response is not None or self._request is not None:
            reply = self._reply(response.response or b"", lifetime_ms or 0)
        self._state, self.exchange, self._request = _State.LOGGED_IN, None, None
        return Answer(reply)

    def rejected(self, error: LoginError) -> End:
        """The exchange has failed."""
        if isinstance(error, TransientLoginError):
            return self._fail(error.reason)
        text = str(error)
        if isinstance(error, InvalidCredentialsError):
            assert self._mechanism is not None
            kind = "re-authentication" if self.is_repeated else "authentication"
            text = (
                f"Authentication failed during {kind} due to invalid credentials with SASL mechanism "
                f"{self._mechanism.name}"
            )
        reply = b""
        if self._request is not None:
            reply = _encode(
                self._request,
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b""
                ),
            )
        return self._fail(error.reason, reply)

    def _receive_logged_in(self, frame: memoryview, now_ms: TimestampMs) -> Action:
        if len(frame) >= 2 and int.from_bytes(frame[:2], "big") == ApiKey.SASL_HANDSHAKE:
            is_late_enough = now_ms - self._logged_in_ms >= _REPEATED_LOGIN_MS_MIN
            if self.expires_ms is None or not is_late_enough:
                # The handler of the API rejects it, and the session goes on.
                return PASS_ON
            header, position = parse_request_header(frame)
            return self._handshake(header, frame, position)
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            raise ProtocolError(
                "the session has ended (connections.max.reauth.ms), and the client did not log in again"
            )
        return PASS_ON

    def _handshake(self, header: RequestHeader, frame: memoryview, position: int) -> Action:
        if header.api_version > DEFINED[ApiKey.SASL_HANDSHAKE].maximum:
            return self._unexpected(header, "the SASL handshake")
        name = decode_request(header.api_key, header.api_version, frame, position).mechanism
        mechanism = self._mechanisms.get(name)
        if mechanism is None:
            reply = self._handshake_reply(header, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            return self._fail(f"the mechanism {name!r} is not enabled", reply)
        if self.is_repeated and mechanism is not self._mechanism:
            assert self._mechanism is not None
            reply = self._handshake_reply(header, ErrorCode.NONE)
            reason = f"a session of {self._mechanism.name} cannot be continued with {name}"
            return self._fail(reason, reply)
        self._mechanism = mechanism
        self.exchange = mechanism.begin()
        next(self.exchange)
        self._request = None
        self._state = _State.REQUESTS if header.api_version >= 1 else _State.TOKENS
        return Answer(self._handshake_reply(header, ErrorCode.NONE))

    def _authenticate(self, header: RequestHeader, frame: memoryview, position: int) -> Action:
        is_served = header.api_version <= DEFINED[ApiKey.SASL_AUTHENTICATE].maximum
        if header.api_key != ApiKey.SASL_AUTHENTICATE or not is_served:
            return self._unexpected(header, "SASL authentication")
        self._request = header
        return Evaluate(bytes(decode_request(header.api_key, header.api_version, frame, position).auth_bytes))

    def _unexpected(self, header: RequestHeader, phase: str) -> End:
        """Reject a request. Only those of the login get a response: others would have to be decoded for it."""
        try:
            name = ApiKey(header.api_key).name
        except ValueError:
            name = f"API key {header.api_key}"
        reason, reply = f"ILLEGAL_SASL_STATE: unexpected request {name} during {phase}", b""
        if header.api_key == ApiKey.SASL_AUTHENTICATE and header.api_version <= DEFINED[header.api_key].maximum:
            text = f"Unexpected Kafka request of type {name} during {phase}."
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text, auth_bytes=b""
            )
            reply = _encode(header, response)
        elif header.api_key == ApiKey.SASL_HANDSHAKE and header.api_version <= DEFINED[header.api_key].maximum:
            reply = self._handshake_reply(header, ErrorCode.ILLEGAL_SASL_STATE)
        return self._fail(reason, reply)

    def _fail(self, reason: str, reply: bytes = b"") -> End:
        self._state, self.exchange = _State.FAILED, None
        return End(reply, reason)

    def _reply(self, message: bytes, lifetime_ms: int = 0) -> bytes:
        if self._request is None:
            return len(message).to_bytes(_SIZE_BYTES, "big") + message
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message=None, auth_bytes=message, session_lifetime_ms=lifetime_ms
        )
        return _encode(self._request, response)

    def _handshake_reply(self, header: RequestHeader, code: ErrorCode) -> bytes:
        return _encode(header, SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms)))

    def _lifetime_ms(self, identity: Identity, now_ms: TimestampMs) -> int | None:
        """Return how long the session lasts: until the credentials end, but not longer than the configured time."""
        assert self._mechanism is not None
        limits = []
        if (longest_ms := self._max_reauth_ms.get(self._mechanism.name, 0)) > 0:
            limits.append(longest_ms)
        if identity.expires_ms is not None:
            limits.append(max(identity.expires_ms - now_ms, 0))
        return min(limits, default=None)


def _encode(header: RequestHeader, response: Struct) -> bytes:
    body = encode_response(header.api_key, header.api_version, response)
    return response_prefix(header.api_key, header.api_version, header.correlation_id, len(body)) + body
