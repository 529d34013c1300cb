"""Both sides of the mechanism GSSAPI (RFC 4752), with contexts that need no KDC. The conformance suite has one."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.protocol.principal import Principal
from rookery.security.gss import GssContext, GssError
from rookery.security.kerberos_rules import KerberosRules
from rookery.security.sasl import SaslError, TransientSaslError, gssapi
from rookery.security.sasl_server.exchange import (
    Identity,
    InvalidCredentialsError,
    LoginError,
    ServerExchange,
    TransientLoginError,
)
from rookery.security.sasl_server.gssapi import GssapiMechanism
from tests.security.contexts import FakeContext, client_context, server_context

NOW_MS = 1_000_000
CHOICE = b"key:\x01\0\0\0"


def mechanism(
    new_context: Callable[[], GssContext] = server_context, *, rules: str = "DEFAULT", has_limit: bool = True
) -> GssapiMechanism:
    return GssapiMechanism(
        new_context=new_context,
        rules=KerberosRules.parse([rules]),
        default_realm="REALM",
        now_ms=lambda: NOW_MS,
        has_limit=has_limit,
    )


def begin(server: GssapiMechanism | None = None) -> ServerExchange:
    exchange = (server or mechanism()).begin()
    assert next(exchange) == b""
    return exchange


def identity(exchange: ServerExchange, message: bytes) -> Identity:
    with pytest.raises(StopIteration) as end:
        exchange.send(message)
    found = end.value.value
    assert isinstance(found, Identity)
    return found


def test_an_exchange() -> None:
    exchange = begin()
    assert exchange.send(b"request") == b"reply"
    assert exchange.send(b"") == b"key:\x01\0\0\0"
    found = identity(exchange, CHOICE)
    assert found == Identity(principal=Principal("User", "alice"), response=None, expires_ms=NOW_MS + 60_000)


def test_nothing_happens_before_the_first_message() -> None:
    """The context is created in the thread that evaluates messages."""

    def fail() -> FakeContext:
        raise GssError("the keytab cannot be read")

    exchange = begin(mechanism(fail))
    with pytest.raises(InvalidCredentialsError, match="the keytab cannot be read"):
        exchange.send(b"request")


def test_sessions_without_a_limit_survive_the_ticket() -> None:
    exchange = begin(mechanism(has_limit=False))
    exchange.send(b"request")
    exchange.send(b"")
    assert identity(exchange, CHOICE).expires_ms is None


def test_a_client_that_does_not_authenticate_the_server() -> None:
    exchange = begin(mechanism(lambda: FakeContext([(b"request", b"")])))
    assert exchange.send(b"request") == b"key:\x01\0\0\0"
    assert identity(exchange, CHOICE).principal.name == "alice"


def test_a_context_of_several_tokens() -> None:
    exchange = begin(mechanism(lambda: FakeContext([(b"1", b"a"), (b"2", b"b"), (b"3", b"")])))
    assert [exchange.send(token) for token in (b"1", b"2", b"3")] == [b"a", b"b", b"key:\x01\0\0\0"]


def test_a_context_without_an_end() -> None:
    exchange = begin(mechanism(lambda: FakeContext([(b"1", b"a")] * 9)))
    for _ in range(4):
        assert exchange.send(b"1") == b"a"
    with pytest.raises(InvalidCredentialsError, match="too many tokens"):
        exchange.send(b"1")


@pytest.mark.parametrize("name", [b"alice@REALM", b"bob", b"kafka@localhost", b"\xff"])
def test_the_name_to_act_as_is_ignored(name: bytes) -> None:
    exchange = begin()
    exchange.send(b"request")
    exchange.send(b"")
    assert identity(exchange, CHOICE + name).principal.name == "alice"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b"wrong"], "the token b'wrong' is invalid"),
        ([b""], "the token b'' is invalid"),
        ([b"request", b"request"], "continues a context that is complete"),
        ([b"request", b"", b""], "a message was changed"),
        ([b"request", b"", b"\x01\0\0\0"], "a message was changed"),
        ([b"request", b"", b"key:"], "security layer"),
        ([b"request", b"", b"key:\x01\0\0"], "security layer"),
        ([b"request", b"", b"key:\0\0\0\0"], "security layer"),
        ([b"request", b"", b"key:\x02\0\xff\xff"], "security layer"),
        ([b"request", b"", b"key:\x07\0\xff\xff"], "security layer"),
    ],
)
def test_wrong_messages(messages: list[bytes], reason: str) -> None:
    exchange = begin()
    for message in messages[:-1]:
        exchange.send(message)
    with pytest.raises(InvalidCredentialsError, match=reason):
        exchange.send(messages[-1])


@pytest.mark.parametrize(
    ("peer", "rules", "reason"),
    [
        ("alice@OTHER", "DEFAULT", "no rule"),
        ("a/b/c@REALM", "DEFAULT", "more than two components"),
        ("alice@REALM", "RULE:[1:]", "empty name"),
    ],
)
def test_a_principal_without_a_user(peer: str, rules: str, reason: str) -> None:
    exchange = begin(mechanism(lambda: server_context(peer=peer), rules=rules))
    exchange.send(b"request")
    exchange.send(b"")
    with pytest.raises(InvalidCredentialsError, match=reason):
        exchange.send(CHOICE)


def test_an_error_that_passes() -> None:
    exchange = begin(mechanism(lambda: server_context(failure=GssError("a replay", is_transient=True))))
    with pytest.raises(TransientLoginError, match="a replay"):
        exchange.send(b"request")


MESSAGES = st.one_of(
    st.sampled_from([b"request", b"", b"reply", b"\x01\0\0\0", b"key", b"KEY:\x01\0\0\0"]), st.binary(max_size=20)
)


@given(st.lists(MESSAGES, max_size=6))
def test_no_messages_without_the_key_log_in(messages: list[bytes]) -> None:
    exchange = begin()
    for message in messages:
        if message.startswith(CHOICE[:5]):
            continue
        try:
            exchange.send(message)
        except LoginError:
            return


def test_our_client_and_our_server() -> None:
    client, server = gssapi(client_context()), begin()
    first = next(client)
    second = client.send(server.send(first))
    third = client.send(server.send(second))
    assert (first, second, third) == (b"request", b"", CHOICE)
    assert identity(server, third).principal.name == "alice"
    with pytest.raises(StopIteration):
        client.send(b"")


@pytest.mark.parametrize("offer", [b"", b"key:", b"key:\x06\0\xff\xff", b"key:\x01", b"key:\x01\0\0\0\0"])
def test_our_client_rejects_other_layers(offer: bytes) -> None:
    client = gssapi(client_context())
    next(client)
    client.send(b"reply")
    with pytest.raises(SaslError):
        client.send(offer)


def test_our_client_accepts_an_offer_of_several_layers() -> None:
    client = gssapi(client_context())
    next(client)
    client.send(b"reply")
    assert client.send(b"key:\x07\0\xff\xff") == CHOICE


@pytest.mark.parametrize("token", [b"", b"another"])
def test_our_client_authenticates_the_server(token: bytes) -> None:
    client = gssapi(client_context())
    next(client)
    with pytest.raises(SaslError, match="is invalid"):
        client.send(token)


def test_our_client_without_a_kdc() -> None:
    with pytest.raises(TransientSaslError, match="no KDC"):
        next(gssapi(client_context(failure=GssError("no KDC", is_transient=True))))


def test_our_client_without_a_ticket() -> None:
    with pytest.raises(SaslError, match="no ticket"):
        next(gssapi(client_context(failure=GssError("no ticket"))))
