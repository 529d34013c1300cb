import hashlib
import hmac
import sys

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.security.sasl import Exchange, SaslError, oauth_bearer, oauth_extensions, plain, scram

# RFC 7677, section 3; RFC 5802, section 5, is the same for SHA-1. The password is "pencil".
RFC_7677 = (
    "rOprNGfwEbeRWgbNEkqO",
    [b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", b"c=biws,r=%s,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="],
    [b"r=%s,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="],
    b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
)
RFC_5802 = (
    "fyko+d2lbbFgONRv9qkxdawL",
    [b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", b"c=biws,r=%s,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="],
    [b"r=%s,s=QSXCR+Q6sek8bf92,i=4096", b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="],
    b"fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
)
SALT = b"a salt of sixteen"


def messages_of(exchange: Exchange, *responses: bytes) -> list[bytes]:
    """Return the client's messages; it must accept the last response, and not end before."""
    messages = [next(exchange)]
    messages += [exchange.send(response) for response in responses[:-1]]
    with pytest.raises(StopIteration):
        exchange.send(responses[-1])
    return messages


def test_plain() -> None:
    assert messages_of(plain("alice", "größe"), b"") == [b"\x00alice\x00gr\xc3\xb6\xc3\x9fe"]


@pytest.mark.parametrize(("mechanism", "example"), [("SCRAM-SHA-256", RFC_7677), ("SCRAM-SHA-1", RFC_5802)])
def test_scram_as_in_the_rfc(mechanism: str, example: tuple[str, list[bytes], list[bytes], bytes]) -> None:
    nonce, messages, responses, whole_nonce = example
    filled = [text.replace(b"%s", whole_nonce) for text in responses]
    exchange = scram(mechanism, "user", "pencil", nonce)
    assert messages_of(exchange, *filled) == [text.replace(b"%s", whole_nonce) for text in messages]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("username", "password"),
    [("alice", "secret"), ("a=b,c", ""), ("\u2168", "\u2168\u00a0x"), ("x", "\U0001f511"), ("x", "\t")],
    ids=["plain", "escaped", "changed-by-saslprep", "unassigned-in-saslprep", "forbidden-by-saslprep"],
)
def test_scram_uses_names_and_passwords_unchanged(mechanism: str, username: str, password: str) -> None:
    """As in Kafka, which does not use SASLprep: the broker's keys are derived from the password's UTF-8."""
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, 4096)
    client_key, server_key = (hmac.digest(salted, name, digest) for name in (b"Client Key", b"Server Key"))
    stored_key = hashlib.new(digest, client_key).digest()
    server = scramp.ScramMechanism(mechanism).make_server(lambda _: (SALT, stored_key, server_key, 4096))
    exchange = scram(mechanism, username, password, "nonce")
    first = next(exchange).decode()
    assert first == f"n,,n={username.replace('=', '=3D').replace(',', '=2C')},r=nonce"
    server.set_client_first(first)
    server.set_client_final(exchange.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        exchange.send(server.get_server_final().encode())


@pytest.mark.parametrize(
    "server_first",
    [
        b"",
        b"\xff",
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=nonce,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=nonce2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        b"r=nonce2,s=***,i=4096",
        b"e=unknown-user",
    ],
    ids=["empty", "no-text", "another-nonce", "no-server-nonce", "iterations", "salt", "error"],
)
def test_scram_rejects_an_invalid_server_first_message(server_first: bytes) -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", "nonce")
    next(exchange)
    with pytest.raises(SaslError, match="SCRAM-SHA-256"):
        exchange.send(server_first)


def test_scram_limits_the_iterations() -> None:
    exchange = scram("SCRAM-SHA-512", "user", "pencil", "nonce")
    next(exchange)
    with pytest.raises(SaslError, match="requires 1000001 iterations of SCRAM-SHA-512: at most 1000000"):
        exchange.send(b"r=nonce2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001")


@pytest.mark.parametrize("server_final", [b"", b"v=AAAA", RFC_5802[2][1], b"e=invalid-proof"])
def test_scram_rejects_a_server_without_the_password(server_final: bytes) -> None:
    nonce, _, responses, whole_nonce = RFC_7677
    exchange = scram("SCRAM-SHA-256", "user", "pencil", nonce)
    next(exchange)
    exchange.send(responses[0].replace(b"%s", whole_nonce))
    with pytest.raises(SaslError) as caught:
        exchange.send(server_final)
    assert "pencil" not in str(caught.value)


@given(st.binary() | st.text(st.sampled_from("rsievn=,+/A0\x00é")).map(str.encode))
def test_scram_handles_any_response(response: bytes) -> None:
    exchange = scram("SCRAM-SHA-512", "user", "pencil", "nonce")
    next(exchange)
    with pytest.raises(SaslError):
        exchange.send(response)


def test_scram_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scramp", None)
    with pytest.raises(ConfigError, match=r"sasl.mechanism=SCRAM-SHA-256 .* pip install '\.\[security\]'"):
        scram("SCRAM-SHA-256", "user", "pencil", "nonce")


def test_oauth_bearer() -> None:
    assert messages_of(oauth_bearer("a.b.c"), b"") == [b"n,,\x01auth=Bearer a.b.c\x01\x01"]


def test_oauth_bearer_with_extensions() -> None:
    options = {"extension_logicalCluster": "lkc-1", "unsecuredLoginExtension_pool": "p 2", "clientId": "me"}
    extensions = oauth_extensions(options)
    assert extensions == {"logicalCluster": "lkc-1", "pool": "p 2"}
    messages = messages_of(oauth_bearer("a.b.c", extensions), b"")
    assert messages == [b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01pool=p 2\x01\x01"]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"extension_auth": "x"}, "auth"), ({"extension_a-b": "x"}, "a-b"), ({"extension_a": "\x01auth=Bearer y"}, "a")],
)
def test_extensions_that_would_break_the_message(options: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=f"sasl.jaas.config: .*{named}"):
        oauth_extensions(options)


def test_oauth_bearer_receives_the_reason_of_a_rejection_before_the_error() -> None:
    exchange = oauth_bearer("a.b.c")
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="invalid_token"):
        exchange.send(b"")
