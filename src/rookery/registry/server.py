"""The registry's listeners: uvicorn serves an ASGI app on the current event loop, over http and https.

The ports are bound first (`bind`), so that an unavailable port is reported before any long work. The other nodes learn
the addresses before requests are served; from `listen` on, connections wait in the system's queue.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn

from rookery.base.errors import StartupError
from rookery.registry.http_bounds import DEFAULT_BOUNDS, BoundedConfig, HttpBounds, Usage
from rookery.registry.settings import RegistryListener, TlsFiles

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_BACKLOG: Final = 512
_KEEP_ALIVE_S: Final = 30
_GRACE_S: Final = 5
_NOT_SERVED: Final = "the schema registry's listeners stopped before they served: see the log lines above"
_VERIFY: Final = {"NONE": ssl.CERT_NONE, "REQUESTED": ssl.CERT_OPTIONAL, "REQUIRED": ssl.CERT_REQUIRED}


class RegistryServer:
    """Call `bind`, `listen` and `serve` in this order; `stop` at any time."""

    def __init__(
        self, listeners: tuple[RegistryListener, ...], tls: TlsFiles, *, bounds: HttpBounds = DEFAULT_BOUNDS
    ) -> None:
        self._listeners = listeners
        self._tls = tls
        self._bounds = bounds
        self._usage = Usage()
        self._sockets: list[socket.socket] = []
        self._servers: list[_Server] = []
        self._tasks: list[asyncio.Task[None]] = []

    def bind(self) -> tuple[RegistryListener, ...]:
        """Bind the ports and return the listeners with their actual ports. Raises StartupError if one is in use."""
        for listener in self._listeners:
            try:
                self._sockets.append(_bind(listener))
            except OSError as error:
                self._close_sockets()
                raise _unavailable(listener, error) from error
        pairs = zip(self._listeners, self._sockets, strict=True)
        return tuple(listener._replace(port=bound.getsockname()[1]) for listener, bound in pairs)

    def listen(self) -> None:
        """Listen on the bound ports. Raises StartupError if another process began to listen on one since `bind`."""
        for listener, bound in zip(self._listeners, self._sockets, strict=True):
            try:
                bound.listen(_BACKLOG)
            except OSError as error:
                raise _unavailable(listener, error) from error

    async def serve(self, app: "ASGIApp") -> None:
        """Return when all listeners accept requests. Only the first one sends the app the lifespan events."""
        context = _tls_context(self._tls) if any(each.scheme == "https" for each in self._listeners) else None
        for listener, bound in zip(self._listeners, self._sockets, strict=True):
            config = self._config(app, has_lifespan=not self._servers)
            server = _Server(config, context if listener.scheme == "https" else None)
            self._servers.append(server)
            self._tasks.append(asyncio.get_running_loop().create_task(server.serve(sockets=[bound])))
        for server, task in zip(self._servers, self._tasks, strict=True):
            await _until_serving(server, task)

    def _config(self, app: "ASGIApp", *, has_lifespan: bool) -> BoundedConfig:
        return BoundedConfig(
            app,
            bounds=self._bounds,
            usage=self._usage,
            ws="none",
            lifespan="on" if has_lifespan else "off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )

    async def stop(self) -> None:
        """Stop. Requests in progress are completed, up to a time-out; idle connections are closed."""
        for server in self._servers:
            server.should_exit = True
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._close_sockets()

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()


class _Server(uvicorn.Server):
    """A uvicorn server inside a larger process, which handles signals itself. Errors at the start raise."""

    def __init__(self, config: BoundedConfig, context: ssl.SSLContext | None) -> None:
        config.load()
        config.ssl = context
        super().__init__(config)
        self.is_serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as error:
            raise StartupError(_NOT_SERVED) from error

    async def main_loop(self) -> None:
        self.is_serving.set()
        await super().main_loop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _until_serving(server: _Server, task: "asyncio.Task[None]") -> None:
    """Wait until the server serves. Raises StartupError, or the server's own error, if it ends before."""
    waiting = asyncio.ensure_future(server.is_serving.wait())
    try:
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done():
        task.result()
        raise StartupError(_NOT_SERVED)


def _bind(listener: RegistryListener) -> socket.socket:
    is_dual = not listener.host and socket.has_dualstack_ipv6()
    family, _, _, _, found = socket.getaddrinfo(
        "::" if is_dual else listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it. Without it, a response's body waits for the acknowledgement of its head.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_dual)
        bound.bind(found)
    except OSError:
        bound.close()
        raise
    return bound


def _unavailable(listener: RegistryListener, error: OSError) -> StartupError:
    return StartupError(
        f"the schema registry cannot listen on {listener.url}: {error.strerror or error}. "
        "Free the port, or choose another with listeners."
    )


def _tls_context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = _VERIFY[tls.client_authentication]
    assert tls.keystore is not None, "the settings are checked"
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.keystore, password=tls.key_password or "")
    except OSError as error:
        raise StartupError(
            f"ssl.keystore.location: {tls.keystore} is not a PEM file with a private key, for which "
            f"ssl.key.password is right, and its certificates: {error}"
        ) from error
    if tls.truststore is not None:
        try:
            context.load_verify_locations(tls.truststore)
        except OSError as error:
            raise StartupError(
                f"ssl.truststore.location: {tls.truststore} is not a PEM file with certificates: {error}"
            ) from error
    return context
