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
    """A token server: `answers` are given in turn, the last one for ever. Each is a status and a body."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = []
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.is_open = threading.Event()
        self.is_open.set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, answer = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                endpoint.is_open.wait()
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
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
    """The URL of a server that is not there. Its port is taken, so that nobody else comes to listen on it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/token"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is waited for, however busy the machine is."""
    monkeypatch.setattr(tokens, "_PATIENCE_S", 60)


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


def ask(source: TokenSource) -> str:
    return asyncio.run(source.token())


async def fetches_are_over() -> None:
    """Those that nobody waits for: the caller's is the only task that is left."""
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)
        # What is to happen after a task happens one round later.
        await asyncio.sleep(0)


async def source_in_need(endpoint: Endpoint, clock: ManualClock, *, age_ms: int) -> TokenSource:
    """It has a token that is to be replaced, and the server does not answer any more."""
    source = TokenSource(settings(endpoint.url), clock=clock)
    await source.token()
    endpoint.is_open.clear()
    clock.advance(age_ms)
    return source


def ask_twice(source: TokenSource) -> list[str]:
    """What there is at once, and what there is after the fetch that this may have started."""

    async def scenario() -> list[str]:
        first = await source.token()
        await fetches_are_over()
        return [first, await source.token()]

    return asyncio.run(scenario())


def answer(text: str, **fields: object) -> tuple[int, object]:
    return 200, {"access_token": text, "token_type": "Bearer", **fields}


def test_the_client_credentials_grant(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("abc")]
    assert ask(TokenSource(settings(endpoint.url), clock=clock)) == "abc"
    ((path, headers, body),) = endpoint.requests
    assert path == "/token"
    assert body == "grant_type=client_credentials"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me::s3cret/+").decode()
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["accept"] == "application/json"


def https_settings(url: str, options: str) -> TokenSettings:
    """As a client reads them, with `options` in its `sasl.jaas.config`."""
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


def test_an_endpoint_with_https_is_trusted_by_the_login_modules_options(
    endpoint: Endpoint, clock: ManualClock, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    endpoint.encrypt(certificates.server_context())
    endpoint.answers = [answer("abc")]
    trusting = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.authority}"'
    assert ask(TokenSource(https_settings(endpoint.url, trusting), clock=clock)) == "abc"
    assert endpoint.requests[0][1]["authorization"].startswith("Basic ")


@pytest.mark.parametrize("options", ["", 'ssl.truststore.type="PEM" ssl.truststore.location="{stranger}"'])
def test_a_stranger_with_https_gets_no_secret_and_is_not_asked_again(
    endpoint: Endpoint, clock: ManualClock, tmp_path: Path, options: str
) -> None:
    certificates = make_certificates(tmp_path)
    endpoint.encrypt(certificates.server_context())
    source = TokenSource(https_settings(endpoint.url, options.format(stranger=certificates.stranger)), clock=clock)
    with pytest.raises(TokenError, match=r"not trusted: .*; check ssl\.truststore\.location in sasl\.jaas\.config"):
        ask(source)
    assert not endpoint.requests


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ('ssl.trustore.location="x"', "sasl.jaas.config: unknown configuration 'ssl.trustore.location'; did you mean"),
        ('ssl.truststore.type="BCFKS"', "sasl.jaas.config: ssl.truststore.type must be one of"),
        ('ssl.truststore.location="/missing"', "sasl.jaas.config: ssl.truststore.location: cannot read '/missing'"),
    ],
)
def test_what_is_wrong_with_the_options_for_https_is_said_at_once(clock: ManualClock, options: str, text: str) -> None:
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
def test_where_an_endpoint_is(url: str, host: str, port: int) -> None:
    connection = tokens.connection_to(urlsplit(url), None, 1)
    assert (connection.host, connection.port) == (host, port)


def test_a_token_that_ends_while_the_next_is_fetched_is_not_used(
    endpoint: Endpoint, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_PATIENCE_S", 0.05)

    async def scenario() -> str:
        source = await source_in_need(endpoint, clock, age_ms=999_000)
        waiting = asyncio.create_task(source.token())
        await asyncio.sleep(0)
        clock.advance(1_000)
        asyncio.get_running_loop().call_later(0.2, endpoint.is_open.set)
        return await waiting

    endpoint.answers = [answer("old", expires_in=1000), answer("next", expires_in=1000)]
    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == "next"


def test_scope_and_encoded_header(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("abc")]
    ask(TokenSource(settings(endpoint.url, scope=" read write ", url_encode_header=True), clock=clock))
    ((_, headers, body),) = endpoint.requests
    assert body == "grant_type=client_credentials&scope=read+write"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me%3A:s3cret%2F%2B").decode()


@pytest.mark.parametrize(
    "first",
    [
        answer("abc", expires_in=1000),
        answer("abc", expires_in="1000"),
        answer(jwt(exp=NOW_S + 1000)),
        answer(jwt(exp=NOW_S + 1000), expires_in=9000),
        answer(jwt(exp=NOW_S + 9000), expires_in=1000),
    ],
    ids=["expires_in", "quoted", "exp", "exp-first", "expires_in-first"],
)
def test_a_token_is_kept_until_it_should_be_replaced(
    endpoint: Endpoint, clock: ManualClock, first: tuple[int, Any]
) -> None:
    """Of 1000 s, 80 % are 800 s, but the buffer of 300 s begins after 700 s."""
    endpoint.answers = [first, answer("next", expires_in=1000)]
    source = TokenSource(settings(endpoint.url), clock=clock)
    token = ask(source)
    assert token == first[1]["access_token"]
    clock.advance(699_999)
    assert ask_twice(source) == [token, token]
    clock.advance(1)
    assert ask_twice(source) == ["next", "next"]
    assert len(endpoint.requests) == 2


def test_a_token_without_an_end_is_not_kept(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("one"), answer("two")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    assert [ask(source), ask(source)] == ["one", "two"]


@pytest.mark.parametrize(
    ("life_s", "expected_s"), [(10_000, 8000), (1000, 700), (360, 60), (359, 287.2), (300, 240), (60, 48), (0, 0)]
)
def test_when_to_replace_a_token(life_s: float, expected_s: float) -> None:
    """A buffer that leaves less than Kafka's least time between two refreshes cannot be kept, and is ignored."""
    assert refresh_at_s(NOW_S, NOW_S + life_s, settings("http://localhost")) == NOW_S + expected_s


def test_the_old_token_serves_to_its_end(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("old", expires_in=1000), (401, {"error": "invalid_client"})]
    source = TokenSource(settings(endpoint.url), clock=clock)
    ask(source)
    clock.advance(999_999)
    assert ask_twice(source) == ["old", "old"]
    clock.advance(1)
    with pytest.raises(TokenError, match="invalid_client"):
        ask(source)
    assert len(endpoint.requests) == 3


def test_who_has_a_token_does_not_wait_long_for_a_server_that_hangs(
    endpoint: Endpoint, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        source = await source_in_need(endpoint, clock, age_ms=700_000)
        monkeypatch.setattr(tokens, "_PATIENCE_S", 0.05)
        assert await source.token() == "old"
        monkeypatch.setattr(tokens, "_PATIENCE_S", 3600)
        assert await source.token() == "old", "nobody waits for a server that hung just now"
        clock.advance(300_000)
        waiting = asyncio.create_task(source.token())
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done(), "the old one has ended"
        endpoint.is_open.set()
        assert await waiting == "next"

    endpoint.answers = [answer("old", expires_in=1000), answer("next", expires_in=9000)]
    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert len(endpoint.requests) == 2


def test_after_a_failure_the_server_has_a_rest_while_there_is_a_token(
    endpoint: Endpoint, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    # What tests before this one have left behind says so now.
    gc.collect()
    caplog.clear()
    endpoint.answers = [answer("old", expires_in=1000), (401, {"error": "no"}), answer("next", expires_in=1000)]
    source = TokenSource(settings(endpoint.url), clock=clock)
    ask(source)
    clock.advance(700_000)
    assert ask_twice(source) == ["old", "old"]
    clock.advance(9_999)
    assert ask_twice(source) == ["old", "old"]
    assert len(endpoint.requests) == 2
    clock.advance(1)
    assert ask_twice(source) == ["next", "next"]
    gc.collect()
    [line] = caplog.messages
    assert line.startswith(f"no new token yet, the old one still holds: error=no token from {endpoint.url}")


def test_the_rest_after_a_failure_does_not_make_a_token_last_longer(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("old", expires_in=1000), (401, {}), answer("next")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    ask(source)
    clock.advance(999_000)
    assert ask_twice(source) == ["old", "old"]
    clock.advance(1_000)
    assert ask(source) == "next"


def test_closing_ends_a_fetch_that_nobody_waits_for(
    endpoint: Endpoint, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        source = await source_in_need(endpoint, clock, age_ms=700_000)
        monkeypatch.setattr(tokens, "_PATIENCE_S", 0)
        await source.token()
        source.close()
        await fetches_are_over()

    endpoint.answers = [answer("old", expires_in=1000)]
    asyncio.run(scenario())


def test_a_kept_token_is_not_shown(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("sesame", expires_in=1000)]
    source = TokenSource(settings(endpoint.url), clock=clock)
    ask(source)
    assert "end_s" in repr(vars(source))
    assert "sesame" not in repr(vars(source))
    assert "s3cret" not in repr(vars(source))


def gathered(*questions: Awaitable[str]) -> list[str | BaseException]:
    async def gather() -> list[str | BaseException]:
        return await asyncio.gather(*questions, return_exceptions=True)

    return asyncio.run(gather())


def test_all_who_ask_at_once_share_a_fetch(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("one"), answer("two")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    assert gathered(*(source.token() for _ in range(5))) == ["one"] * 5
    assert len(endpoint.requests) == 1


def test_all_who_ask_at_once_share_a_failure(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [(400, {"error": "invalid_scope"}), answer("next")]
    source = TokenSource(settings(endpoint.url), clock=clock)
    failures = gathered(source.token(), source.token())
    assert [type(failure) for failure in failures] == [TokenError, TokenError]
    assert ask(source) == "next"


def test_who_gives_up_does_not_stop_the_others(endpoint: Endpoint, clock: ManualClock) -> None:
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

    endpoint.answers = [answer("one")]
    assert asyncio.run(scenario()) == "one"
    assert len(endpoint.requests) == 1


def test_a_failure_is_not_reported_as_unhandled_because_one_caller_gave_up(
    endpoint: Endpoint, clock: ManualClock
) -> None:
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

    endpoint.answers = [(400, {"error": "invalid_scope"})]
    assert asyncio.run(scenario()) == []


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_server_in_trouble_is_asked_again(endpoint: Endpoint, clock: ManualClock, status: int) -> None:
    endpoint.answers = [(status, {}), (status, {}), answer("abc")]
    assert ask(TokenSource(settings(endpoint.url), clock=clock)) == "abc"
    assert len(endpoint.requests) == 3


def test_a_server_that_stays_in_trouble_is_given_up(endpoint: Endpoint) -> None:
    class Impatient(ManualClock):
        """Every look at it takes a second."""

        def monotonic(self) -> float:
            self.advance(1000)
            return super().monotonic()

    endpoint.answers = [(503, b"come back later")]
    with pytest.raises(TokenError, match="it answers 503: come back later"):
        ask(TokenSource(settings(endpoint.url, retry_backoff_max_ms=3000), clock=Impatient()))
    assert len(endpoint.requests) == 3


def test_a_server_that_is_not_there(refusing: str, clock: ManualClock) -> None:
    with pytest.raises(TokenError, match=rf"{refusing}.*refused"):
        ask(TokenSource(settings(refusing, retry_backoff_max_ms=0), clock=clock))


@pytest.mark.parametrize(
    ("scheme", "limits"),
    [("https", {"connect_timeout_ms": 50}), ("http", {"read_timeout_ms": 50})],
    ids=["connecting", "reading"],
)
def test_each_limit_is_for_its_own_part(clock: ManualClock, scheme: str, limits: dict[str, int]) -> None:
    """Of a server that says nothing; the other limit is 30 s. With https, connecting ends with the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/token"
        start = time.monotonic()
        fields = {"connect_timeout_ms": 30_000, "read_timeout_ms": 30_000, "retry_backoff_max_ms": 0}
        with pytest.raises(TokenError, match="timed out"):
            ask(TokenSource(settings(url, **fields | limits), clock=clock))
        assert time.monotonic() - start < 20


def test_the_limit_for_connecting_is_not_one_for_answering(endpoint: Endpoint, clock: ManualClock) -> None:
    endpoint.answers = [answer("abc")]
    endpoint.is_open.clear()
    threading.Timer(0.5, endpoint.is_open.set).start()
    assert ask(TokenSource(settings(endpoint.url, connect_timeout_ms=250), clock=clock)) == "abc"
    assert len(endpoint.requests) == 1


def test_a_server_that_sends_byte_by_byte_is_given_up(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def limit_s(_: int | None) -> float:
        """Each wait, in the thread that asks, may take so long that only the limit of the whole can be met."""
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
        with pytest.raises(TokenError, match=r"no whole answer within 0\.5 s"):
            await TokenSource(settings(url, retry_backoff_max_ms=0), clock=clock).token()
        server.close()

    asyncio.run(scenario())


def test_a_proxy_of_the_environment_gets_no_secret(
    endpoint: Endpoint, refusing: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = [answer("abc")]
    monkeypatch.setenv("http_proxy", endpoint.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TokenError, match="refused"):
        ask(TokenSource(settings(refusing, retry_backoff_max_ms=0), clock=clock))
    assert not endpoint.requests


@pytest.mark.parametrize(("suffix", "target"), [("", "/"), ("?a=b", "/?a=b"), ("/c?a=b#d", "/c?a=b")])
def test_what_of_the_url_the_server_is_asked_for(
    endpoint: Endpoint, clock: ManualClock, suffix: str, target: str
) -> None:
    endpoint.answers = [answer("abc")]
    ask(TokenSource(settings(endpoint.url.removesuffix("/token") + suffix), clock=clock))
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
        (200, b"", "no JSON object with access_token"),
        (200, b"[" * 100_000, "no JSON object with access_token"),
        (200, {"access_token": 1}, "no JSON object with access_token"),
        (200, {"access_token": "s3cret\x01auth=Bearer x"}, "signs that no bearer token has"),
        (200, {"access_token": " "}, "or is empty"),
    ],
)
def test_answers_that_are_final(endpoint: Endpoint, clock: ManualClock, status: int, body: object, text: str) -> None:
    endpoint.answers = [(status, body), answer("abc")]
    with pytest.raises(TokenError, match=text) as caught:
        ask(TokenSource(settings(endpoint.url), clock=clock))
    assert endpoint.url in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert [path for path, _, _ in endpoint.requests] == ["/token"]


@pytest.mark.parametrize(
    "url", ["", "ftp://host/x", "https://", "http://host:port/", "http://me:s3cret@host/", "http://host/ x"]
)
def test_urls_that_cannot_be(url: str, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url") as caught:
        TokenSource(settings(url), clock=clock)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("field", "option"), [("client_id", "clientId"), ("client_secret", "clientSecret")])
@pytest.mark.parametrize("value", [None, "", " "])
def test_who_asks_must_be_known(field: str, option: str, value: str | None, clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match=rf"sasl\.jaas\.config needs {option}"):
        TokenSource(settings("https://[::1]:1/token?x=y", **{field: value}), clock=clock)


def test_a_file_is_read_again(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "the token"
    path.write_text(" a.b.c\n")
    source = TokenSource(settings(path.as_uri(), client_id=None, client_secret=None), clock=clock)
    assert ask(source) == "a.b.c"
    path.write_text("d.e.f")
    assert ask(source) == "d.e.f"
    path.unlink()
    with pytest.raises(TokenError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        ask(source)
