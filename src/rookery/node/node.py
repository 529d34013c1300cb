"""One node, composed of all its components. Only this module and the modules of its roles import all of them.

Everything that depends on the environment is injected (`environment`), so that the same node runs as a process, in a
test, and in simulated time.

Order of the start: lock the directories, serve the other voters of the quorum (`controller_role`), replay the metadata
(the newest snapshot, then the log after it), then the broker (`broker_role`). The stop has the reverse order. It leaves
clean directories if the node was registered, even when the start fails later.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from random import Random

import structlog

from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError, StartupError, StorageError
from rookery.base.files import DirectoryLock, Files
from rookery.base.loop_thread import new_event_loop
from rookery.base.slices import Slices
from rookery.base.types import NO_BROKER_EPOCH
from rookery.metadata.publisher import MetadataPublisher
from rookery.net.network import Network
from rookery.node.access import NodeAccess, start_access
from rookery.node.audit import AuditLog
from rookery.node.background import Background
from rookery.node.broker_role import BrokerRole
from rookery.node.controller_role import ControllerRole
from rookery.node.directory_failures import DirectoryFailures
from rookery.node.environment import Environment, Interceptor
from rookery.node.identity import Identity, establish_identity, lock_directories, release_directories
from rookery.node.lost_metadata import check_metadata_exists, metadata_damage_error
from rookery.node.metadata_snapshots import MetadataSnapshots, metadata_log_config
from rookery.node.metrics.logins import LoginCounts
from rookery.node.metrics.service import MetricsService
from rookery.node.protection import Protection
from rookery.node.quotas import NodeQuotas
from rookery.node.schema_registry import check_registry
from rookery.node.settings import Settings
from rookery.quorum.driver import CONTROLLER_LISTENER, QuorumDriver
from rookery.quorum.voters import Endpoint
from rookery.storage.damage import DamagedLogError
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import LogManager

logger = structlog.get_logger(__name__)


class Node:
    """A broker, a controller or both. `start` serves; `stop` leaves the directories clean and unlocked."""

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
        boot_id: str | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        """Create a node; `start` opens it. `Environment` explains the arguments."""
        self._settings = settings
        self._environment = Environment(
            files=files,
            clock=clock,
            random=random,
            executor=executor,
            network=network,
            intercept=intercept,
            descriptor_limit=descriptor_limit,
            boot_id=boot_id,
            new_loop=new_loop,
        )
        self._background = Background()
        self._slices = Slices()
        self._locks: list[DirectoryLock] = []
        self._logs: LogManager | None = None
        self._quorum: QuorumDriver | None = None
        self._metadata = MetadataPublisher(self._slices)
        self._controller: ControllerRole | None = None
        self._broker: BrokerRole | None = None
        self._audit: AuditLog | None = None
        self._metrics: MetricsService | None = None
        self._failure: str | None = None
        self._has_failed = asyncio.Event()

    @property
    def address(self) -> str:
        """The advertised address of the first listener; of a controller alone, that of its first listener."""
        serving = self._broker or self._controller
        assert serving is not None, "the node was not started"
        return serving.address

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
            is_registered = self._broker is not None and self._broker.broker_epoch != NO_BROKER_EPOCH
            await self._stop(clean=is_registered)
            raise

    async def stop(self, *, clean: bool = True) -> None:
        """Stop the node. `clean=False` leaves the files as a killed process does: the next start recovers them.

        So does the stop of a member of a cluster that has left the quorum: it no longer knows the active controller, to
        which it could hand over.
        """
        has_left = self._quorum is not None and self._quorum.failure is not None and not self._settings.is_alone
        await self._stop(clean=clean and not has_left)

    async def failed(self) -> StorageError:
        """Return once this node cannot go on and should be stopped: other nodes take over."""
        await self._has_failed.wait()
        return StorageError(self._failure)

    def _fail(self, reason: str) -> None:
        # No other node could take over from one that is alone: its other directories are still served.
        if not self._settings.is_alone and self._failure is None:
            self._failure = reason
            logger.error("this node cannot go on", reason=reason)
            self._has_failed.set()

    async def _start(self) -> None:
        settings, environment = self._settings, self._environment
        check_registry(settings)
        audit = self._audit = AuditLog(settings.layers, environment)
        logins = LoginCounts(audit)
        protection = Protection(settings, environment, image=lambda: self._metadata.image, observer=logins)
        metrics = self._metrics = MetricsService(settings, environment, logins)
        await protection.open()
        identity = self._lock_and_identify()
        if settings.is_controller:
            # A broker without the role of a controller does not sync its copy of the metadata log: a power loss may
            # remove all of it, and the node copies it from the controllers again.
            check_metadata_exists(environment.files, settings.log_directories, settings.metadata_directory)
        logs = self._logs = self._new_logs()
        metadata_directory = _find_directory(logs, settings.metadata_directory)
        audit.identify(cluster_id=identity.cluster_id, node_id=settings.node_id)
        access = NodeAccess(start_access(self._metadata, settings.layers, audit), audit)
        quotas = NodeQuotas(settings, self._metadata, environment.clock)
        failures = self._watch_directories(logs, metadata_directory, identity)
        quorum = self._quorum = self._open_quorum(metadata_directory, identity, protection)
        controller = self._controller = ControllerRole(
            settings,
            identity,
            environment,
            quorum=quorum,
            metadata=self._metadata,
            slices=self._slices,
            quotas=quotas,
            protection=protection,
            access=access,
            requests=metrics.requests,
        )
        await controller.serve()
        await metrics.start(quorum, self._metadata, controller, self._slices)
        await self._start_quorum(quorum, controller)
        controller.register()
        self._background.start(
            self._metadata_snapshots(quorum, logs).job(), *protection.jobs(), audit.job(), metrics.job()
        )
        if settings.is_broker:
            self._broker = BrokerRole(
                settings,
                identity,
                environment,
                logs=logs,
                metadata=self._metadata,
                quorum=quorum,
                controller=controller,
                slices=self._slices,
                quotas=quotas,
                failures=failures,
                protection=protection,
                access=access,
            )
            metrics.add_broker(self._broker)
            await self._broker.start()

    def _lock_and_identify(self) -> Identity:
        settings, files = self._settings, self._environment.files
        directories = list(dict.fromkeys([*settings.log_directories, settings.metadata_directory]))
        self._locks = lock_directories(files, directories)
        return establish_identity(
            files,
            directories,
            node_id=settings.node_id,
            cluster_id=settings.cluster_id,
            new_uuid=self._environment.new_uuid,
            required=None if settings.is_sole_voter else settings.metadata_directory,
        )

    def _new_logs(self) -> LogManager:
        settings, environment = self._settings, self._environment
        logs = LogManager(
            environment.files,
            environment.clock,
            settings.log_directories,
            new_uuid=environment.new_uuid,
            boot_id=environment.boot_id,
        )
        for directory in logs.directories:
            directory.is_cordoned = directory.path in settings.cordoned_directories
        return logs

    def _watch_directories(
        self, logs: LogManager, metadata_directory: LogDirectory, identity: Identity
    ) -> DirectoryFailures:
        return DirectoryFailures(
            logs.directories,
            metadata_directory,
            ids=identity.directory_ids,
            timeout_s=self._settings.layers.integer("log.dir.failure.timeout.ms") / 1000,
            end=self._fail,
        )

    def _open_quorum(
        self, metadata_directory: LogDirectory, identity: Identity, protection: Protection
    ) -> QuorumDriver:
        settings, environment = self._settings, self._environment
        return QuorumDriver.open(
            environment.files,
            metadata_directory,
            node_id=settings.node_id,
            directory_id=identity.directory_ids[settings.metadata_directory],
            voters=settings.voters,
            cluster_id=identity.cluster_id,
            clock=environment.clock,
            settings=settings.quorum,
            jitter=environment.random.random,
            bootstrap=settings.bootstrap_controllers,
            listener_name=settings.controller_listener_name or CONTROLLER_LISTENER,
            endpoints=_controller_endpoints(settings),
            is_observer=not settings.is_controller,
            joins=settings.layers.boolean("controller.quorum.auto.join.enable"),
            executor=environment.executor,
            config=metadata_log_config(settings.layers),
            opener=protection.controllers,
            on_failure=lambda error: self._fail(f"it has left the quorum: {error}. Remove the cause, and start it"),
        )

    async def _start_quorum(self, quorum: QuorumDriver, controller: ControllerRole) -> None:
        """Start the quorum, wait until this node has what is committed, and replay it."""
        await quorum.start()
        if not self._settings.is_alone:
            logger.info("waiting for the quorum", voters=[voter.key.node_id for voter in quorum.voters])
        await quorum.caught_up()
        metadata, committed, loaded = self._metadata, quorum.high_watermark, quorum.take_loaded()
        if loaded is None:
            await metadata.start(quorum.batches(committed))
        else:
            await metadata.start(quorum.batches(committed), snapshot=loaded.values, snapshot_end=loaded.position.offset)
        quorum.follow(
            metadata.commit,
            lambda snapshot: metadata.replace(snapshot.values, snapshot.position.offset),
            from_offset=committed,
            on_lead=controller.lead,
            on_stop_leading=lambda _: controller.controller.deactivate(),
        )

    def _metadata_snapshots(self, quorum: QuorumDriver, logs: LogManager) -> MetadataSnapshots:
        return MetadataSnapshots(
            quorum,
            self._metadata,
            files=self._environment.files,
            clock=self._environment.clock,
            config=self._settings.layers,
            directories=lambda: logs.directories,
            executor=self._environment.executor,
        )

    async def _stop(self, *, clean: bool) -> None:
        if self._broker is not None:
            await self._broker.stop_serving(clean=clean)
        await self._background.stop()
        if self._metrics is not None:
            await self._metrics.stop()
        if self._quorum is not None and clean:
            await self._quorum.resign()
        if self._controller is not None:
            await self._controller.stop()
        if self._audit is not None:
            await self._audit.flush()
        if self._quorum is not None:
            await self._close_quorum(self._quorum)
        if self._broker is not None:
            await self._broker.close(clean=clean)
        elif self._logs is not None:
            self._logs.close(clean=False, broker_epoch=NO_BROKER_EPOCH)
        release_directories(self._locks)
        self._locks.clear()

    @staticmethod
    async def _close_quorum(quorum: QuorumDriver) -> None:
        try:
            await quorum.close()
        except (StorageError, CorruptionError) as error:
            # The next start recovers the metadata log. The other directories can still be closed cleanly.
            logger.error("the metadata log was not closed cleanly", error=str(error))


def _controller_endpoints(settings: Settings) -> dict[str, Endpoint]:
    """Return the addresses at which other nodes reach this controller, by the name of the listener."""
    addresses = [settings.advertised.get(each.name, each) for each in settings.controller_listeners]
    return {
        each.name: Endpoint(socket.gethostname() if each.listens_everywhere else each.host, each.port)
        for each in addresses
    }


def _find_directory(logs: LogManager, path: Path) -> LogDirectory:
    return next((directory for directory in logs.directories if directory.path == path), None) or LogDirectory(path)
