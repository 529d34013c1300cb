"""The keys with which an identity provider signs tokens: read at the start, and again in the background.

They are fetched every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon after a token with an unknown key, because
the provider may have a new one; but never during a login, which a slow provider could block. If the provider does not
answer, the old keys stay, and the pause before the next attempt doubles.
"""

import asyncio
import http.client
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import StartupError
from rookery.node.background import Job
from rookery.security.listener_security import TokenSettings
from rookery.security.token_signatures import VerificationKeys
from rookery.security.token_validation import (
    BearerToken,
    InvalidTokenError,
    UnknownKeyError,
    read_unsecured,
    validate,
)
from rookery.security.tokens import connection_to, endpoint_context

logger = structlog.get_logger(__name__)

_RESPONSE_BYTES_MAX: Final = 1_000_000
_CHECK_INTERVAL_MS: Final = 1000
# A token with an unknown key causes at most one attempt in this time: its sender may be hostile.
_UNKNOWN_KEY_PAUSE_S: Final = 10.0


def validate_unsecured(settings: TokenSettings, clock: Clock) -> Callable[[str], BearerToken]:
    """Return the check of tokens without signatures."""
    return lambda token: validate(read_unsecured(token), settings.rules, clock.now_ms() / 1000)


class KeySource:
    """The keys of one listener. `validate` is called in threads, everything else on the event loop."""

    def __init__(self, settings: TokenSettings, clock: Clock, executor: Executor | None) -> None:
        """Raises ConfigError if the certificates of an endpoint with https cannot be used."""
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._tls = None if settings.tls is None else endpoint_context(settings.tls)
        self._keys: VerificationKeys | None = None
        self._is_key_missing = False
        self._fetched_s = 0.0
        self._due_s = 0.0
        self._failures = 0

    async def open(self) -> None:
        """Read the keys. Raises StartupError if they are in a file that cannot be used."""
        error = await self._fetch()
        if error is not None and self._url.startswith("file:"):
            raise StartupError(f"sasl.oauthbearer.jwks.endpoint.url: {error}")

    def validate(self, token: str) -> BearerToken:
        """Check a token and its signature. Raises InvalidTokenError."""
        keys = self._keys
        if keys is None:
            raise InvalidTokenError("the keys of the identity provider are not known yet")
        try:
            claims = keys.verify(token)
        except UnknownKeyError:
            self._is_key_missing = True
            raise
        return validate(claims, self._settings.rules, self._clock.now_ms() / 1000)

    def job(self) -> Job:
        return Job("verification keys", lambda: _CHECK_INTERVAL_MS, self._refresh)

    @property
    def _url(self) -> str:
        assert self._settings.keys_url is not None
        return self._settings.keys_url

    async def _refresh(self) -> None:
        now_s = self._clock.monotonic()
        is_wanted = self._is_key_missing and now_s - self._fetched_s >= _UNKNOWN_KEY_PAUSE_S
        if is_wanted or now_s >= self._due_s:
            await self._fetch()

    async def _fetch(self) -> str | None:
        """Fetch the keys; return an error."""
        self._is_key_missing = False
        error: str | None = None
        loop = asyncio.get_running_loop()
        try:
            self._keys = await loop.run_in_executor(self._executor, self._read)
        except (OSError, ValueError, http.client.HTTPException) as failure:
            error = f"no keys from {self._url}: {failure}"
            logger.error("the keys of the identity provider cannot be read", error=error)
            first_s, longest_s = self._settings.retry_ms / 1000, self._settings.retry_max_ms / 1000
            pause_s = min(first_s * 2**self._failures, longest_s)
            self._failures = min(self._failures + 1, 30)
        else:
            self._failures = 0
            pause_s = self._settings.refresh_ms / 1000
        self._fetched_s = self._clock.monotonic()
        self._due_s = self._fetched_s + pause_s
        return error

    def _read(self) -> VerificationKeys:
        """Read the keys. Blocks."""
        url = urllib.parse.urlsplit(self._url)
        if url.scheme == "file":
            return VerificationKeys(Path(urllib.request.url2pathname(url.path)).read_text(encoding="utf-8"))
        connection = connection_to(url, self._tls, self._settings.timeout_s)
        try:
            connection.request("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""))
            response = connection.getresponse()
            body = response.read(_RESPONSE_BYTES_MAX)
            if response.status != http.client.OK:
                raise OSError(f"it returned {response.status}")
            return VerificationKeys(body.decode())
        finally:
            connection.close()
