"""Bearer tokens for OAUTHBEARER, from an OAuth 2 server (client credentials, KIP-768) or from a file.

A token is cached until it expires. When the refresh window or the refresh buffer begins, whichever is earlier, the next
call starts the fetch of another token, and concurrent calls wait for the same fetch. While the cached token is valid,
they wait only for a short time: an identity provider that hangs must not block a login that could succeed.
A file is read with each call, so that a new token is used as soon as it is written.
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
# For connecting and for each wait for bytes, if not set. Java would wait for ever, and so would the login.
_DEFAULT_TIMEOUT_MS = 30_000
# How long a call waits for the next token while the cached one is valid.
_REFRESH_WAIT_S = 2.0
# The pause after a fetch that failed or took too long, while the cached token is valid; as in Kafka. The fetch has made
# its own retries before.
_RETRY_PAUSE_S = 10
# Kafka's default of sasl.login.refresh.min.period.seconds.
_REFRESH_MIN_PERIOD_S = 60
_RESPONSE_BYTES_MAX = 1_000_000
_REASON_CHARACTERS_MAX = 1000
# Without user names and passwords, so that errors can show the URL.
_URL = re.compile(r"https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d+)?(?:[/?][!-~]*)?|file://[ -~]*", re.ASCII)
# RFC 6750, section 2.1; other characters could end the message that contains the token.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# Retriable, like all from 500 on.
_RETRIABLE_STATUSES = {408, 429}

_log = LibraryLogger(__name__)


class TokenError(RookeryError):
    """No token is available; the text has the source and the reason."""


class _RetriableError(Exception):
    """The request may succeed if it is repeated."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@value_class
class _Token:
    text: str = field(repr=False)
    refresh_s: float
    end_s: float


class TokenSource:
    """Belongs to the event loop in which `token` is called."""

    def __init__(self, settings: TokenSettings, *, clock: Clock) -> None:
        _check(settings)
        self._settings = settings
        self._is_file = urllib.parse.urlsplit(settings.endpoint_url).scheme == "file"
        self._tls = None if settings.tls is None else endpoint_context(settings.tls)
        self._clock = clock
        self._cached: _Token | None = None
        self._fetching: asyncio.Task[_Token] | None = None

    async def token(self) -> str:
        """Return a valid token. Raises TokenError if there is none."""
        if self._is_file:
            return await _in_thread(_read_file, self._settings.endpoint_url)
        cached, now_s = self._cached, self._now_s()
        if cached is None or now_s >= cached.end_s:
            return await self._fetch_shared()
        if now_s >= cached.refresh_s:
            return await self._refreshed(cached)
        return cached.text

    async def _refreshed(self, cached: _Token) -> str:
        """Return the next token if it arrives soon, else `cached`, whose short remaining life makes short sessions."""
        with suppress(TimeoutError, TokenError):
            async with asyncio.timeout(min(_REFRESH_WAIT_S, cached.end_s - self._now_s())):
                return await self._fetch_shared()
        if self._cached is cached:
            self._pause_refresh(cached)
        return cached.text if self._now_s() < cached.end_s else await self.token()

    def _pause_refresh(self, cached: _Token) -> None:
        """Use `cached` for a while without another fetch."""
        self._cached = replace(cached, refresh_s=self._now_s() + _RETRY_PAUSE_S)

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    async def _fetch_shared(self) -> str:
        """Wait for the shared fetch. A caller that is cancelled does not cancel it; `_on_fetched` handles a failure."""
        # Not asyncio.shield: since Python 3.14 it reports a failure as unhandled whenever one caller was cancelled.
        fetching = self._start_fetch()
        await asyncio.wait((fetching,))
        return fetching.result().text

    def _start_fetch(self) -> "asyncio.Task[_Token]":
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
            self._fetching.add_done_callback(self._on_fetched)
        return self._fetching

    def _on_fetched(self, task: "asyncio.Task[_Token]") -> None:
        self._fetching = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._cached = task.result()
        elif self._cached is not None and self._now_s() < self._cached.end_s:
            # No caller may be waiting for the fetch, so that this is the only report.
            _log.warning("cannot get a new token, the present one is still valid", error=str(error))
            self._pause_refresh(self._cached)

    async def _fetch(self) -> _Token:
        settings = self._settings
        deadline = self._clock.monotonic() + settings.retry_backoff_max_ms / 1000
        pause_s = settings.retry_backoff_ms / 1000
        while True:
            requested_s = self._now_s()
            try:
                return _token_of(await self._request(), requested_s, settings)
            except _RetriableError as error:
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise TokenError(f"no token from {settings.endpoint_url}: {error.reason}") from error
                await asyncio.sleep(min(pause_s, left_s))
                pause_s *= 2

    async def _request(self) -> bytes:
        """Request a token, with a limit for the whole response.

        The time-outs of a socket apply to each wait, of which a server that sends byte by byte causes many.
        """
        limit_s = _limit_s(self._settings.connect_timeout_ms) + _limit_s(self._settings.read_timeout_ms)
        try:
            async with asyncio.timeout(limit_s):
                return await _in_thread(partial(_post_checked, self._tls), self._settings)
        except TimeoutError:
            raise _RetriableError(f"no complete response within {limit_s:g} s") from None

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


async def _in_thread(work: Callable[[Argument], Result], argument: Argument) -> Result:
    """Run `work` in a daemon thread. The loop's own threads are joined when a program ends, and a server may hang."""
    response: Future[Result] = Future()
    response.set_running_or_notify_cancel()

    def run() -> None:
        try:
            response.set_result(work(argument))
        except Exception as error:
            response.set_exception(error)

    threading.Thread(target=run, name="token", daemon=True).start()
    return await asyncio.wrap_future(response)


def _check(settings: TokenSettings) -> None:
    url = settings.endpoint_url
    if not _URL.fullmatch(url):
        raise ConfigError(f"{_URL_KEY} must be https://HOST:PORT/PATH, http://HOST:PORT/PATH or file:///PATH")
    if not url.startswith("file:"):
        for name, value in (("clientId", settings.client_id), ("clientSecret", settings.client_secret)):
            if value is None or not value.strip():
                raise ConfigError(f'sasl.jaas.config needs {name}="..." to get a token from {_URL_KEY}')


def endpoint_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the context of connections to an identity provider. Raises ConfigError, which names the JAAS text."""
    # Imported only here: only an endpoint with https needs it.
    from rookery.security.tls import client_context

    try:
        return client_context(tls)
    except ConfigError as error:
        raise ConfigError(f"sasl.jaas.config: {error}") from error


def _limit_s(timeout_ms: int | None) -> float:
    return (timeout_ms if timeout_ms is not None and timeout_ms > 0 else _DEFAULT_TIMEOUT_MS) / 1000


def _post_checked(tls: ssl.SSLContext | None, settings: TokenSettings) -> bytes:
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
    reason = f"it returned {status}: {_reason(status, body)}"
    if status >= 500 or status in _RETRIABLE_STATUSES:
        raise _RetriableError(reason)
    raise TokenError(
        f"no token from {settings.endpoint_url}: {reason}; check {_URL_KEY}, and clientId, clientSecret and scope in "
        "sasl.jaas.config"
    )


def _post(tls: ssl.SSLContext | None, settings: TokenSettings) -> tuple[int, bytes]:
    """Send the request; return status and body. The secret is sent only to the server that the settings name.

    urllib is not used, because it follows redirects, and uses the proxies of the environment, which Java ignores.
    """
    url = urllib.parse.urlsplit(settings.endpoint_url)
    connection = connection_to(url, tls, _limit_s(settings.connect_timeout_ms))
    try:
        connection.connect()
        connection.sock.settimeout(_limit_s(settings.read_timeout_ms))
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", target, _body(settings), _headers(settings))
        response = connection.getresponse()
        return response.status, response.read(_RESPONSE_BYTES_MAX)
    finally:
        connection.close()


def connection_to(
    url: urllib.parse.SplitResult, tls: ssl.SSLContext | None, timeout_s: float
) -> http.client.HTTPConnection:
    """Return a connection with an explicit port: `http.client` would parse the end of an IPv6 address as one."""
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
    credentials = [(part or "").strip() for part in (settings.client_id, settings.client_secret)]
    if settings.url_encode_header:
        # RFC 6749 requires it in section 2.3.1, but most servers do not expect it.
        credentials = [urllib.parse.quote_plus(part) for part in credentials]
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(':'.join(credentials).encode()).decode()}",
        "Cache-Control": "no-cache",
        "Connection": "close",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "rookery",
    }


def _reason(status: int, body: bytes) -> str:
    """Return the reason in an error response (RFC 6749, section 5.2), which contains no secrets."""
    text = body.decode(errors="replace").strip()
    return text[:_REASON_CHARACTERS_MAX] or http.client.responses.get(status, "nothing")


def _token_of(response: bytes, requested_s: float, settings: TokenSettings) -> _Token:
    """Return the token of a response, which no error may show: it may contain the token."""
    try:
        fields = json.loads(response)
    except (ValueError, RecursionError):
        fields = None
    text = fields.get("access_token") if isinstance(fields, dict) else None
    if not isinstance(text, str):
        raise TokenError(f"no token from {settings.endpoint_url}: its response is not a JSON object with access_token")
    text = _checked(text, settings.endpoint_url)
    life_s = _seconds(fields.get("expires_in"))
    # Brokers use the token's own expiry. `expires_in` may be later, if the server rounds it or caches tokens.
    ends_s = [
        end_s for end_s in (None if life_s is None else requested_s + life_s, expiry_s(text)) if end_s is not None
    ]
    # A token without a known expiry is not cached.
    end_s = min(ends_s, default=requested_s)
    return _Token(text, refresh_at_s(requested_s, end_s, settings), end_s)


def refresh_at_s(start_s: float, end_s: float, settings: TokenSettings) -> float:
    """Return the time to replace a token. As in Apache Kafka, a buffer is ignored if it leaves less than a minute."""
    life_s = end_s - start_s
    window_s = start_s + life_s * settings.refresh_window_factor
    if settings.refresh_buffer_s + _REFRESH_MIN_PERIOD_S > life_s:
        return window_s
    return min(window_s, end_s - settings.refresh_buffer_s)


def _seconds(value: object) -> float | None:
    """Parse a number of seconds, which some servers send as a string."""
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
        raise TokenError(f"no token from {url}: it is empty, or has characters that no bearer token has")
    return token
