"""OAUTHBEARER at the broker: signed tokens of foreign clients, wrong ones, new keys, tokens without signatures."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from joserfc import jwt
from joserfc.jwk import RSAKey

from rookery.client import sync
from rookery.client.errors import AuthenticationError
from rookery.node import verification_keys
from rookery.testing import EmbeddedBroker
from tests.support.waiting import eventually

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


class Provider:
    """An identity provider that publishes its keys in a file, and writes a token to another."""

    def __init__(self, directory: Path) -> None:
        self.keys_file, self.token_file = directory / "jwks.json", directory / "token"
        self.add_key("first")

    def add_key(self, name: str) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": name})
        self.keys_file.write_text(json.dumps({"keys": [self.key.as_dict(private=False)]}))

    def token(self, **claims: Any) -> str:
        now_s = int(time.time())
        whole = {"sub": "carol", "aud": "brokers", "iat": now_s, "exp": now_s + 60, **claims}
        header = {"alg": "RS256", "kid": self.key.kid}
        return jwt.encode(header, {name: value for name, value in whole.items() if value is not None}, self.key)

    def client(self, broker: EmbeddedBroker, **claims: Any) -> dict[str, Any]:
        self.token_file.write_text(self.token(**claims))
        return {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULE};",
            "sasl.oauthbearer.token.endpoint.url": self.token_file.as_uri(),
        }


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(tmp_path_factory.mktemp("provider"))


@pytest.fixture(scope="module")
def broker(provider: Provider) -> Iterator[EmbeddedBroker]:
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.keys_file.as_uri(),
        "sasl.oauthbearer.expected.audience": "brokers",
    }
    with EmbeddedBroker(settings=settings, security_protocol="SASL_PLAINTEXT") as running:
        yield running


def test_our_client(provider: Provider, broker: EmbeddedBroker) -> None:
    with sync.Producer(provider.client(broker)) as producer:
        assert producer.send("ours", b"x").result(30).offset == 0


def test_confluent(provider: Provider, broker: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (provider.token(), time.time() + 60),
        }
    )
    producer.produce("confluent", b"x")
    assert producer.flush(30) == 0


def test_aiokafka(provider: Provider, broker: EmbeddedBroker) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
        async def token(self) -> str:
            return provider.token()

    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        ) as producer:
            await producer.send_and_wait("aio", b"x")

    asyncio.run(main())


@pytest.mark.parametrize("claims", [{"exp": 1}, {"aud": "other"}, {"sub": None}])
def test_tokens_that_are_rejected(provider: Provider, broker: EmbeddedBroker, claims: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError, match="invalid_token"), sync.Admin(provider.client(broker, **claims)):
        pass


def test_a_session_ends_with_its_token(provider: Provider, broker: EmbeddedBroker) -> None:
    """The client gets a new token before the old one ends."""
    with sync.Producer(provider.client(broker, exp=int(time.time()) + 3)) as producer:
        end_s = time.monotonic() + 5
        provider.token_file.write_text(provider.token())
        while time.monotonic() < end_s:
            producer.send("sessions", b"x").result(30)
            time.sleep(0.1)


def test_a_new_key_is_found(provider: Provider, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_keys, "_UNKNOWN_KEY_PAUSE_S", 0.0)
    provider.add_key("second")

    def is_accepted() -> bool:
        try:
            with sync.Admin(provider.client(broker)) as admin:
                admin.list_topics()
        except AuthenticationError:
            return False
        return True

    assert not is_accepted()
    eventually(is_accepted, "the new key")


def test_tokens_without_signatures_are_accepted_only_where_asked_for(
    provider: Provider, broker: EmbeddedBroker
) -> None:
    unsecured = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="dave";',
    }
    with (
        pytest.raises(AuthenticationError, match="invalid_token"),
        sync.Admin({"bootstrap.servers": broker.bootstrap_servers, **unsecured}),
    ):
        pass
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": UNSECURED}
    with EmbeddedBroker(settings=settings, security_protocol="SASL_PLAINTEXT", client_settings=unsecured) as running:
        running.produce("t", "x")
