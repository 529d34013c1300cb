"""The parts of a node that serve clients: partitions' logs, replicas, coordinators, listeners, the schema registry.

Order of the start: bind the ports, including those of the schema registry (before the steps that may take long), open
the partitions' logs, register with the controller, copy from the leaders, serve once the controller has unfenced this
broker, start the schema registry. The stop has the reverse order: first the controller moves the leaderships.
"""

import asyncio
from collections.abc import Iterable

import structlog

from rookery.base.codes import ResourceType
from rookery.base.config import BrokerLayers
from rookery.base.slices import Slices
from rookery.base.types import NO_BROKER_EPOCH
from rookery.broker.context import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.fetch_sessions import FetchSessions
from rookery.broker.inspections import Inspections
from rookery.broker.lifecycle_task import BrokerLifecycle
from rookery.broker.request_metering import metered
from rookery.broker.schema_checks import SchemaChecks
from rookery.metadata.features import NODE_FEATURES
from rookery.metadata.image import ClusterImage, Delta
from rookery.metadata.log_config import LogConfigs, broker_layers
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.requests import Registration
from rookery.net.connection import Handler
from rookery.net.listener import Listener
from rookery.node.access import NodeAccess
from rookery.node.background import Background
from rookery.node.connections import Connections
from rookery.node.controller_role import ControllerRole
from rookery.node.coordinators import Coordinators, build_coordinators
from rookery.node.directory_failures import DirectoryFailures
from rookery.node.environment import Environment
from rookery.node.identity import Identity
from rookery.node.listeners import Listeners
from rookery.node.maintenance import LogMaintenance
from rookery.node.protection import Protection
from rookery.node.quotas import NodeQuotas
from rookery.node.schema_checks import SchemasOnDemand
from rookery.node.schema_registry import SchemaRegistry, store_protocol
from rookery.node.settings import Settings
from rookery.quorum.driver import QuorumDriver
from rookery.replication.flusher import Flusher
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.storage.manager import LoadSummary, LogManager

logger = structlog.get_logger(__name__)

# How long a stop waits for the controller to move this broker's leaderships.
_SHUT_DOWN_TIMEOUT_S = 30.0


class BrokerRole:
    """The broker of a node. `start` serves; `stop` leaves the logs clean if the broker was registered."""

    # Whether clients are served.
    is_serving = False

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        environment: Environment,
        *,
        logs: LogManager,
        metadata: MetadataPublisher,
        quorum: QuorumDriver,
        controller: ControllerRole,
        slices: Slices,
        quotas: NodeQuotas,
        failures: DirectoryFailures,
        protection: Protection,
        access: NodeAccess,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._environment = environment
        self._logs = logs
        self._metadata = metadata
        self._quorum = quorum
        self._controller = controller
        self._quotas = quotas
        self._failures = failures
        self._protection = protection
        self._connections = Connections(settings, metadata, quorum=quorum, controller=controller, protection=protection)
        self._access = access
        self._lifecycle: BrokerLifecycle | None = None
        self._background = Background()
        self._flusher = Flusher(environment.executor)
        self._listeners = Listeners(settings, settings.listeners, environment, quotas.connection_rates, protection)
        self._schemas = SchemasOnDemand(settings.layers.static, address=self._store_address)
        self._registry: SchemaRegistry | None = None
        self._has_replicas = False
        pending = Pending(asyncio.get_running_loop())
        self.replicas = ReplicaManager(
            logs,
            node_id=settings.node_id,
            static_config=settings.layers.static,
            pending=pending,
            flusher=self._flusher,
            executor=environment.executor,
            slices=slices,
            directory_ids=identity.directory_ids,
            throttles=quotas.replication,
        )
        self._coordinators = build_coordinators(
            settings.layers,
            node_id=settings.node_id,
            controller=self._connections.requests,
            metadata=metadata,
            replicas=self.replicas,
            pending=pending,
            clock=environment.clock,
            new_uuid=environment.new_uuid,
            executor=environment.executor,
            make_peers=self._connections.make_broker_peers,
        )
        self.services = self._build_services(self._coordinators, pending)

    @property
    def address(self) -> str:
        """The advertised address of the first listener."""
        return self._listeners.address

    def bound(self) -> Iterable[Listener]:
        return self._listeners.bound()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, `NO_BROKER_EPOCH` before it."""
        return NO_BROKER_EPOCH if self._lifecycle is None else self._lifecycle.broker_epoch

    async def start(self) -> None:
        metadata, services = self._metadata, self.services
        layers = self._layers(metadata.image)
        _configure_logs(self._logs, layers)
        handle: Handler = Dispatcher(services).handle
        if (intercept := self._environment.intercept) is not None:
            handle = intercept(handle, services)
        await self._listeners.bind(layers, metered(handle, services.requests, self._environment.clock))
        if self._settings.has_registry:
            self._registry = SchemaRegistry(self._settings, self._store_address(), new_loop=self._environment.new_loop)
            self._registry.bind()
        summary = await self._load_logs()
        replicas = self.replicas
        is_from_majority = len(self._quorum.voters) > 1
        await metadata.join(
            lambda image: replicas.start(image, metadata.removed_topics, is_from_majority=is_from_majority),
            ImageListener("settings", self._configure),
            ImageListener("replicas", replicas.apply, prepare=replicas.prepare, finish=replicas.finish),
        )
        self._has_replicas = True
        lifecycle = self._lifecycle = self._new_lifecycle(previous_broker_epoch=summary.broker_epoch)
        self._failures.report_with(lifecycle)
        await lifecycle.register()
        await asyncio.get_running_loop().run_in_executor(
            self._environment.executor, self._logs.keep_registration, self.broker_epoch
        )
        await lifecycle.catch_up()
        await replicas.begin_replication(
            new_peers=self._connections.new_broker_peers,
            controller=self._connections.link,
            broker_epoch=lambda: self.broker_epoch,
        )
        await lifecycle.serve()
        # After the registration, which begins new leader epochs if the last shutdown was not clean. The coordinators
        # load a partition again in each epoch, so that before it they would load all of them twice.
        self._coordinators.start(metadata)
        await self._listeners.start()
        self.is_serving = True
        self._access.audit.use_broker(services, self._connections.kept_broker_peers("audit"))
        self._schemas.start(metadata)
        self._background.start(*LogMaintenance(services, self._logs, executor=self._environment.executor).jobs())
        logger.info("serving", address=self.address, cluster_id=self._identity.cluster_id, partitions=len(replicas))
        if self._registry is not None:
            await self._registry.start()

    async def stop_serving(self, *, clean: bool) -> None:
        """Close the listeners and everything that changes logs."""
        self.is_serving = False
        if self._registry is not None:
            await self._registry.stop(clean=clean)
        if clean and self._lifecycle is not None and self._settings.layers.boolean("controlled.shutdown.enable"):
            # While clients and followers are still served: the other replicas catch up, and take over.
            await self._lifecycle.shut_down(timeout_s=_SHUT_DOWN_TIMEOUT_S)
        await self._schemas.stop()
        await self._listeners.close()
        # Before the replicas are closed, to which lines may still have to be written.
        await self._access.audit.flush()
        await self._coordinators.close()
        await self._background.stop()
        await self.replicas.close()
        if self._lifecycle is not None:
            await self._lifecycle.close()
        await self._connections.close()
        await self._flusher.wait()

    async def close(self, *, clean: bool) -> None:
        """Close the logs, after `stop_serving`."""
        if clean and self._has_replicas:
            await self.replicas.checkpoint_high_watermarks()
        await asyncio.get_running_loop().run_in_executor(
            self._environment.executor, lambda: self._logs.close(clean=clean, broker_epoch=self.broker_epoch)
        )

    def _store_address(self) -> str:
        """Return the address at which the schema registry and the checks of schemas reach this broker."""
        return self._listeners.address_with(store_protocol(self._settings)) or self.address

    def _layers(self, image: ClusterImage) -> BrokerLayers:
        return broker_layers(image, self._settings.node_id, self._settings.layers.static)

    def _configure(self, image: ClusterImage, delta: Delta) -> None:
        """Pass changed settings to the components that do not read them on each use."""
        if not any(resource.type == ResourceType.BROKER for resource in delta.configs):
            return
        layers = self._layers(image)
        self._listeners.configure(layers)
        self._protection.configure(layers)
        _configure_logs(self._logs, layers)

    async def _load_logs(self) -> LoadSummary:
        image, logs = self._metadata.image, self._logs
        configs = LogConfigs(self._layers(image))
        loading = asyncio.get_running_loop().run_in_executor(
            self._environment.executor, lambda: logs.load(lambda topic: configs.get(image.topic_config(topic)))
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

    def _build_services(self, coordinators: Coordinators, pending: Pending) -> Services:
        settings, environment = self._settings, self._environment
        slots = settings.layers.integer("max.incremental.fetch.session.cache.slots")
        return Services(
            node_id=settings.node_id,
            cluster_id=self._identity.cluster_id,
            clock=environment.clock,
            metadata=self._metadata,
            controller=self._controller.controller,
            broker_requests=self._connections.requests,
            quorum=self._quorum,
            forwarding=self._connections.forwarding,
            replicas=self.replicas,
            pending=pending,
            fetch_sessions=FetchSessions(slots_max=slots, random_id=lambda: environment.random.randrange(1, 1 << 31)),
            producer_ids=coordinators.producer_ids,
            groups=coordinators.groups,
            markers=coordinators.markers,
            transactions=coordinators.transactions,
            partition_transactions=coordinators.partition_transactions,
            static_config=settings.layers.static,
            fetch_max_bytes=settings.layers.integer("fetch.max.bytes"),
            inspections=Inspections(SchemaChecks(self._schemas)),
            throttling=self._quotas.throttling,
            access=self._access.access,
            changes=self._access.audit.changes,
            requests=self._controller.requests,
        )

    def _new_lifecycle(self, *, previous_broker_epoch: int) -> BrokerLifecycle:
        layers = self._settings.layers
        directory_ids = self._identity.directory_ids
        return BrokerLifecycle(
            self._connections.heartbeats,
            self._metadata,
            Registration(
                node_id=self._settings.node_id,
                cluster_id=self._identity.cluster_id,
                incarnation_id=self._environment.new_uuid(),
                endpoints=self._listeners.endpoints(),
                features=NODE_FEATURES,
                rack=layers.text("broker.rack"),
                log_directories=tuple(directory_ids[path] for path in self._settings.log_directories),
                previous_broker_epoch=previous_broker_epoch,
            ),
            interval_s=layers.integer("broker.heartbeat.interval.ms") / 1000,
            session_timeout_s=layers.integer("broker.session.timeout.ms") / 1000,
            registration_timeout_s=layers.integer("initial.broker.registration.timeout.ms") / 1000,
            offline_directories=lambda: self.replicas.offline_directories,
            cordoned_directories=lambda: self.replicas.cordoned_directories,
            leaderless_s=lambda: self._quorum.leaderless_s,
            quorum_failure=lambda: self._quorum.failure,
        )


def _configure_logs(logs: LogManager, layers: BrokerLayers) -> None:
    logs.configure(
        worker_threads=layers.integer("num.recovery.threads.per.data.dir"),
        producer_expiration_ms=layers.integer("producer.id.expiration.ms"),
    )
