"""Sends requests to a registry with one url or several. The first url that answers is used for the next requests.

If a url does not answer, or answers with a temporary error (such as 503), the next url is tried. If all fail, all are
tried again after a wait, up to `max.retries` times. A deletion must not be done twice: it is retried only if the
registry certainly did not receive it. `request.timeout.ms` limits all attempts together.

All threads share one HTTP client and its connections. If no url answered, the following requests fail immediately for a
short time. Otherwise many threads, or many schemas, would wait for the same time-out one after the other. A pickled
copy opens its own connections.
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
# Temporary failures of the registry, or of a gateway in front of it.
_TEMPORARY: Final = frozenset({408, 429, 500, 502, 503, 504})
_NOT_RECEIVED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
NO_CODE: Final = -1
_FAILURE_REMEMBERED_S: Final = 1.0


class _Endpoint(NamedTuple):
    """`url` does not contain user and password, because error messages quote it."""

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
    """No url answered. Requests before the time `until` fail with the same `failures`."""

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
        """Return the body of the response. Raises RegistryRequestError, or RegistryUnavailableError if no url answers.

        Raises RuntimeError if the transport is closed.
        """
        if self._closing.is_set():
            raise RuntimeError("the registry client is closed")
        last = self._last_failure
        if last is not None and self._clock.monotonic() < last.until:
            raise RegistryUnavailableError(last.failures)
        failures: dict[str, str] = {}
        error_response: httpx.Response | None = None
        deadline = self._clock.monotonic() + self._settings.timeout_ms / 1000
        for number in self._attempts(deadline):
            endpoint = self._endpoints[number]
            try:
                response = self._send_to(endpoint, request, deadline)
            except httpx.RequestError as error:
                failures[endpoint.url] = describe(error)
                if not (request.is_repeatable or isinstance(error, _NOT_RECEIVED)):
                    break
                continue
            if response.status_code not in _TEMPORARY:
                self._current = number
                return _body(response, endpoint.url)
            error_response = response
            if not request.is_repeatable:
                break
        else:
            if error_response is None:
                self._last_failure = _Failure(failures, self._clock.monotonic() + _FAILURE_REMEMBERED_S)
        if error_response is not None:
            raise _request_error(error_response, str(error_response.request.url))
        raise RegistryUnavailableError(failures)

    def close(self) -> None:
        """Close the connections. A request that waits for its next attempt fails."""
        self._closing.set()
        self._client.close()

    def _attempts(self, deadline: float) -> Iterator[int]:
        """Yield the indexes of the endpoints in the order in which to try them; wait between the rounds.

        Yields at least one, even if the deadline has passed.
        """
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
    raise _request_error(response, url)


def _request_error(response: httpx.Response, url: str) -> RegistryRequestError:
    try:
        error = msgspec.json.decode(response.content, type=ErrorJson)
    except msgspec.DecodeError:
        hint = "check basic.auth.user.info" if response.status_code == 401 else "is that the url of a schema registry?"
        return RegistryRequestError(response.status_code, NO_CODE, f"{url} answers {response.reason_phrase}; {hint}")
    return RegistryRequestError(response.status_code, error.error_code, error.message or "")


def _parse_endpoints(urls: str | Sequence[str], settings: RegistrySettings) -> tuple[_Endpoint, ...]:
    """`urls` is one url, several separated by commas, or a list."""
    texts = urls.split(",") if isinstance(urls, str) else urls
    endpoints = tuple(_parse_endpoint(each.strip(), settings.user_info) for each in texts if each.strip())
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
