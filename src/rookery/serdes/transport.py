"""Requests to a registry that has one url or several: the first that answers is asked from then on.

A url that does not answer, or that is not able to (503 and its like), is left for the next one. If none is able to,
all are tried again after a wait, up to `max.retries` times. What may not be done twice, a deletion, is tried again only
if it has certainly not been received. All tries together end after `request.timeout.ms`.

All threads share one client and its connections. If nobody answered, other requests fail at once for a moment: many
threads, or many schemas, do not wait one after the other. A copy in another process has connections of its own.
"""

import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import httpx
import msgspec

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ConfigError
from rookery.serdes.entities import ErrorJson
from rookery.serdes.errors import RegistryRequestError, RegistryUnavailableError, describe
from rookery.serdes.settings import RegistrySettings

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ACCEPTED: Final = f"{CONTENT_TYPE}, application/vnd.schemaregistry+json; q=0.9, application/json; q=0.5"
# The server, or something on the way to it, cannot at the moment.
_UNABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_NOT_RECEIVED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
NO_CODE: Final = -1
_FAILURE_REMEMBERED_S: Final = 1.0


class _Endpoint(NamedTuple):
    """`url` is without user and password: it stands in error messages."""

    url: str
    auth: httpx.BasicAuth | None


class Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None

    @property
    def is_repeatable(self) -> bool:
        return self.method != "DELETE"


class _Failure(NamedTuple):
    """Nobody answered, as it is known until then."""

    failures: dict[str, str]
    until: float


class Transport:
    def __init__(self, urls: str | Sequence[str], settings: RegistrySettings, clock: Clock | None = None) -> None:
        self._urls = urls
        self._clock = clock or SystemClock()
        self._last_failure: _Failure | None = None
        self._endpoints = _parse_endpoints(urls, settings)
        self._settings = settings
        self._current = 0
        self._closing = threading.Event()
        self._client = httpx.Client(
            verify=_tls(settings) if any(each.url.startswith("https:") for each in self._endpoints) else False,
            headers={"Accept": _ACCEPTED},
            follow_redirects=True,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Transport, (self._urls, self._settings)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(each.url for each in self._endpoints)

    def send(self, request: Request) -> bytes:
        """The body of the answer. Raises RegistryRequestError, or RegistryUnavailableError if nobody answers."""
        if self._closing.is_set():
            raise RuntimeError("the registry client is closed")
        last = self._last_failure
        if last is not None and self._clock.monotonic() < last.until:
            raise RegistryUnavailableError(last.failures)
        failures: dict[str, str] = {}
        refusal: httpx.Response | None = None
        deadline = self._clock.monotonic() + self._settings.timeout_ms / 1000
        for number in self._tries(deadline):
            endpoint = self._endpoints[number]
            try:
                response = self._send_to(endpoint, request, deadline)
            except httpx.RequestError as error:
                failures[endpoint.url] = describe(error)
                if not (request.is_repeatable or isinstance(error, _NOT_RECEIVED)):
                    break
                continue
            if response.status_code not in _UNABLE:
                self._current = number
                return _body(response, endpoint.url)
            refusal = response
            if not request.is_repeatable:
                break
        else:
            if refusal is None:
                self._last_failure = _Failure(failures, self._clock.monotonic() + _FAILURE_REMEMBERED_S)
        if refusal is not None:
            raise _refused(refusal, str(refusal.request.url))
        raise RegistryUnavailableError(failures)

    def close(self) -> None:
        """A thread that waits for its next try gives up."""
        self._closing.set()
        self._client.close()

    def _tries(self, deadline: float) -> Iterator[int]:
        """Numbers of endpoints in the order in which to ask them; waits between the rounds. At least one."""
        count, wait_ms = len(self._endpoints), self._settings.wait_ms
        for round_number in range(self._settings.retries_max + 1):
            if round_number:
                wait_s = min(wait_ms, self._settings.wait_ms_max) / 1000
                if self._closing.wait(min(wait_s, self._left_s(deadline))):
                    return
                wait_ms *= 2
            first = self._current
            for step in range(count):
                if (round_number or step) and not self._left_s(deadline):
                    return
                yield (first + step) % count

    def _send_to(self, endpoint: _Endpoint, request: Request, deadline: float) -> httpx.Response:
        return self._client.request(
            request.method,
            endpoint.url + request.path,
            params=request.query or None,
            content=request.body,
            headers={"Content-Type": CONTENT_TYPE} if request.body is not None else None,
            auth=endpoint.auth or httpx.USE_CLIENT_DEFAULT,
            timeout=self._timeout(self._left_s(deadline)),
        )

    def _timeout(self, left_s: float) -> httpx.Timeout:
        read_s, connect_s = self._settings.read_timeout_ms / 1000, self._settings.connect_timeout_ms / 1000
        return httpx.Timeout(min(read_s, left_s), connect=min(connect_s, left_s))

    def _left_s(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.0)


def _body(response: httpx.Response, url: str) -> bytes:
    if response.is_success:
        return response.content
    raise _refused(response, url)


def _refused(response: httpx.Response, url: str) -> RegistryRequestError:
    try:
        error = msgspec.json.decode(response.content, type=ErrorJson)
    except msgspec.DecodeError:
        hint = "check basic.auth.user.info" if response.status_code == 401 else "is that the url of a schema registry?"
        return RegistryRequestError(response.status_code, NO_CODE, f"{url} answers {response.reason_phrase}; {hint}")
    return RegistryRequestError(response.status_code, error.error_code, error.message or "")


def _parse_endpoints(urls: str | Sequence[str], settings: RegistrySettings) -> tuple[_Endpoint, ...]:
    """One url, several with commas, or a list of them."""
    given = urls.split(",") if isinstance(urls, str) else urls
    endpoints = tuple(_parse_endpoint(each.strip(), settings.user_info) for each in given if each.strip())
    if not endpoints:
        raise ConfigError("give the url of a schema registry, such as http://localhost:8081")
    return endpoints


def _parse_endpoint(text: str, user_info: str | None) -> _Endpoint:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ConfigError(f"the url of the schema registry is not valid: {error}") from None
    shown = str(url.copy_with(username=None, password=None)).rstrip("/")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"{shown!r} is not the url of a schema registry, such as http://localhost:8081")
    if url.username and user_info is not None:
        raise ConfigError("user and password are in the url and in basic.auth.user.info; leave out one of them")
    if url.username:
        return _Endpoint(shown, httpx.BasicAuth(url.username, url.password))
    return _Endpoint(shown, None if user_info is None else httpx.BasicAuth(*user_info.split(":", 1)))


def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        context = httpx.create_ssl_context() if settings.ca_file is None else _trusting(settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file, settings.key_password)
    except OSError as error:
        raise ConfigError(f"the files in ssl.*.location cannot be used: {error}") from error
    if not settings.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trusting(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)
