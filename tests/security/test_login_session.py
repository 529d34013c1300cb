"""The states of a connection until its client has logged in, and the repetition of logins (KIP-368)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import decode_response, encode_request
from rookery.protocol.framing import RequestHeader, encode_request_frame, parse_response_header
from rookery.protocol.message import Struct
from rookery.protocol.messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from rookery.protocol.principal import Principal
from rookery.security.sasl_server.exchange import (
    Identity,
    InvalidCredentialsError,
    LoginError,
    Mechanism,
    TransientLoginError,
)
from rookery.security.sasl_server.plain import PlainMechanism
from rookery.security.sasl_server.session import PASS_ON, Action, Answer, End, Evaluate, LoginSession
from tests.security.test_sasl_server import scram

MECHANISMS: dict[str, Mechanism] = {"PLAIN": PlainMechanism({"alice": "secret"}), "SCRAM-SHA-256": scram()}
ALICE = Identity(principal=Principal("User", "alice"))
LOGIN = b"\0alice\0secret"


def frame(key: ApiKey, version: int, message: Struct) -> memoryview:
    body = encode_request(key, version, message)
    return memoryview(encode_request_frame(RequestHeader(key, version, 7, "client"), body)[4:])


def api_versions(version: int = 3) -> memoryview:
    known = min(version, DEFINED[ApiKey.API_VERSIONS].maximum)
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    data = bytearray(frame(ApiKey.API_VERSIONS, known, request))
    data[2:4] = version.to_bytes(2, "big")
    return memoryview(bytes(data))


def handshake(mechanism: str = "PLAIN", version: int = 1) -> memoryview:
    return frame(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))


def authenticate(message: bytes = LOGIN, version: int = 2) -> memoryview:
    return frame(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))


def response(key: ApiKey, version: int, reply: bytes) -> Any:
    correlation_id, position = parse_response_header(key, version, reply[4:])
    assert correlation_id == 7
    return decode_response(key, version, reply[4:], position)


def reply_of(action: Action) -> bytes:
    assert isinstance(action, Answer | End)
    return action.reply


def session(**max_reauth_ms: int) -> LoginSession:
    return LoginSession(MECHANISMS, max_reauth_ms)


def step(login: LoginSession, message: memoryview, now_ms: int = 0) -> Action:
    """Pass a frame to the session, and evaluate the message in it."""
    action = login.receive(message, now_ms)
    if not isinstance(action, Evaluate):
        return action
    assert login.exchange is not None
    try:
        return login.evaluated(login.exchange.send(action.message), now_ms)
    except StopIteration as end:
        return login.evaluated(end.value, now_ms)
    except LoginError as error:
        return login.rejected(error)


def logged_in(**max_reauth_ms: int) -> LoginSession:
    login = session(**max_reauth_ms)
    step(login, handshake())
    step(login, authenticate())
    assert login.is_logged_in
    return login


def test_a_login_with_requests() -> None:
    login = session()
    assert step(login, api_versions()) is PASS_ON
    found = response(ApiKey.SASL_HANDSHAKE, 1, reply_of(step(login, handshake())))
    assert (found.error_code, found.mechanisms) == (ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"])
    assert not login.is_logged_in
    found = response(ApiKey.SASL_AUTHENTICATE, 2, reply_of(step(login, authenticate())))
    assert (found.error_code, found.auth_bytes, found.session_lifetime_ms) == (ErrorCode.NONE, b"", 0)
    assert login.is_logged_in
    assert login.principal == ALICE.principal
    assert step(login, handshake()) is PASS_ON
    assert step(login, memoryview(b"")) is PASS_ON


def test_a_login_with_bare_tokens() -> None:
    login = session()
    step(login, handshake(version=0))
    assert reply_of(step(login, memoryview(LOGIN))) == b"\0\0\0\0"
    assert login.is_logged_in


def test_a_failed_login_with_bare_tokens_has_no_reply() -> None:
    login = session()
    step(login, handshake(version=0))
    action = step(login, memoryview(b"\0alice\0wrong"))
    assert action == End(b"", "Authentication failed: Invalid username or password")


def test_a_mechanism_that_ends_with_a_message_of_the_client() -> None:
    """A client with bare tokens reads nothing more; SaslAuthenticate is always answered."""
    silent = Identity(principal=ALICE.principal, response=None)
    login = session()
    step(login, handshake(version=0))
    login.receive(memoryview(LOGIN), 0)
    assert login.evaluated(silent, 0) == Answer(b"")
    assert login.is_logged_in
    login = session()
    step(login, handshake())
    login.receive(authenticate(), 0)
    found = response(ApiKey.SASL_AUTHENTICATE, 2, reply_of(login.evaluated(silent, 0)))
    assert (found.error_code, found.auth_bytes) == (ErrorCode.NONE, b"")


def test_an_error_that_passes_is_not_answered() -> None:
    """The client then connects again. An error would stop it for good."""
    login = session()
    step(login, handshake())
    login.receive(authenticate(), 0)
    assert login.rejected(TransientLoginError("the clocks differ")) == End(b"", "the clocks differ")
    with pytest.raises(ProtocolError):
        login.receive(handshake(), 0)


def test_a_wrong_password() -> None:
    login = session()
    step(login, handshake())
    action = step(login, authenticate(b"\0alice\0wrong"))
    assert isinstance(action, End)
    found = response(ApiKey.SASL_AUTHENTICATE, 2, action.reply)
    assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert found.error_message == "Authentication failed: Invalid username or password"
    with pytest.raises(ProtocolError):
        login.receive(handshake(), 0)


def test_scram_has_one_text_for_all_reasons() -> None:
    login = session()
    step(login, handshake("SCRAM-SHA-256"))
    login.receive(authenticate(b"x"), 0)
    reply = login.rejected(InvalidCredentialsError("'bob' does not exist")).reply
    text = response(ApiKey.SASL_AUTHENTICATE, 2, reply).error_message
    assert text == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_an_unknown_mechanism_is_answered_with_the_known_ones() -> None:
    action = step(session(), handshake("GSSAPI"))
    assert isinstance(action, End)
    found = response(ApiKey.SASL_HANDSHAKE, 1, action.reply)
    assert (found.error_code, found.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))


def test_api_versions_may_be_repeated_only_after_an_unknown_version() -> None:
    login = session()
    assert step(login, api_versions(99)) is PASS_ON
    assert step(login, api_versions()) is PASS_ON
    assert isinstance(step(login, api_versions()), End)


@pytest.mark.parametrize("key", [key for key in DEFINED if key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)])
@pytest.mark.parametrize("is_chosen", [False, True])
def test_no_other_request_is_accepted_before_the_login(key: int, is_chosen: bool) -> None:
    login = session()
    if is_chosen:
        step(login, handshake())
    if is_chosen and key == ApiKey.SASL_AUTHENTICATE:
        return
    # Without a body: it must not be decoded.
    header = encode_request_frame(RequestHeader(key, DEFINED[key].maximum, 7, None), b"")[4:]
    action = login.receive(memoryview(header), 0)
    assert isinstance(action, End)
    assert action.reason.startswith("ILLEGAL_SASL_STATE")
    if key == ApiKey.SASL_AUTHENTICATE:
        found = response(ApiKey.SASL_AUTHENTICATE, 2, action.reply)
        assert found.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_sessions_end_without_a_new_login() -> None:
    login = logged_in(PLAIN=2000)
    assert login.expires_ms == 2000
    assert step(login, memoryview(b"\0\0"), 1999) is PASS_ON
    with pytest.raises(ProtocolError, match=r"connections\.max\.reauth\.ms"):
        step(login, memoryview(b"\0\0"), 2000)


def test_a_login_can_be_repeated_even_after_the_end() -> None:
    login = logged_in(PLAIN=2000)
    assert step(login, handshake(), 999) is PASS_ON
    assert isinstance(step(login, handshake(), 3000), Answer)
    assert login.is_repeated
    found = response(ApiKey.SASL_AUTHENTICATE, 2, reply_of(step(login, authenticate(), 3000)))
    assert found.session_lifetime_ms == 2000
    assert step(login, memoryview(b"\0\0"), 4999) is PASS_ON


def test_other_requests_are_rejected_while_a_login_is_repeated() -> None:
    login = logged_in(PLAIN=2000)
    step(login, handshake(), 1000)
    assert isinstance(step(login, api_versions(), 1000), End)


def test_a_repeated_login_keeps_mechanism_and_principal() -> None:
    login = logged_in(PLAIN=2000)
    assert isinstance(step(login, handshake("SCRAM-SHA-256"), 1500), End)
    login = logged_in(PLAIN=2000)
    step(login, handshake(), 1500)
    login.receive(authenticate(), 1500)
    action = login.evaluated(Identity(principal=Principal("User", "bob")), 1500)
    text = response(ApiKey.SASL_AUTHENTICATE, 2, reply_of(action)).error_message
    assert text == "Cannot change principals during re-authentication from User.alice: User.bob"


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "expected"), [(0, None, None), (500, None, 500), (0, 900, 800), (500, 900, 500)]
)
def test_the_lifetime_is_the_shorter_one(max_reauth_ms: int, expires_ms: int | None, expected: int | None) -> None:
    login = session(PLAIN=max_reauth_ms)
    step(login, handshake(), 100)
    login.receive(authenticate(), 100)
    login.evaluated(Identity(principal=ALICE.principal, expires_ms=expires_ms), 100)
    assert login.expires_ms == (None if expected is None else 100 + expected)


FRAMES = st.one_of(
    st.binary(max_size=40).map(lambda data: memoryview(data)),
    st.sampled_from([api_versions(), handshake(), handshake("SCRAM-SHA-256", 0), authenticate(b"n,,n=a,r=b")]),
    st.sampled_from([authenticate(b"\0alice\0wrong"), handshake("x"), authenticate(b"", 0)]),
)


@given(st.lists(FRAMES, max_size=8))
def test_no_sequence_of_frames_without_the_password_logs_in(frames: list[memoryview]) -> None:
    login = session()
    for each in frames:
        try:
            action = step(login, each)
        except ProtocolError:
            break
        assert not login.is_logged_in
        if action is PASS_ON:
            assert int.from_bytes(each[:2], "big") == ApiKey.API_VERSIONS
        if isinstance(action, End):
            break
