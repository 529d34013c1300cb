"""Requests that only the leader can answer, on a node that is not: sent on as they are, and answered as it does.

A request that was sent on already is not sent on again: two nodes that take each other for the leader would send it
to and fro.
"""

import ssl
from typing import Final

import httpx
import structlog
from starlette.requests import Request
from starlette.responses import Response

from rookery.registry import errors
from rookery.registry.rest.endpoints import Registry, Writing
from rookery.registry.settings import RegistrySettings, TlsFiles

_log = structlog.get_logger(__name__)

FORWARDED: Final = "x-forward"
_HEADERS: Final = ("content-type", "accept", "confluent-accept-unknown-properties", "authorization", "x-request-id")
_ANSWER_HEADERS: Final = ("content-type", "www-authenticate", "allow")


class Forwarder:
    """Holds the connections to the leader; made on first use, in the event loop that serves requests."""

    def __init__(self, registry: Registry, settings: RegistrySettings) -> None:
        self._registry = registry
        self._settings = settings
        self._client: httpx.AsyncClient | None = None

    async def forward(self, request: Request, body: bytes, writing: Writing) -> Response:
        """The leader's answer. Raises RegistryError if there is no leader or it cannot be reached."""
        leader = self._registry.leader_url
        if leader is None or FORWARDED in request.headers:
            raise errors.unknown_leader(writing.leader_unknown)
        address = leader.rstrip("/") + request.scope["path"]
        query = request.scope["query_string"].decode("latin-1")
        try:
            answer = await self._connected().request(
                request.method, f"{address}?{query}" if query else address, content=body, headers=self._headers(request)
            )
        except httpx.HTTPError as error:
            _log.warning("forwarding failed", leader=leader, error=repr(error))
            raise errors.forwarding_failed(f"Error while forwarding {writing.request} request to the leader") from error
        if answer.is_success:
            # Whoever writes through this node finds what it wrote here, too.
            await self._registry.catch_up()
        kept = {name: answer.headers[name] for name in _ANSWER_HEADERS if name in answer.headers}
        return Response(answer.content, answer.status_code, kept)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _headers(self, request: Request) -> dict[str, str]:
        names = {*_HEADERS, *(name.lower() for name in self._settings.forwarded_headers)}
        kept = {name: request.headers[name] for name in names if name in request.headers}
        return {**kept, FORWARDED: "true"}

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=_tls_context(self._settings.tls),
                timeout=httpx.Timeout(
                    self._settings.leader_read_timeout_ms / 1000,
                    connect=self._settings.leader_connect_timeout_ms / 1000,
                ),
                # A proxy has no business between the nodes of one registry.
                trust_env=False,
            )
        return self._client


def _tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """A node shows the others the certificate that it shows its clients: they may ask for one."""
    context = ssl.create_default_context(cafile=tls.truststore)
    if tls.keystore is not None:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.keystore, password=tls.key_password or "")
    return context
