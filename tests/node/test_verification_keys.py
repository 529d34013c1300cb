"""The keys of an identity provider over http and https: read at the start, read again, and how often."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from rookery.base.clock import ManualClock
from rookery.base.codes import SecurityProtocol
from rookery.base.config import BrokerLayers
from rookery.base.errors import ConfigError
from rookery.node.verification_keys import KeySource
from rookery.security.listener_security import TokenSettings, read_listener
from rookery.security.token_validation import InvalidTokenError, UnknownKeyError
from tests.support.certificates import Certificates, make_certificates

REFRESH_MS, RETRY_MS = 60_000, 1000
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class Provider:
    """Serves its public keys and counts the requests."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.keys: list[RSAKey] = []
        self.request_count = 0
        self.status = 200
        self.add_key("first")
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.request_count += 1
                body = json.dumps({"keys": [key.as_dict(private=False) for key in provider.keys]}).encode()
                self.send_response(provider.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}/keys?tenant=1"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def add_key(self, name: str) -> None:
        self.keys.append(RSAKey.generate_key(2048, {"kid": name}))

    def token(self, clock: ManualClock) -> str:
        key = self.keys[-1]
        now_s = clock.now_ms() // 1000
        return jwt.encode({"alg": "RS256", "kid": key.kid}, {"sub": "carol", "iat": now_s, "exp": now_s + 3600}, key)

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["http", "https"])
def provider(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Provider]:
    made = Provider(certificates.server_context() if request.param == "https" else None)
    yield made
    made.close()


def read(url: str, trusted: Path) -> TokenSettings:
    """Return the settings of a listener, as a node reads them."""
    static = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.x.oauthbearer.sasl.jaas.config": f'{MODULE} ssl.truststore.type="PEM" '
        f'ssl.truststore.location="{trusted}";',
        "listener.name.x.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(REFRESH_MS),
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": str(RETRY_MS),
    }
    security = read_listener(BrokerLayers(static=static), "X", SecurityProtocol.SASL_PLAINTEXT)
    assert security.sasl is not None
    tokens = security.sasl.mechanisms["OAUTHBEARER"].tokens
    assert tokens is not None
    return tokens


class Source:
    """A `KeySource` whose background job runs when a test says so."""

    def __init__(self, settings: TokenSettings) -> None:
        self.clock = ManualClock()
        self.keys = KeySource(settings, self.clock, None)

    def open(self) -> None:
        asyncio.run(self.keys.open())

    def tick(self, passed_ms: int = 0) -> None:
        self.clock.advance(passed_ms)
        asyncio.run(self.keys._refresh())


@pytest.fixture
def source(provider: Provider, certificates: Certificates) -> Source:
    made = Source(read(provider.url, certificates.authority))
    made.open()
    return made


def test_keys_are_read_at_the_start_and_then_at_intervals(provider: Provider, source: Source) -> None:
    assert source.keys.validate(provider.token(source.clock)).subject == "carol"
    for _ in range(3):
        source.tick()
    assert provider.request_count == 1
    source.tick(REFRESH_MS)
    assert provider.request_count == 2


def test_an_unknown_key_causes_one_request_in_ten_seconds(provider: Provider, source: Source) -> None:
    provider.add_key("second")
    for _ in range(3):
        with pytest.raises(UnknownKeyError):
            source.keys.validate(provider.token(source.clock))
        # A login itself never asks, and the job does not so soon after the last answer.
        source.tick()
    assert provider.request_count == 1
    source.tick(10_000)
    assert provider.request_count == 2
    assert source.keys.validate(provider.token(source.clock)).subject == "carol"
    # Tokens with keys that the provider does not have cannot be used to flood it.
    provider.add_key("third")
    forged = provider.token(source.clock)
    provider.keys.pop()
    for _ in range(20):
        with pytest.raises(UnknownKeyError):
            source.keys.validate(forged)
        source.tick(1000)
    assert provider.request_count == 4


def test_old_keys_stay_while_the_provider_fails(provider: Provider, source: Source) -> None:
    provider.status = 500
    source.tick(REFRESH_MS)
    assert provider.request_count == 2
    assert source.keys.validate(provider.token(source.clock)).subject == "carol"
    for pause_ms in (RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS):
        before = provider.request_count
        source.tick(pause_ms - 1)
        assert provider.request_count == before
        source.tick(1)
        assert provider.request_count == before + 1
    provider.status = 200
    source.tick(REFRESH_MS)
    source.tick(REFRESH_MS - 1)
    assert source.keys.validate(provider.token(source.clock)).subject == "carol"


def test_a_provider_that_is_not_trusted(certificates: Certificates) -> None:
    provider = Provider(certificates.server_context())
    try:
        source = Source(read(provider.url, certificates.stranger))
        # The start goes on: a provider may be down for a while.
        source.open()
        with pytest.raises(InvalidTokenError, match="not known yet"):
            source.keys.validate(provider.token(source.clock))
        assert provider.request_count == 0
    finally:
        provider.close()


def test_a_missing_truststore_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config"):
        Source(read("https://127.0.0.1:1/keys", tmp_path / "missing"))
