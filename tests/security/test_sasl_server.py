"""The server's mechanisms: successful logins, and the texts of failed ones."""

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.protocol.principal import Principal
from rookery.security import sasl
from rookery.security.sasl_server.exchange import (
    Identity,
    InvalidCredentialsError,
    LoginError,
    Mechanism,
    ServerExchange,
)
from rookery.security.sasl_server.plain import PlainMechanism, plain_users
from rookery.security.sasl_server.scram import ScramServer, TokenCredential
from rookery.security.scram_credentials import ScramCredential, ScramMechanism, derive_credential

PASSWORDS = {"alice": "secret", "name=with,signs": "päss"}
OWNER = Principal("User", "owner")
TOKEN_END_MS = 5000
PLAIN = PlainMechanism(PASSWORDS)


class Credentials:
    def __init__(self) -> None:
        self.users = {
            (name, mechanism): derive_credential(mechanism, password, b"salt" * 4, 4096)
            for name, password in PASSWORDS.items()
            for mechanism in ScramMechanism
        }

    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.users.get((name, mechanism))

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        if token_id != "token":
            return None
        credential = derive_credential(mechanism, "token secret", b"salt" * 4, 4096)
        return TokenCredential(credential=credential, owner=OWNER, expires_ms=TOKEN_END_MS)


def scram(mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256, nonce: str = "server") -> ScramServer:
    return ScramServer(mechanism=mechanism, credentials=Credentials(), new_nonce=lambda: nonce, secret=b"node")


def begin(mechanism: Mechanism) -> ServerExchange:
    exchange = mechanism.begin()
    assert next(exchange) == b""
    return exchange


def log_in(mechanism: Mechanism, client: sasl.Exchange) -> Identity:
    """Run a whole exchange between our client and the server."""
    exchange = begin(mechanism)
    message = next(client)
    while True:
        try:
            response = exchange.send(message)
        except StopIteration as end:
            identity: Identity = end.value
            assert identity.response is not None
            with pytest.raises(StopIteration):
                client.send(identity.response)
            return identity
        message = client.send(response)


@pytest.mark.parametrize("user", PASSWORDS)
def test_plain(user: str) -> None:
    identity = log_in(PLAIN, sasl.plain(user, PASSWORDS[user]))
    assert identity == Identity(principal=Principal("User", user))


def test_users_of_plain_are_options() -> None:
    assert plain_users({"user_a": "1", "user_b_c": "2", "username": "x"}) == {"a": "1", "b_c": "2"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_rejects(message: bytes, expected: str) -> None:
    with pytest.raises(LoginError) as error:
        begin(PLAIN).send(message)
    assert str(error.value) == expected
    assert not isinstance(error.value, InvalidCredentialsError)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", PASSWORDS)
def test_scram(mechanism: ScramMechanism, user: str) -> None:
    client = sasl.scram(mechanism.mechanism_name, user, PASSWORDS[user], "client")
    assert log_in(scram(mechanism), client).principal == Principal("User", user)


def test_the_example_of_rfc_7677() -> None:
    credential = derive_credential(
        ScramMechanism.SCRAM_SHA_256, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    )
    server = scram(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    server.credentials.users["user", ScramMechanism.SCRAM_SHA_256] = credential  # type: ignore[attr-defined]  # a fake
    exchange = begin(server)
    first = exchange.send(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    with pytest.raises(StopIteration) as end:
        exchange.send(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
    assert end.value.value.response == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_a_login_with_a_delegation_token() -> None:
    exchange, client = begin(scram()), sasl.scram("SCRAM-SHA-256", "token", "token secret", "client", is_token=True)
    first = next(client)
    assert first == b"n,,n=token,r=client,tokenauth=true"
    with pytest.raises(StopIteration) as end:
        exchange.send(client.send(exchange.send(first)))
    assert end.value.value.principal == Principal("User", "owner", token_authenticated=True)
    assert end.value.value.expires_ms == TOKEN_END_MS
    with pytest.raises(StopIteration):
        client.send(end.value.value.response)


def _final(first_bare: bytes, server_first: bytes, password: str) -> bytes:
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={fields['r']}".encode()
    message = b",".join((first_bare, server_first, without_proof))
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def test_a_login_costs_the_same_for_known_and_unknown_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of hashes, not the time, which depends on the machine."""
    count = 0

    def counted(function: Any) -> Any:
        def call(*given: Any) -> Any:
            nonlocal count
            count += 1
            return function(*given)

        return call

    monkeypatch.setattr(hmac, "digest", counted(hmac.digest))
    monkeypatch.setattr(hashlib, "new", counted(hashlib.new))

    def hashes_of(user: str) -> int:
        nonlocal count
        count = 0
        exchange = begin(server)
        nonce = exchange.send(f"n,,n={user},r=client".encode()).split(b",")[0]
        with pytest.raises(LoginError):
            exchange.send(b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32)))
        return count

    server = scram()
    assert hashes_of("alice") == hashes_of("stranger") > 0


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_unknown_users_and_wrong_passwords_look_the_same(user: str) -> None:
    """Both get a first message, and fail in the second step with the same text for the client."""
    exchange, client = begin(scram()), sasl.scram("SCRAM-SHA-256", user, "wrong", "client")
    first = exchange.send(next(client))
    assert first.endswith(b",i=4096")
    with pytest.raises(InvalidCredentialsError):
        exchange.send(client.send(first))


def test_an_unknown_user_always_has_the_same_salt() -> None:
    salts = {begin(scram()).send(b"n,,n=bob,r=client") for _ in range(2)}
    assert len(salts) == 1
    assert salts != {begin(scram()).send(b"n,,n=bert,r=client")}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice",
        b"n,,n=alice,r=\xff",
        b"n,,n=alice,r=" + b"x" * 20_000,
    ],
)
def test_malformed_messages_are_rejected(message: bytes) -> None:
    with pytest.raises(InvalidCredentialsError):
        begin(scram()).send(message)


def test_the_nonce_of_the_final_message_must_be_the_servers() -> None:
    exchange, first = begin(scram()), b"n,,n=alice,r=client"
    final = _final(first[3:], exchange.send(first), "secret").replace(b"r=clientserver", b"r=otherserver")
    with pytest.raises(InvalidCredentialsError):
        exchange.send(final)


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_hostile_messages_never_log_in(messages: list[bytes]) -> None:
    for mechanism in (PLAIN, scram()):
        exchange = begin(mechanism)
        for message in messages:
            try:
                # StopIteration, a successful login, fails the test.
                exchange.send(message)
            except LoginError:
                break
