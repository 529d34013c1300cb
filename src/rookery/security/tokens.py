"""Bearer tokens for OAUTHBEARER, from an OAuth 2 server (client credentials, KIP-768) or from a file.

A token is kept to its end. When the refresh window or the refresh buffer begins, whichever is earlier, the next who
asks starts the fetch of another, and whoever asks meanwhile waits for the same one; but who has a token does not wait
long: an identity provider that hangs must not stop him.
A file is read each time: who writes it decides when there is a new token.
"""

import asyncio
import base64
import http.client
import json
import math
import re
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from rookery.base.clock import Clock
from rookery.base.errors import ConfigError, RookeryError
from rookery.base.values import value_class
from rookery.security.jwt import expiry_s
from rookery.security.settings import TlsSettings, TokenSettings
from rookery.telemetry.library_logs import LibraryLogger

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_URL_KEY = "sasl.oauthbearer.token.endpoint.url"
# For connecting and for each wait for bytes, if not set: Java waits for ever then, and so would whoever needs a token.
_DEFAULT_TIMEOUT_MS = 30_000
# How long who has a token waits for the next.
_PATIENCE_S = 2.0
# After a fetch that failed, or took too long, while there is a token. Kafka's own; a fetch has made its tries before.
_REST_S = 10
# Kafka's default of sasl.login.refresh.min.period.seconds.
_REFRESH_MIN_PERIOD_S = 60
_ANSWER_BYTES_MAX = 1_000_000
_REASON_CHARACTERS_MAX = 1000
# Names and passwords in a URL are not for us: no error that shows it can show one.
_URL = re.compile(r"https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d+)?(?:[/?][!-~]*)?|file://[ -~]*", re.ASCII)
# RFC 6750, section 2.1; anything else could end the message around it.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# They ask to come back later, like all from 500 on.
_LATER = {408, 429}

_log = LibraryLogger(__name__)


class TokenError(RookeryError):
    """There is no token to be had now; the text says from where, and why."""


class _RetriableError(Exception):
    """The server may answer if it is asked again."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@value_class
class _Token:
    text: str = field(repr=False)
    refresh_s: float
    end_s: float


class TokenSource:
    """Belongs to the event loop in which it is asked."""

    def __init__(self, settings: TokenSettings, *, clock: Clock) -> None:
        _check(settings)
        self._settings = settings
        self._is_file = urllib.parse.urlsplit(settings.endpoint_url).scheme == "file"
        self._tls = None if settings.tls is None else _tls_context(settings.tls)
        self._clock = clock
        self._kept: _Token | None = None
        self._fetching: asyncio.Task[_Token] | None = None

    async def token(self) -> str:
        if self._is_file:
            return await _in_thread(_read_file, self._settings.endpoint_url)
        kept, now_s = self._kept, self._now_s()
        if kept is None or now_s >= kept.end_s:
            return await self._fetched_text()
        if now_s >= kept.refresh_s:
            return await self._newer_than(kept)
        return kept.text

    async def _newer_than(self, kept: _Token) -> str:
        """The next token if it comes soon: with what is left of the old one a session would be short."""
        with suppress(TimeoutError, TokenError):
            async with asyncio.timeout(min(_PATIENCE_S, kept.end_s - self._now_s())):
                return await self._fetched_text()
        if self._kept is kept:
            self._rest(kept)
        return kept.text if self._now_s() < kept.end_s else await self.token()

    def _rest(self, kept: _Token) -> None:
        """Those who have a token do not wait again for a while."""
        self._kept = replace(kept, refresh_s=self._now_s() + _REST_S)

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    async def _fetched_text(self) -> str:
        """A caller that is cancelled leaves the fetch to the others. `_fetched` takes note of a failure."""
        # Not asyncio.shield: since Python 3.14 it reports a failure as unhandled whenever one caller was cancelled.
        fetching = self._shared_fetch()
        await asyncio.wait((fetching,))
        return fetching.result().text

    def _shared_fetch(self) -> "asyncio.Task[_Token]":
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: "asyncio.Task[_Token]") -> None:
        self._fetching = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._kept = task.result()
        elif self._kept is not None and self._now_s() < self._kept.end_s:
            # Maybe nobody waits for it, and so nobody else would say so.
            _log.warning("no new token yet, the old one still holds", error=str(error))
            self._rest(self._kept)

    async def _fetch(self) -> _Token:
        settings = self._settings
        deadline = self._clock.monotonic() + settings.retry_backoff_max_ms / 1000
        pause_s = settings.retry_backoff_ms / 1000
        while True:
            asked_s = self._now_s()
            try:
                return _token_of(await self._try(), asked_s, settings)
            except _RetriableError as error:
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise TokenError(f"no token from {settings.endpoint_url}: {error.reason}") from error
                await asyncio.sleep(min(pause_s, left_s))
                pause_s *= 2

    async def _try(self) -> bytes:
        """The limits of a socket are for each wait, of which a server that sends byte by byte makes many."""
        limit_s = _limit_s(self._settings.connect_timeout_ms) + _limit_s(self._settings.read_timeout_ms)
        try:
            async with asyncio.timeout(limit_s):
                return await _in_thread(partial(_ask, self._tls), self._settings)
        except TimeoutError:
            raise _RetriableError(f"no whole answer within {limit_s:g} s") from None

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


async def _in_thread(work: Callable[[Argument], Result], argument: Argument) -> Result:
    """Not in one of the loop's own threads: those are waited for when a program ends, and a server may not answer."""
    answer: Future[Result] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work(argument))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="token", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _check(settings: TokenSettings) -> None:
    url = settings.endpoint_url
    if not _URL.fullmatch(url):
        raise ConfigError(f"{_URL_KEY} must be https://HOST:PORT/PATH, http://HOST:PORT/PATH or file:///PATH")
    if not url.startswith("file:"):
        for name, value in (("clientId", settings.client_id), ("clientSecret", settings.client_secret)):
            if value is None or not value.strip():
                raise ConfigError(f'sasl.jaas.config needs {name}="..." to get a token from {_URL_KEY}')


def _tls_context(tls: TlsSettings) -> ssl.SSLContext:
    # Only here: an endpoint without TLS is for tests.
    from rookery.security.tls import client_context

    try:
        return client_context(tls)
    except ConfigError as error:
        raise ConfigError(f"sasl.jaas.config: {error}") from error


def _limit_s(timeout_ms: int | None) -> float:
    return (timeout_ms if timeout_ms is not None and timeout_ms > 0 else _DEFAULT_TIMEOUT_MS) / 1000


def _ask(tls: ssl.SSLContext | None, settings: TokenSettings) -> bytes:
    try:
        status, body = _post(tls, settings)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise TokenError(
                f"no token from {settings.endpoint_url}: it is not trusted: {error.verify_message}; check "
                "ssl.truststore.location in sasl.jaas.config"
            ) from error
        raise _RetriableError(str(error)) from error
    except ValueError as error:
        raise TokenError(f"no token from {settings.endpoint_url}: {error}; check {_URL_KEY}") from error
    if 200 <= status < 300:
        return body
    reason = f"it answers {status}: {_reason(status, body)}"
    if status >= 500 or status in _LATER:
        raise _RetriableError(reason)
    raise TokenError(
        f"no token from {settings.endpoint_url}: {reason}; check {_URL_KEY}, and clientId, clientSecret and scope in "
        "sasl.jaas.config"
    )


def _post(tls: ssl.SSLContext | None, settings: TokenSettings) -> tuple[int, bytes]:
    """Status and body. The secret goes to the server that the settings name, and to no other.

    Hence not urllib, which goes where redirects send it, and to the environment's proxies, which Java does not know.
    """
    url = urllib.parse.urlsplit(settings.endpoint_url)
    connection = connection_to(url, tls, _limit_s(settings.connect_timeout_ms))
    try:
        connection.connect()
        connection.sock.settimeout(_limit_s(settings.read_timeout_ms))
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", target, _body(settings), _headers(settings))
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES_MAX)
    finally:
        connection.close()


def connection_to(
    url: urllib.parse.SplitResult, tls: ssl.SSLContext | None, timeout_s: float
) -> http.client.HTTPConnection:
    """With its port, without which `http.client` would look for one behind the last colon of an IPv6 address."""
    host = url.hostname or ""
    if url.scheme == "https":
        return http.client.HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=tls)
    return http.client.HTTPConnection(host, url.port or 80, timeout=timeout_s)


def _body(settings: TokenSettings) -> bytes:
    fields = {"grant_type": "client_credentials"}
    if settings.scope and settings.scope.strip():
        fields["scope"] = settings.scope.strip()
    return urllib.parse.urlencode(fields).encode()


def _headers(settings: TokenSettings) -> dict[str, str]:
    who = [(part or "").strip() for part in (settings.client_id, settings.client_secret)]
    if settings.url_encode_header:
        # RFC 6749 asks for it in section 2.3.1, and most servers do not expect it.
        who = [urllib.parse.quote_plus(part) for part in who]
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(':'.join(who).encode()).decode()}",
        "Cache-Control": "no-cache",
        "Connection": "close",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "rookery",
    }


def _reason(status: int, body: bytes) -> str:
    """RFC 6749, section 5.2: an error has a name and a description, neither of them secret."""
    text = body.decode(errors="replace").strip()
    return text[:_REASON_CHARACTERS_MAX] or http.client.responses.get(status, "nothing")


def _token_of(answer: bytes, asked_s: float, settings: TokenSettings) -> _Token:
    """The answer may hold the token, and so is never shown."""
    try:
        fields = json.loads(answer)
    except (ValueError, RecursionError):
        fields = None
    text = fields.get("access_token") if isinstance(fields, dict) else None
    if not isinstance(text, str):
        raise TokenError(f"no token from {settings.endpoint_url}: its answer is no JSON object with access_token")
    text = _checked(text, settings.endpoint_url)
    life_s = _seconds(fields.get("expires_in"))
    # Brokers go by what the token says of itself; a server that counts whole seconds, or that keeps tokens, says more.
    ends_s = [end_s for end_s in (None if life_s is None else asked_s + life_s, expiry_s(text)) if end_s is not None]
    # If nobody knows how long it holds, it is not kept.
    end_s = min(ends_s, default=asked_s)
    return _Token(text, refresh_at_s(asked_s, end_s, settings), end_s)


def refresh_at_s(start_s: float, end_s: float, settings: TokenSettings) -> float:
    """When a token should be replaced. As in Apache Kafka, a buffer that leaves it less than a minute is ignored."""
    life_s = end_s - start_s
    window_s = start_s + life_s * settings.refresh_window_factor
    if settings.refresh_buffer_s + _REFRESH_MIN_PERIOD_S > life_s:
        return window_s
    return min(window_s, end_s - settings.refresh_buffer_s)


def _seconds(value: object) -> float | None:
    """Some servers quote the number."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


def _read_file(url: str) -> str:
    path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TokenError(f"no token from {url}: {error}; check {_URL_KEY}") from error
    return _checked(text, url)


def _checked(text: str, url: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise TokenError(f"no token from {url}: what is there has signs that no bearer token has, or is empty")
    return token
