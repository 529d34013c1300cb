import asyncio
import base64
import gc
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rookery.base.clock import ManualClock
from rookery.base.errors import ConfigError
from rookery.client.settings.admin import AdminSettings
from rookery.security import tokens
from rookery.security.settings import TokenSettings
from rookery.security.tokens import TokenError, TokenSource, refresh_at_s
from tests.security.bearer import NOW_S, jwt
from tests.support.certificates import make_certificates


class Endpoint:
    """A token server: `responses` are returned in order, the last one for ever. Each is a status and a body."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, object]] = []
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.is_open = threading.Event()
        self.is_open.set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, response = endpoint.responses.pop(0) if len(endpoint.responses) > 1 else endpoint.responses[0]
                endpoint.is_open.wait()
                data = response if isinstance(response, bytes) else json.dumps(response).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

        self.scheme = "http"

    def encrypt(self, context: ssl.SSLContext) -> None:
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "https"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.is_open.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a missing server. Its port is bound, so that no other process listens on it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/token"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long enough for a server's response, however busy the machine is."""
    monkeypatch.setattr(tokens, "_REFRESH_WAIT_S", 60)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(int(NOW_S * 1000))


def settings(url: str, **changes: Any) -> TokenSettings:
    fields: dict[str, Any] = {
        "endpoint_url": url,
        "client_id": "me:",
        "client_secret": "s3cret/+",
        "scope": None,
        "url_encode_header": False,
        "connect_timeout_ms": None,
        "read_timeout_ms": None,
        "refresh_window_factor": 0.8,
        "refresh_buffer_s": 300,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 10_000,
    }
    return TokenSettings(**fields | changes)


def get_token(source: TokenSource) -> str:
    return asyncio.run(source.token())


async def wait_for_fetches() -> None:
    """Wait for fetches that have no waiting caller, until the caller's is the only task."""
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)
        # The callbacks of a task run one iteration later.
        await asyncio.sleep(0)


async def source_that_refreshes(endpoint: Endpoint, clock: ManualClock, *, age_ms: int) -> TokenSource:
    """Return a source whose token must be replaced, with a server that no longer responds."""
    source = TokenSource(settings(endpoint.url), clock=clock)
    await source.token()
    endpoint.is_open.clear()
    clock.advance(age_ms)
    return source


def get_two_tokens(source: TokenSource) -> list[str]:
    """Return the token of a first call, and that of a call after the fetch which the first may have started."""

    async def scenario() -> list[str]:
        first = await source.token()
        await wait_for_fetches()
        return [first, await source.token()]

    return asyncio.run(scenario())


def response(text: str, **fields: object) -> tuple[int, object]:
    return 200, {"access_token": text, "token_type": "Bearer", **fields}


def test_the_client_credentials_grant(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("abc")]
    assert get_token(TokenSource(settings(endpoint.url), clock=clock)) == "abc"
    ((path, headers, body),) = endpoint.requests
    assert path == "/token"
    assert body == "grant_type=client_credentials"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me::s3cret/+").decode()
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["accept"] == "application/json"


def https_settings(url: str, options: str) -> TokenSettings:
    """Return a client's settings with `options` in its `sasl.jaas.config`."""
    config = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'a.b.OAuthBearerLoginModule required clientId="me" clientSecret="hush" {options};',
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    sasl = AdminSettings.parse(config).common.security.sasl
    assert sasl is not None
    assert sasl.tokens is not None
    return sasl.tokens


def test_the_login_modules_options_configure_https(endpoint: Endpoint, clock: ManualClock, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    endpoint.encrypt(certificates.server_context())
    endpoint.responses = [response("abc")]
    trusting = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.authority}"'
    assert get_token(TokenSource(https_settings(endpoint.url, trusting), clock=clock)) == "abc"
    assert endpoint.requests[0][1]["authorization"].startswith("Basic ")


@pytest.mark.parametrize("options", ["", 'ssl.truststore.type="PEM" ssl.truststore.location="{stranger}"'])
def test_an_untrusted_server_gets_no_secret_and_is_not_retried(
    endpoint: Endpoint, clock: ManualClock, tmp_path: Path, options: str
) -> None:
    certificates = make_certificates(tmp_path)
    endpoint.encrypt(certificates.server_context())
    source = TokenSource(https_settings(endpoint.url, options.format(stranger=certificates.stranger)), clock=clock)
    with pytest.raises(TokenError, match=r"not trusted: .*; check ssl\.truststore\.location in sasl\.jaas\.config"):
        get_token(source)
    assert not endpoint.requests


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ('ssl.trustore.location="x"', "sasl.jaas.config: unknown configuration 'ssl.trustore.location'; did you mean"),
        ('ssl.truststore.type="BCFKS"', "sasl.jaas.config: ssl.truststore.type must be one of"),
        ('ssl.truststore.location="/missing"', "sasl.jaas.config: ssl.truststore.location: cannot read '/missing'"),
    ],
)
def test_errors_of_the_options_for_https_are_reported_immediately(clock: ManualClock, options: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        TokenSource(https_settings("https://login/token", options), clock=clock)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://[::1]/token", "::1", 80),
        ("https://[fe80::12]/token", "fe80::12", 443),
        ("https://[::1]:8443/token", "::1", 8443),
        ("http://login/token", "login", 80),
    ],
)
def test_host_and_port_of_an_endpoint(url: str, host: str, port: int) -> None:
    connection = tokens.connection_to(urlsplit(url), None, 1)
    assert (connection.host, connection.port) == (host, port)


def test_a_token_that_expires_during_the_next_fetch_is_not_used(
    endpoint: Endpoint, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_REFRESH_WAIT_S", 0.05)

    async def scenario() -> str:
        source = await source_that_refreshes(endpoint, clock, age_ms=999_000)
        waiting = asyncio.create_task(source.token())
        await asyncio.sleep(0)
        clock.advance(1_000)
        asyncio.get_running_loop().call_later(0.2, endpoint.is_open.set)
        return await waiting

    endpoint.responses = [response("old", expires_in=1000), response("next", expires_in=1000)]
    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == "next"


def test_scope_and_encoded_header(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("abc")]
    get_token(TokenSource(settings(endpoint.url, scope=" read write ", url_encode_header=True), clock=clock))
    ((_, headers, body),) = endpoint.requests
    assert body == "grant_type=client_credentials&scope=read+write"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me%3A:s3cret%2F%2B").decode()


@pytest.mark.parametrize(
    "first",
    [
        response("abc", expires_in=1000),
        response("abc", expires_in="1000"),
        response(jwt(exp=NOW_S + 1000)),
        response(jwt(exp=NOW_S + 1000), expires_in=9000),
        response(jwt(exp=NOW_S + 9000), expires_in=1000),
    ],
    ids=["expires_in", "quoted", "exp", "exp-first", "expires_in-first"],
)
def test_a_token_is_cached_until_it_must_be_replaced(
    endpoint: Endpoint, clock: ManualClock, first: tuple[int, Any]
) -> None:
    """80 % of 1000 s are 800 s, but the buffer of 300 s begins after 700 s."""
    endpoint.responses = [first, response("next", expires_in=1000)]
    source = TokenSource(settings(endpoint.url), clock=clock)
    token = get_token(source)
    assert token == first[1]["access_token"]
    clock.advance(699_999)
    assert get_two_tokens(source) == [token, token]
    clock.advance(1)
    assert get_two_tokens(source) == ["next", "next"]
    assert len(endpoint.requests) == 2


def test_a_token_without_an_expiry_is_not_cached(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("one"), response("two")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    assert [get_token(source), get_token(source)] == ["one", "two"]


@pytest.mark.parametrize(
    ("life_s", "expected_s"), [(10_000, 8000), (1000, 700), (360, 60), (359, 287.2), (300, 240), (60, 48), (0, 0)]
)
def test_when_to_replace_a_token(life_s: float, expected_s: float) -> None:
    """A buffer that leaves less than Kafka's minimum time between two refreshes is ignored."""
    assert refresh_at_s(NOW_S, NOW_S + life_s, settings("http://localhost")) == NOW_S + expected_s


def test_the_old_token_is_used_until_it_expires(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("old", expires_in=1000), (401, {"error": "invalid_client"})]
    source = TokenSource(settings(endpoint.url), clock=clock)
    get_token(source)
    clock.advance(999_999)
    assert get_two_tokens(source) == ["old", "old"]
    clock.advance(1)
    with pytest.raises(TokenError, match="invalid_client"):
        get_token(source)
    assert len(endpoint.requests) == 3


def test_a_call_with_a_valid_token_does_not_wait_long_for_a_server_that_hangs(
    endpoint: Endpoint, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        source = await source_that_refreshes(endpoint, clock, age_ms=700_000)
        monkeypatch.setattr(tokens, "_REFRESH_WAIT_S", 0.05)
        assert await source.token() == "old"
        monkeypatch.setattr(tokens, "_REFRESH_WAIT_S", 3600)
        assert await source.token() == "old", "no call waits for a server that has just timed out"
        clock.advance(300_000)
        waiting = asyncio.create_task(source.token())
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done(), "the old token has expired"
        endpoint.is_open.set()
        assert await waiting == "next"

    endpoint.responses = [response("old", expires_in=1000), response("next", expires_in=9000)]
    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert len(endpoint.requests) == 2


def test_a_failed_refresh_is_not_retried_immediately(
    endpoint: Endpoint, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    # Objects that earlier tests left behind log their warnings now.
    gc.collect()
    caplog.clear()
    endpoint.responses = [response("old", expires_in=1000), (401, {"error": "no"}), response("next", expires_in=1000)]
    source = TokenSource(settings(endpoint.url), clock=clock)
    get_token(source)
    clock.advance(700_000)
    assert get_two_tokens(source) == ["old", "old"]
    clock.advance(9_999)
    assert get_two_tokens(source) == ["old", "old"]
    assert len(endpoint.requests) == 2
    clock.advance(1)
    assert get_two_tokens(source) == ["next", "next"]
    gc.collect()
    [line] = caplog.messages
    assert line.startswith(
        f"cannot get a new token, the present one is still valid: error=no token from {endpoint.url}"
    )


def test_a_failed_refresh_does_not_extend_a_token(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("old", expires_in=1000), (401, {}), response("next")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    get_token(source)
    clock.advance(999_000)
    assert get_two_tokens(source) == ["old", "old"]
    clock.advance(1_000)
    assert get_token(source) == "next"


def test_closing_cancels_a_fetch_without_waiting_callers(
    endpoint: Endpoint, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        source = await source_that_refreshes(endpoint, clock, age_ms=700_000)
        monkeypatch.setattr(tokens, "_REFRESH_WAIT_S", 0)
        await source.token()
        source.close()
        await wait_for_fetches()

    endpoint.responses = [response("old", expires_in=1000)]
    asyncio.run(scenario())


def test_a_cached_token_is_not_shown(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("sesame", expires_in=1000)]
    source = TokenSource(settings(endpoint.url), clock=clock)
    get_token(source)
    assert "end_s" in repr(vars(source))
    assert "sesame" not in repr(vars(source))
    assert "s3cret" not in repr(vars(source))


def gathered(*questions: Awaitable[str]) -> list[str | BaseException]:
    async def gather() -> list[str | BaseException]:
        return await asyncio.gather(*questions, return_exceptions=True)

    return asyncio.run(gather())


def test_concurrent_calls_share_a_fetch(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("one"), response("two")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    assert gathered(*(source.token() for _ in range(5))) == ["one"] * 5
    assert len(endpoint.requests) == 1


def test_concurrent_calls_share_a_failure(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [(400, {"error": "invalid_scope"}), response("next")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    failures = gathered(source.token(), source.token())
    assert [type(failure) for failure in failures] == [TokenError, TokenError]
    assert get_token(source) == "next"


def test_a_cancelled_call_does_not_cancel_the_others(endpoint: Endpoint, clock: ManualClock) -> None:
    async def scenario() -> str:
        endpoint.is_open.clear()
        source = TokenSource(settings(endpoint.url), clock=clock)
        impatient, patient = asyncio.create_task(source.token()), asyncio.create_task(source.token())
        while not endpoint.requests:
            await asyncio.sleep(0.001)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        endpoint.is_open.set()
        return await patient

    endpoint.responses = [response("one")]
    assert asyncio.run(scenario()) == "one"
    assert len(endpoint.requests) == 1


def test_a_failure_is_not_reported_as_unhandled_after_a_cancelled_call(endpoint: Endpoint, clock: ManualClock) -> None:
    """Since Python 3.14, asyncio.shield does that."""

    async def scenario() -> list[object]:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        endpoint.is_open.clear()
        source = TokenSource(settings(endpoint.url), clock=clock)
        impatient, patient = asyncio.create_task(source.token()), asyncio.create_task(source.token())
        while not endpoint.requests:
            await asyncio.sleep(0.001)
        impatient.cancel()
        await asyncio.wait([impatient])
        endpoint.is_open.set()
        with pytest.raises(TokenError):
            await patient
        return reports

    endpoint.responses = [(400, {"error": "invalid_scope"})]
    assert asyncio.run(scenario()) == []


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_failing_server_is_retried(endpoint: Endpoint, clock: ManualClock, status: int) -> None:
    endpoint.responses = [(status, {}), (status, {}), response("abc")]
    assert get_token(TokenSource(settings(endpoint.url), clock=clock)) == "abc"
    assert len(endpoint.requests) == 3


def test_a_server_that_keeps_failing_is_an_error(endpoint: Endpoint) -> None:
    class Impatient(ManualClock):
        """Each reading takes a second."""

        def monotonic(self) -> float:
            self.advance(1000)
            return super().monotonic()

    endpoint.responses = [(503, b"come back later")]
    with pytest.raises(TokenError, match="it returned 503: come back later"):
        get_token(TokenSource(settings(endpoint.url, retry_backoff_max_ms=3000), clock=Impatient()))
    assert len(endpoint.requests) == 3


def test_a_missing_server(refusing: str, clock: ManualClock) -> None:
    with pytest.raises(TokenError, match=rf"{refusing}.*refused"):
        get_token(TokenSource(settings(refusing, retry_backoff_max_ms=0), clock=clock))


@pytest.mark.parametrize(
    ("scheme", "limits"),
    [("https", {"connect_timeout_ms": 50}), ("http", {"read_timeout_ms": 50})],
    ids=["connecting", "reading"],
)
def test_each_time_out_applies_to_its_own_phase(clock: ManualClock, scheme: str, limits: dict[str, int]) -> None:
    """The server sends nothing; the other time-out is 30 s. With https, connecting includes the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/token"
        start = time.monotonic()
        fields = {"connect_timeout_ms": 30_000, "read_timeout_ms": 30_000, "retry_backoff_max_ms": 0}
        with pytest.raises(TokenError, match="timed out"):
            get_token(TokenSource(settings(url, **fields | limits), clock=clock))
        assert time.monotonic() - start < 20


def test_the_connect_time_out_does_not_apply_to_the_response(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.responses = [response("abc")]
    endpoint.is_open.clear()
    threading.Timer(0.5, endpoint.is_open.set).start()
    assert get_token(TokenSource(settings(endpoint.url, connect_timeout_ms=250), clock=clock)) == "abc"
    assert len(endpoint.requests) == 1


def test_a_server_that_sends_byte_by_byte_times_out(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def limit_s(_: int | None) -> float:
        """Make each wait of the thread so long that only the limit of the whole response applies."""
        return 60 if threading.current_thread().name == "token" else 0.25

    monkeypatch.setattr(tokens, "_limit_s", limit_s)

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _count in range(100):
            writer.write(b" ")
            await asyncio.sleep(0.02)
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1")
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        with pytest.raises(TokenError, match=r"no complete response within 0\.5 s"):
            await TokenSource(settings(url, retry_backoff_max_ms=0), clock=clock).token()
        server.close()

    asyncio.run(scenario())


def test_a_proxy_of_the_environment_gets_no_secret(
    endpoint: Endpoint, refusing: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.responses = [response("abc")]
    monkeypatch.setenv("http_proxy", endpoint.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TokenError, match="refused"):
        get_token(TokenSource(settings(refusing, retry_backoff_max_ms=0), clock=clock))
    assert not endpoint.requests


@pytest.mark.parametrize(("suffix", "target"), [("", "/"), ("?a=b", "/?a=b"), ("/c?a=b#d", "/c?a=b")])
def test_the_request_target_of_a_url(endpoint: Endpoint, clock: ManualClock, suffix: str, target: str) -> None:
    endpoint.responses = [response("abc")]
    get_token(TokenSource(settings(endpoint.url.removesuffix("/token") + suffix), clock=clock))
    assert [path for path, _, _ in endpoint.requests] == [target]


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": "no such client"},
            "401: .*no such client.*clientSecret",
        ),
        (302, {}, "302"),
        (200, b"", "not a JSON object with access_token"),
        (200, b"[" * 100_000, "not a JSON object with access_token"),
        (200, {"access_token": 1}, "not a JSON object with access_token"),
        (200, {"access_token": "s3cret\x01auth=Bearer x"}, "characters that no bearer token has"),
        (200, {"access_token": " "}, "it is empty"),
    ],
)
def test_responses_that_are_not_retried(
    endpoint: Endpoint, clock: ManualClock, status: int, body: object, text: str
) -> None:
    endpoint.responses = [(status, body), response("abc")]
    with pytest.raises(TokenError, match=text) as caught:
        get_token(TokenSource(settings(endpoint.url), clock=clock))
    assert endpoint.url in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert [path for path, _, _ in endpoint.requests] == ["/token"]


@pytest.mark.parametrize(
    "url", ["", "ftp://host/x", "https://", "http://host:port/", "http://me:s3cret@host/", "http://host/ x"]
)
def test_invalid_urls(url: str, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url") as caught:
        TokenSource(settings(url), clock=clock)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("field", "option"), [("client_id", "clientId"), ("client_secret", "clientSecret")])
@pytest.mark.parametrize("value", [None, "", " "])
def test_credentials_are_required(field: str, option: str, value: str | None, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match=rf"sasl\.jaas\.config needs {option}"):
        TokenSource(settings("https://[::1]:1/token?x=y", **{field: value}), clock=clock)


def test_a_file_is_read_again(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "the token"
    path.write_text(" a.b.c\n")
    source = TokenSource(settings(path.as_uri(), client_id=None, client_secret=None), clock=clock)
    assert get_token(source) == "a.b.c"
    path.write_text("d.e.f")
    assert get_token(source) == "d.e.f"
    path.unlink()
    with pytest.raises(TokenError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        get_token(source)
