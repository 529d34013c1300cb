"""The messages of logins with Kerberos, one by one, at Rookery and at Apache Kafka, which must answer alike."""

import random
import time
from collections.abc import Iterator

import pytest

from rookery.base.errors import ErrorCode
from tests.conformance.kerberos import (
    HOUR,
    HOUR_MS,
    PASSWORD,
    REJECTED,
    SESSION_MS,
    SHORT,
    SKEW_S,
    TICKET_S,
    Broker,
    cache_jaas,
    keytab_of,
    login_of,
    rejection,
    round_trip,
    start_kafka,
    start_realm,
    start_rookery,
)
from tests.conformance.raw_login import RawLogin
from tests.support.certificates import make_certificates

pytestmark = [pytest.mark.kerberos, pytest.mark.timeout(300)]

STARTS = {"rookery": start_rookery, "kafka": start_kafka}


@pytest.fixture(scope="module", params=["rookery", pytest.param("kafka", marks=pytest.mark.java)])
def system(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def broker(system: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    with (
        start_realm(tmp_path_factory.mktemp("realm")) as realm,
        STARTS[system](realm, certificates, tmp_path_factory.mktemp("broker")) as running,
    ):
        yield running


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_our_client_logs_in(broker: Broker, listener: str, topic: str) -> None:
    """With tickets of a cache, and with a keytab."""
    cache = broker.realm.kinit("alice", PASSWORD, "client.cache")
    assert round_trip(broker.settings(listener, cache_jaas(cache)), topic) == b"value"
    assert round_trip(broker.settings(listener, keytab_of(broker.realm, "ops/admin")), f"{topic}-2") == b"value"


def test_a_ticket_for_another_service(broker: Broker) -> None:
    config = broker.settings("SASL_PLAINTEXT", keytab_of(broker.realm, "alice"))
    assert REJECTED in rejection({**config, "sasl.kerberos.service.name": "other"})


def test_a_token_of_an_expired_ticket(broker: Broker) -> None:
    """It was valid when the client made it."""
    cache = broker.realm.kinit("alice", PASSWORD, "expired.cache", "-l", "8s")
    token = next(login_of(cache=cache))
    time.sleep(8 + SKEW_S + 1)
    with RawLogin(broker.address(SHORT), "GSSAPI") as raw:
        found = raw.authenticate(token)
        assert (found.error_code, found.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REJECTED)
        assert raw.is_closed()


@pytest.mark.parametrize("message", [b"", b"x", b"\x60\x82\x01\x00", bytes(1000)])
def test_tokens_that_are_none(broker: Broker, message: bytes) -> None:
    with RawLogin(broker.address("SASL_PLAINTEXT"), "GSSAPI") as raw:
        found = raw.authenticate(message)
        assert (found.error_code, found.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REJECTED)
        assert raw.is_closed()


def test_changed_tokens(broker: Broker) -> None:
    """One byte of the client's first token is another one."""
    alice = broker.realm.directory / "alice.keytab"
    size = len(next(login_of(alice, "alice")))
    for position in random.Random(1).sample(range(size), 40):
        token = bytearray(next(login_of(alice, "alice")))
        token[position % len(token)] ^= 0x55
        with RawLogin(broker.address("SASL_PLAINTEXT"), "GSSAPI") as raw:
            exchange = raw.authenticate(bytes(token))
            if exchange.error_code == ErrorCode.NONE:
                # The byte means nothing to the service, but the last message needs the key of the ticket.
                raw.authenticate(b"")
                exchange = raw.authenticate(b"\x01\0\0\0")
            assert exchange.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_bare_tokens(broker: Broker) -> None:
    """Clients before Kafka 1.0 send tokens without headers, and the last one has no answer."""
    exchange = login_of(broker.realm.directory / "alice.keytab", "alice")
    with RawLogin(broker.address("SASL_PLAINTEXT"), "GSSAPI", version=0) as raw:
        offer = raw.exchange_token(exchange.send(raw.exchange_token(next(exchange))))
        raw.send_token(exchange.send(offer))
        assert raw.broker_addresses() == [broker.address("SASL_PLAINTEXT")]


@pytest.mark.parametrize(
    ("listener", "longest_ms"),
    [("SASL_PLAINTEXT", 0), (SHORT, SESSION_MS), (HOUR, (TICKET_S + SKEW_S) * 1000)],
)
def test_a_session_with_a_limit_ends_with_its_ticket(
    broker: Broker, system: str, listener: str, longest_ms: int
) -> None:
    """In Kafka it goes on until the limit."""
    cache = broker.realm.kinit("alice", PASSWORD, "limited.cache", "-l", f"{TICKET_S}s")
    exchange = login_of(cache=cache)
    with RawLogin(broker.address(listener), "GSSAPI") as raw:
        message = next(exchange)
        for _ in range(2):
            message = exchange.send(raw.authenticate(message).auth_bytes)
        found = raw.authenticate(message)
        assert found.error_code == ErrorCode.NONE
        if system == "kafka" and listener == HOUR:
            assert found.session_lifetime_ms == HOUR_MS
            return
        assert found.session_lifetime_ms <= longest_ms
        assert (found.session_lifetime_ms > 0) == (longest_ms > 0)
