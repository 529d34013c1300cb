"""One node, composed of all its components. No other module imports all of them.

Everything that depends on the environment is injected (files, clock, randomness, network, the running event loop), so
that the same node runs as a process, in a test, and in simulated time.

Order of the start: lock the directories, replay the metadata (the newest snapshot, then the log after it), bind the
ports, including those of the schema registry (before the steps that may take long), open the partitions' logs, register
with the controller, serve, start the schema registry. The stop has the reverse order. It leaves clean directories if
the node was registered, even when the start fails later.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from random import Random
from typing import TypeAlias
from uuid import UUID

import structlog

from rookery.base.clock import Clock
from rookery.base.codes import ResourceType
from rookery.base.config import BrokerLayers
from rookery.base.errors import CorruptionError, StartupError, StorageError
from rookery.base.files import DirectoryLock, Files
from rookery.base.loop_thread import new_event_loop
from rookery.base.slices import Slices
from rookery.broker.context import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.fetch_sessions import FetchSessions
from rookery.broker.inspections import Inspections
from rookery.broker.schema_checks import SchemaChecks
from rookery.controller.service import Controller
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.log_config import LogConfigs, broker_layers
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.records import BrokerEndpoint
from rookery.metadata.requests import Registration
from rookery.net.connection import Handler
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.network import Network
from rookery.node.background import Background
from rookery.node.coordinators import Coordinators, build_coordinators
from rookery.node.identity import Identity, establish_identity, lock_directories, release_directories
from rookery.node.listeners import affordable_connections, listener_settings
from rookery.node.lost_metadata import check_metadata_exists, metadata_damage_error
from rookery.node.maintenance import LogMaintenance
from rookery.node.metadata_snapshots import MetadataSnapshots, metadata_log_config
from rookery.node.schema_checks import SchemasOnDemand
from rookery.node.schema_registry import SchemaRegistry, check_registry
from rookery.node.settings import ListenerAddress, Settings
from rookery.quorum.driver import QuorumDriver
from rookery.replication.flusher import Flusher
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.storage.damage import DamagedLogError
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import NO_BROKER_EPOCH, LoadSummary, LogManager

logger = structlog.get_logger(__name__)

_PLAINTEXT = 0

# Wraps the dispatcher's handler: returns the handler that connections call.
Interceptor: TypeAlias = Callable[[Handler, Services], Handler]


class Node:
    """A broker and controller in one process. `start` serves; `stop` leaves the directories clean and unlocked."""

    def __init__(
        self,
        settings: Settings,
        *,
        files: Files,
        clock: Clock,
        random: Random,
        executor: Executor | None = None,
        network: Network | None = None,
        intercept: Interceptor | None = None,
        descriptor_limit: int | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        """Create a node; `start` opens it.

        `descriptor_limit` is how many files and sockets the process may have open, None if there is no limit.
        `new_loop` creates event loops for threads other than the node's.
        """
        self._settings = settings
        self._descriptor_limit = descriptor_limit
        self._new_loop = new_loop
        self._network = network
        self._files = files
        self._clock = clock
        self._random = random
        self._executor = executor
        self._intercept = intercept
        self._background = Background()
        self._slices = Slices()
        self._flusher = Flusher(executor)
        self._schemas = SchemasOnDemand(settings.layers.static, address=lambda: self.address)
        self._locks: list[DirectoryLock] = []
        self._listeners: list[tuple[ListenerAddress, Listener]] = []
        self._logs: LogManager | None = None
        self._quorum: QuorumDriver | None = None
        self._metadata = MetadataPublisher(self._slices)
        self._controller: Controller | None = None
        self._coordinators: Coordinators | None = None
        self._replicas: ReplicaManager | None = None
        self._registry: SchemaRegistry | None = None
        self._broker_epoch = NO_BROKER_EPOCH

    @property
    def address(self) -> str:
        """The advertised address of the first listener."""
        advertised = self._advertised(*self._listeners[0])
        host = f"[{advertised.host}]" if ":" in advertised.host else advertised.host
        return f"{host}:{advertised.port}"

    async def start(self) -> None:
        """Start the node; it serves when this returns. If the start fails, everything is released again.

        Raises StartupError with a text for the operator.
        """
        try:
            await self._start()
        except StorageError as error:
            await self._stop(clean=False)
            raise StartupError(f"{error}. Free space or repair the disk, then start again.") from error
        except DamagedLogError as error:
            await self._stop(clean=False)
            raise metadata_damage_error(error.damage, self._settings.metadata_directory) from error
        except CorruptionError as error:
            await self._stop(clean=False)
            raise StartupError(f"the metadata log cannot be read: {error}. Restore it from a copy.") from error
        except BaseException:
            # Not clean before the registration: the logs may not be loaded yet. If an earlier stop was unclean and this
            # one marked them as clean, the next start would open them without recovery, with their torn ends.
            await self._stop(clean=self._broker_epoch != NO_BROKER_EPOCH)
            raise

    async def stop(self, *, clean: bool = True) -> None:
        """Stop the node. `clean=False` leaves the files as a killed process does: the next start recovers them."""
        await self._stop(clean=clean)

    async def _start(self) -> None:
        settings = self._settings
        check_registry(settings)
        directories = list(dict.fromkeys([*settings.log_directories, settings.metadata_directory]))
        self._locks = lock_directories(self._files, directories)
        identity = establish_identity(
            self._files,
            directories,
            node_id=settings.node_id,
            cluster_id=settings.cluster_id,
            new_uuid=self._new_uuid,
        )
        check_metadata_exists(self._files, settings.log_directories, settings.metadata_directory)
        metadata = self._metadata
        controller, logs = self._open_metadata()
        services = self._build_services(identity, controller, logs)
        handle = Dispatcher(services).handle
        layers = self._layers(metadata.image)
        await self._bind_listeners(layers, handle if self._intercept is None else self._intercept(handle, services))
        if settings.has_registry:
            self._registry = SchemaRegistry(settings, self.address, new_loop=self._new_loop)
            self._registry.bind()
        summary = await self._load_logs(logs)
        services.replicas.start(metadata.image, metadata.removed_topics)
        replicas = self._replicas = services.replicas
        metadata.add(ImageListener("settings", self._configure))
        metadata.add(
            ImageListener("replicas", replicas.apply, prepare=replicas.prepare, finish=replicas.delete_removed_logs)
        )
        await self._register(controller, identity, is_clean=summary.is_clean)
        # After the registration, which begins new leader epochs if the last shutdown was not clean. The coordinators
        # load a partition again in each epoch, so that before it they would load all of them twice.
        assert self._coordinators is not None
        self._coordinators.start(metadata)
        for _, listener in self._listeners:
            await listener.start()
        self._schemas.start(metadata)
        maintenance = LogMaintenance(services, logs, executor=self._executor)
        self._background.start(*maintenance.jobs(), self._metadata_snapshots(logs).job())
        logger.info("serving", address=self.address, cluster_id=identity.cluster_id, partitions=len(services.replicas))
        if self._registry is not None:
            await self._registry.start()

    def _layers(self, image: ClusterImage) -> BrokerLayers:
        return broker_layers(image, self._settings.node_id, self._settings.layers.static)

    def _configure(self, image: ClusterImage, delta: Delta) -> None:
        """Pass changed settings to the components that do not read them on each use."""
        if not any(resource.type == ResourceType.BROKER for resource in delta.configs):
            return
        layers = self._layers(image)
        for address, listener in self._listeners:
            listener.configure(self._limits(address, layers))
        assert self._logs is not None
        _configure_logs(self._logs, layers)

    def _limits(self, address: ListenerAddress, layers: BrokerLayers) -> ListenerSettings:
        descriptors, count = self._descriptor_limit, len(self._settings.listeners)
        affordable = None if descriptors is None else affordable_connections(descriptors, count)
        return listener_settings(address.name, layers, connections_max=affordable)

    async def _bind_listeners(self, layers: BrokerLayers, handle: Handler) -> None:
        for address in self._settings.listeners:
            limits = self._limits(address, layers)
            listener = Listener(address.host, address.port, handle, settings=limits, network=self._network)
            self._listeners.append((address, listener))
            await listener.bind()

    def _open_metadata(self) -> tuple[Controller, LogManager]:
        settings = self._settings
        self._logs = LogManager(
            self._files,
            self._clock,
            settings.log_directories,
            new_uuid=self._new_uuid,
        )
        self._quorum = QuorumDriver.open(
            self._files,
            _find_directory(self._logs, settings.metadata_directory),
            node_id=settings.node_id,
            clock=self._clock,
            on_commit=self._metadata.commit,
            executor=self._executor,
            config=metadata_log_config(settings.layers),
        )
        loaded = self._quorum.take_loaded()
        if loaded is None:
            self._metadata.start(self._quorum.batches())
        else:
            end = loaded.position.offset
            self._metadata.start(self._quorum.batches(), snapshot=loaded.values, snapshot_end=end)
        self._controller = Controller(
            self._quorum,
            self._metadata,
            node_id=settings.node_id,
            static=settings.layers.static,
            random=self._random,
            slices=self._slices,
        )
        _configure_logs(self._logs, self._layers(self._metadata.image))
        return self._controller, self._logs

    def _metadata_snapshots(self, logs: LogManager) -> MetadataSnapshots:
        assert self._quorum is not None
        return MetadataSnapshots(
            self._quorum,
            self._metadata,
            files=self._files,
            clock=self._clock,
            config=self._settings.layers,
            directories=lambda: logs.directories,
            executor=self._executor,
        )

    async def _load_logs(self, logs: LogManager) -> LoadSummary:
        image = self._metadata.image
        configs = LogConfigs(self._layers(image))
        loading = asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: logs.load(lambda topic: configs.get(image.topic_config(topic)))
        )
        try:
            # Not asyncio.shield: since Python 3.14 it logs a failure after a cancellation, although `gather` below
            # retrieves it.
            await asyncio.wait((loading,))
            return loading.result()
        except asyncio.CancelledError:
            # The directories must stay locked while a thread still recovers logs in them: a second process could open
            # the same files.
            logs.cancel_load()
            await asyncio.gather(loading, return_exceptions=True)
            raise

    def _build_services(self, identity: Identity, controller: Controller, logs: LogManager) -> Services:
        settings = self._settings
        pending = Pending(asyncio.get_running_loop())
        replicas = ReplicaManager(
            logs,
            node_id=settings.node_id,
            static_config=settings.layers.static,
            pending=pending,
            flusher=self._flusher,
            executor=self._executor,
            slices=self._slices,
        )
        coordinators = self._coordinators = build_coordinators(
            settings.layers,
            node_id=settings.node_id,
            controller=controller,
            metadata=self._metadata,
            replicas=replicas,
            pending=pending,
            clock=self._clock,
            new_uuid=self._new_uuid,
            executor=self._executor,
        )
        slots = settings.layers.integer("max.incremental.fetch.session.cache.slots")
        return Services(
            node_id=settings.node_id,
            cluster_id=identity.cluster_id,
            clock=self._clock,
            metadata=self._metadata,
            controller=controller,
            replicas=replicas,
            pending=pending,
            fetch_sessions=FetchSessions(slots_max=slots, random_id=lambda: self._random.randrange(1, 1 << 31)),
            producer_ids=coordinators.producer_ids,
            groups=coordinators.groups,
            markers=coordinators.markers,
            transactions=coordinators.transactions,
            static_config=settings.layers.static,
            fetch_max_bytes=settings.layers.integer("fetch.max.bytes"),
            inspections=Inspections(SchemaChecks(self._schemas)),
        )

    async def _register(self, controller: Controller, identity: Identity, *, is_clean: bool) -> None:
        endpoints = (self._advertised(*pair) for pair in self._listeners)
        self._broker_epoch = await controller.register_broker(
            Registration(
                node_id=self._settings.node_id,
                incarnation_id=self._new_uuid(),
                endpoints=tuple(BrokerEndpoint(item.name, item.host, item.port, _PLAINTEXT) for item in endpoints),
                rack=self._settings.layers.text("broker.rack"),
                log_directories=tuple(identity.directory_ids[path] for path in self._settings.log_directories),
                clean=is_clean,
            )
        )

    def _advertised(self, address: ListenerAddress, listener: Listener) -> ListenerAddress:
        """Return the address of a listener in metadata responses.

        It is the configured one, else the bound address, with this host's name if the listener is bound to all
        interfaces.
        """
        advertised = self._settings.advertised.get(address.name)
        if advertised is not None:
            return advertised
        host = socket.gethostname() if address.listens_everywhere else address.host
        return ListenerAddress(address.name, host, listener.bound_port)

    async def _stop(self, *, clean: bool) -> None:
        if self._registry is not None:
            await self._registry.stop(clean=clean)
        await self._schemas.stop()
        for _, listener in self._listeners:
            await listener.close()
        if self._coordinators is not None:
            await self._coordinators.close()
        await self._background.stop()
        await self._flusher.wait()
        if self._controller is not None:
            await self._controller.close()
        if self._quorum is not None:
            self._close_quorum(self._quorum)
        if clean and self._replicas is not None:
            await self._replicas.checkpoint_high_watermarks()
        if self._logs is not None:
            loop = asyncio.get_running_loop()
            logs, epoch = self._logs, self._broker_epoch
            await loop.run_in_executor(self._executor, lambda: logs.close(clean=clean, broker_epoch=epoch))
        release_directories(self._locks)
        self._locks.clear()

    @staticmethod
    def _close_quorum(quorum: QuorumDriver) -> None:
        try:
            quorum.close()
        except (StorageError, CorruptionError) as error:
            # The next start recovers the metadata log. The other directories can still be closed cleanly.
            logger.error("the metadata log was not closed cleanly", error=str(error))

    def _new_uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)


def _configure_logs(logs: LogManager, layers: BrokerLayers) -> None:
    logs.configure(
        worker_threads=layers.integer("num.recovery.threads.per.data.dir"),
        producer_expiration_ms=layers.integer("producer.id.expiration.ms"),
    )


def _find_directory(logs: LogManager, path: Path) -> LogDirectory:
    return next((directory for directory in logs.directories if directory.path == path), None) or LogDirectory(path)
