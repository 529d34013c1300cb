"""One node of the registry, built from its parts: listeners, service, REST app. `rookery.node` and the CLI run it.

Order of the start: take the ports, read the schemas and agree on a leader, serve. The stop goes back the same way, but
first answers what is being written.
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
    """`await start()`, then `url`; `await stop()`. A start that fails stops by itself."""

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
        """Where clients reach each listener."""
        return tuple(self._advertised(listener).url for listener in self._listeners)

    @property
    def url(self) -> str:
        """Where the other nodes reach this one, and clients too."""
        scheme = self._settings.inter_instance_protocol
        return next(self._advertised(each).url for each in self._listeners if each.scheme == scheme)

    def bind(self) -> None:
        """Take the ports, ahead of the start. StartupError if one of them cannot be had."""
        self._listeners = self._server.bind()

    async def start(self) -> None:
        """Serve when this returns; StartupError, with everything let go again, if that cannot be."""
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
        """`clean=False` does not tell the other nodes, as if the process had been killed."""
        service, self._service = self._service, None
        if service is not None:
            await service.drain()
        await self._server.stop()
        if service is not None:
            await service.stop(leave=clean)

    def _identity(self) -> NodeIdentity:
        scheme = self._settings.inter_instance_protocol
        told = next(self._advertised(each) for each in self._listeners if each.scheme == scheme)
        return NodeIdentity(
            host=told.host, port=told.port, scheme=scheme, master_eligibility=self._settings.leader_eligibility
        )

    def _advertised(self, listener: RegistryListener) -> RegistryListener:
        host = self._settings.host_name or (socket.gethostname() if listener.listens_everywhere else listener.host)
        return listener._replace(host=host)
