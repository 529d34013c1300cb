"""One node of the registry, composed of listeners, service and REST app. `rookery.node` and the CLI run it.

Order of the start: bind the ports, read the schemas and elect a leader, serve. The stop first completes the writes in
progress, then undoes these steps in reverse order.
"""

import socket

import structlog

from rookery.base.errors import StartupError
from rookery.registry.election import NodeIdentity
from rookery.registry.rest.app import create_app
from rookery.registry.server import RegistryServer
from rookery.registry.service import RegistryService
from rookery.registry.settings import RegistryListener, RegistrySettings

logger = structlog.get_logger(__name__)


class RegistryNode:
    """Call `await start()`, then use `url`; `await stop()` at the end. A start that fails stops the node itself."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._server = RegistryServer(settings.listeners, settings.tls)
        self._listeners: tuple[RegistryListener, ...] = ()
        self._service: RegistryService | None = None

    @property
    def service(self) -> RegistryService:
        assert self._service is not None, "start the node first"
        return self._service

    @property
    def urls(self) -> tuple[str, ...]:
        """The address of each listener for clients."""
        return tuple(self._advertised(listener).url for listener in self._listeners)

    @property
    def url(self) -> str:
        """The address of this node for the other nodes, and for clients."""
        scheme = self._settings.inter_instance_protocol
        return next(self._advertised(each).url for each in self._listeners if each.scheme == scheme)

    def bind(self) -> None:
        """Bind the ports before the start. Raises StartupError if one of them is not available."""
        self._listeners = self._server.bind()

    async def start(self) -> None:
        """Start; the node serves requests when this returns. Raises StartupError after all resources are released."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        if not self._listeners:
            self.bind()
        self._server.listen()
        self._service = RegistryService(self._settings, self._identity())
        try:
            app = create_app(self._service, self._settings)
        except OSError as error:
            raise StartupError(f"authentication.credentials.file cannot be read: {error}") from error
        await self._service.start()
        await self._server.serve(app)
        logger.info("schema registry serving", url=self.url, leader=self._service.leader_url)

    async def stop(self, *, clean: bool = True) -> None:
        """Stop. With `clean=False` the node does not leave the group, as if the process had been killed."""
        service, self._service = self._service, None
        if service is not None:
            await service.drain()
        await self._server.stop()
        if service is not None:
            await service.stop(leave=clean)

    def _identity(self) -> NodeIdentity:
        scheme = self._settings.inter_instance_protocol
        listener = next(self._advertised(each) for each in self._listeners if each.scheme == scheme)
        return NodeIdentity(
            host=listener.host, port=listener.port, scheme=scheme, master_eligibility=self._settings.leader_eligibility
        )

    def _advertised(self, listener: RegistryListener) -> RegistryListener:
        host = self._settings.host_name or (socket.gethostname() if listener.listens_everywhere else listener.host)
        return listener._replace(host=host)
