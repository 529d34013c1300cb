"""Registers a broker with the active controller and keeps its lease: the shell of `broker.lifecycle`.

The heartbeats have their own task and should have their own controller link: behind a slow request on the same channel,
or behind the publication of a large change of the metadata, they would be late, and the controller would fence a broker
that is well.

A heartbeat is sent immediately, not at the interval, when it has news: this broker has reached the metadata of its own
registration, a log directory has failed, or another broker shuts down, which the controller allows when all others
have reported that they know its successors.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

import structlog

from rookery.base.errors import ApiError, ErrorCode, RookeryError, StartupError
from rookery.base.types import NodeId
from rookery.broker.lifecycle import Action, BrokerState, Lifecycle, Register, Reply, SendHeartbeat, rejection_reason
from rookery.metadata.controller_link import ControllerLink
from rookery.metadata.image import BrokerImage, ClusterImage, Delta
from rookery.metadata.publisher import ImageListener, MetadataPublisher
from rookery.metadata.requests import Registration
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
)

logger = structlog.get_logger(__name__)

# After this long without a response, a request is sent again, perhaps to another controller: a part of the lease, so
# that a response that was lost does not cost it.
_REQUESTS_PER_SESSION: Final = 4
# A stop goes on without the controller after almost one request without a response.
_SILENCE: Final = 0.9
# Or after this time without a leader of the quorum. An election takes less while a majority runs.
_LEADERLESS_S: Final = 1.0
_POLL_S: Final = 0.1
_STARTS: Final = (BrokerState.STARTING, BrokerState.RECOVERY)


class BrokerLifecycle:
    """`register`, then `serve`; `shut_down` and `close` at the end. All of them are called once, in this order."""

    def __init__(
        self,
        link: ControllerLink,
        metadata: MetadataPublisher,
        registration: Registration,
        *,
        interval_s: float,
        session_timeout_s: float,
        registration_timeout_s: float,
        offline_directories: Callable[[], Collection[UUID]] = tuple,
        cordoned_directories: Callable[[], Collection[UUID]] = tuple,
        leaderless_s: Callable[[], float] = lambda: 0.0,
        quorum_failure: Callable[[], RookeryError | None] = lambda: None,
    ) -> None:
        """`offline_directories` returns the ids of the log directories that have failed, `cordoned_directories` the ids
        of those that should get no new partitions, `leaderless_s` for how long this node has had no leader of the
        quorum, `quorum_failure` why this node has left the quorum, None if it has not.
        """
        self._link = link
        self._metadata = metadata
        self._registration = registration
        self._request_timeout_s = session_timeout_s / _REQUESTS_PER_SESSION
        self._offline_directories = offline_directories
        self._cordoned_directories = cordoned_directories
        self._leaderless_s = leaderless_s
        self._quorum_failure = quorum_failure
        self._core = Lifecycle(
            previous_broker_epoch=registration.previous_broker_epoch,
            interval_s=interval_s,
            registration_timeout_s=registration_timeout_s,
        )
        self._reported: set[UUID] = set()
        # When a controller responded last.
        self._heard_s = 0.0
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        metadata.add(ImageListener("lifecycle", self._apply))

    @property
    def state(self) -> BrokerState:
        return self._core.state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the newest registration; it can change while the broker runs."""
        return self._core.broker_epoch

    @property
    def reported_directories(self) -> Collection[UUID]:
        """The ids of the failed log directories of which the controller knows."""
        return self._reported

    @property
    def is_fenced(self) -> bool:
        """Whether the controller has fenced this broker, according to its last response."""
        return self._core.is_fenced

    async def register(self) -> int:
        """Register, and keep sending heartbeats from now on. Returns the broker's epoch.

        Raises StartupError with a text for the operator if that is not possible. If this node has left the quorum, it
        finds no active controller any more: raises the failure.
        """
        self._core.start(self._now_s())
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self._until(lambda: self._core.is_registered)
        return self.broker_epoch

    async def catch_up(self) -> None:
        """Wait until this node has the metadata up to its registration."""
        await self._until(lambda: self._core.state is not BrokerState.STARTING)

    async def serve(self) -> None:
        """Request to be unfenced, and wait for it: clients may connect when this returns."""
        self._core.ready(self._now_s())
        self._wake.set()
        await self._until(lambda: self._core.state not in _STARTS)

    async def shut_down(self, *, timeout_s: float) -> bool:
        """Request to stop, and wait until the controller has moved the leaderships of this broker.

        Returns False if it did not within `timeout_s`, or if no controller responds: one that cannot be reached moves
        nothing. If the quorum has had no leader for a second, its majority has probably stopped as well. A broker does
        not wait if there is no other one that could take over, because it is alone or because the whole cluster stops.
        """
        if self._task is None or not self._others(lambda broker: not broker.fenced):
            return True
        began_s = self._now_s()
        self._core.shut_down(began_s)
        self._wake.set()

        def is_over() -> bool:
            silence_s = self._now_s() - max(began_s, self._heard_s)
            is_silent = silence_s > _SILENCE * self._request_timeout_s or self._leaderless_s() > _LEADERLESS_S
            is_useless = self._heard_s > began_s and not self._others(lambda broker: broker.is_active)
            return self._core.state is BrokerState.SHUTTING_DOWN or is_silent or is_useless

        try:
            async with asyncio.timeout(timeout_s):
                await self._until(is_over, poll_s=_POLL_S)
        except TimeoutError:
            pass
        is_allowed = self._core.state is BrokerState.SHUTTING_DOWN
        if not is_allowed:
            logger.warning("stopping without the controller's permission", waited_s=round(self._now_s() - began_s, 3))
        return is_allowed

    def report(self) -> None:
        """Send a heartbeat now, because a log directory has failed."""
        self._core.hurry(self._now_s())
        self._wake.set()

    async def close(self) -> None:
        """Stop the heartbeats."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _until(self, is_reached: Callable[[], bool], *, poll_s: float | None = None) -> None:
        assert self._task is not None, "not registered"
        while not is_reached():
            if self._core.state in _STARTS and (failure := self._quorum_failure()) is not None:
                # Without this, the start would go on until it times out, and report that there is no controller.
                raise failure
            if self._core.failure is not None:
                raise StartupError(self._core.failure)
            if self._task.done():
                self._task.result()
                raise asyncio.CancelledError
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((changed, self._task), timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()

    async def _run(self) -> None:
        while self._core.failure is None:
            await self._wait_until_due()
            await self._perform(self._core.begin())
            self._changed.set()

    async def _wait_until_due(self) -> None:
        while (left_s := self._core.due_s - self._now_s()) > 0:
            self._wake.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _perform(self, action: Action) -> None:
        before, was_fenced = self._core.state, self._core.is_fenced
        try:
            if isinstance(action, Register):
                await self._register(action)
            else:
                await self._send_heartbeat(action)
            self._heard_s = self._now_s()
        except ApiError as error:
            self._core.failed(str(error), self._now_s())
            logger.warning("no response of the controller", error=str(error))
        except Exception as error:
            # Without this, one unexpected error would end the heartbeats of a broker that serves.
            self._core.failed(repr(error), self._now_s())
            logger.exception("a heartbeat failed", error=str(error))
        if self._core.state is not before:
            logger.info("broker state", state=self._core.state.name, broker_epoch=self.broker_epoch)
        elif self._core.is_fenced and not was_fenced:
            logger.warning("this broker is fenced", broker_epoch=self.broker_epoch)

    async def _register(self, action: Register) -> None:
        registration = self._registration
        request = _registration_request(registration, action.previous_broker_epoch)
        response = await self._link.send(ApiKey.BROKER_REGISTRATION, request, timeout_s=self._request_timeout_s)
        code = ErrorCode(response.error_code)
        self._core.registered(code, response.broker_epoch, self._now_s())
        if code is not ErrorCode.NONE:
            logger.warning(
                "registration rejected", node_id=registration.node_id, error=code.name, reason=rejection_reason(code)
            )

    async def _send_heartbeat(self, action: SendHeartbeat) -> None:
        offline = list(self._offline_directories())
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.node_id,
            broker_epoch=action.broker_epoch,
            current_metadata_offset=self._metadata.image.offset,
            want_fence=action.wants_fence,
            want_shut_down=action.wants_shut_down,
            offline_log_dirs=offline,
            cordoned_log_dirs=list(self._cordoned_directories()),
        )
        response = await self._link.send(ApiKey.BROKER_HEARTBEAT, request, timeout_s=self._request_timeout_s)
        reply = Reply(
            ErrorCode(response.error_code),
            is_caught_up=response.is_caught_up,
            is_fenced=response.is_fenced,
            should_shut_down=response.should_shut_down,
        )
        self._core.heard(reply, self._now_s())
        if reply.code is ErrorCode.NONE:
            self._reported.update(offline)
        else:
            logger.warning("heartbeat rejected", broker_epoch=action.broker_epoch, error=reply.code.name)

    def _apply(self, image: ClusterImage, delta: Delta) -> None:
        has_own_registration = self._core.state is BrokerState.STARTING and image.offset >= self._core.broker_epoch
        if (self._core.is_registered and has_own_registration) or self._sees_shutdown(image, delta.brokers):
            self.report()
            self._changed.set()

    def _sees_shutdown(self, image: ClusterImage, changed: Collection[NodeId]) -> bool:
        own = self._registration.node_id
        stopping = (image.brokers.get(node_id) for node_id in changed if node_id != own)
        return any(broker is not None and broker.in_controlled_shutdown for broker in stopping)

    def _others(self, is_meant: Callable[[BrokerImage], bool]) -> bool:
        """Return whether another broker is registered that `is_meant`."""
        own, brokers = self._registration.node_id, self._metadata.image.brokers
        return any(node_id != own and is_meant(broker) for node_id, broker in brokers.items())

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _registration_request(registration: Registration, previous_broker_epoch: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=registration.node_id,
        cluster_id=registration.cluster_id,
        incarnation_id=registration.incarnation_id,
        listeners=[
            BrokerRegistrationRequestListener(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in registration.endpoints
        ],
        features=[
            BrokerRegistrationRequestFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in registration.features
        ],
        rack=registration.rack,
        is_migrating_zk_broker=False,
        log_dirs=list(registration.log_directories),
        previous_broker_epoch=previous_broker_epoch,
    )
