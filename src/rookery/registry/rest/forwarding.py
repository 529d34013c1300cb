"""Forwards requests that only the leader can handle from another node, unchanged, and returns the leader's response.

A request that was forwarded already is not forwarded again. Without this, two nodes that each believe that the other
leads would send it back and forth endlessly.
"""

import ssl
from typing import Final

import httpx
import structlog
from starlette.requests import Request
from starlette.responses import Response

from rookery.registry import errors
from rookery.registry.rest.endpoints import Registry, Write
from rookery.registry.settings import RegistrySettings, TlsFiles

_log = structlog.get_logger(__name__)

FORWARDED: Final = "x-forward"
_HEADERS: Final = ("content-type", "accept", "confluent-accept-unknown-properties", "authorization", "x-request-id")
_RESPONSE_HEADERS: Final = ("content-type", "www-authenticate", "allow")


class Forwarder:
    """Holds the connections to the leader. The client is created on first use, in the event loop of the server."""

    def __init__(self, registry: Registry, settings: RegistrySettings) -> None:
        self._registry = registry
        self._settings = settings
        self._client: httpx.AsyncClient | None = None

    async def forward(self, request: Request, body: bytes, write: Write) -> Response:
        """Return the leader's response. Raises RegistryError if there is no leader or it cannot be reached."""
        leader = self._registry.leader_url
        if leader is None or FORWARDED in request.headers:
            raise errors.unknown_leader(write.leader_unknown)
        address = leader.rstrip("/") + request.scope["path"]
        query = request.scope["query_string"].decode("latin-1")
        try:
            response = await self._connected().request(
                request.method, f"{address}?{query}" if query else address, content=body, headers=self._headers(request)
            )
        except httpx.HTTPError as error:
            _log.warning("forwarding failed", leader=leader, error=repr(error))
            raise errors.forwarding_failed(f"Error while forwarding {write.name} request to the leader") from error
        if response.is_success:
            # A client that writes through this node must find what it wrote when it reads from this node.
            await self._registry.catch_up()
        kept = {name: response.headers[name] for name in _RESPONSE_HEADERS if name in response.headers}
        return Response(response.content, response.status_code, kept)

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
                # Proxies from the environment are for outside addresses, not for the nodes of one registry.
                trust_env=False,
            )
        return self._client


def _tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """Return a context with the node's own certificate: the other nodes may require client certificates."""
    context = ssl.create_default_context(cafile=tls.truststore)
    if tls.keystore is not None:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.keystore, password=tls.key_password or "")
    return context
