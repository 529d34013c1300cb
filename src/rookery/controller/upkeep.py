"""What the active controller does without being asked: leases, probes, returning leaders, unclean elections, tokens.

All of it runs while this node is the active controller, as tasks that submit decisions like any request. A failure is
logged, and the task goes on.

A connection to a broker that breaks is a hint that its process ended. The controller then probes the broker, and fences
it after a second of failed probes, long before its lease ends. If no other broker can be reached either, the controller
itself may be cut off: it waits for the leases.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import structlog

from rookery.base.bounds import ITEMS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.errors import ApiError, NotControllerError
from rookery.base.slices import Slices
from rookery.base.types import NodeId, PartitionIndex, TopicId, TopicName
from rookery.controller.brokers import steps_to_fence
from rookery.controller.decision import ControllerResult, Steps
from rookery.controller.elections import TopicRules
from rookery.controller.leases import Leases
from rookery.controller.partitions import ELECTIONS_PER_PASS, can_return, decide_return_leaders, steps_to_elect_unclean
from rookery.controller.tokens import EXPIRED_PER_PASS, steps_to_remove_expired_tokens
from rookery.metadata.image import ClusterImage
from rookery.metadata.records import NoOpRecord

logger = structlog.get_logger(__name__)

ResultT = TypeVar("ResultT")
# Returns whether a broker can be reached.
Probe: TypeAlias = Callable[[NodeId], Awaitable[bool]]

# How long a broker whose connection broke is probed before it is fenced, how long one probe may take, and the pause
# between two.
PROBING_S: Final = 1.0
_PROBE_TIMEOUT_S: Final = 0.5
_PROBE_PAUSE_S: Final = 0.1


class Decisions(Protocol):
    """The part of the controller that the upkeep uses."""

    @property
    def image(self) -> ClusterImage: ...

    async def submit(
        self,
        decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]],
        *,
        appended: Callable[[ResultT], None] | None = None,
    ) -> ResultT: ...


class Upkeep:
    """The tasks of one active controller, from `start` to `stop`."""

    def __init__(
        self,
        decisions: Decisions,
        leases: Leases,
        *,
        clock: Clock,
        static: Mapping[str, str],
        slices: Slices,
        voter_count: Callable[[], int],
        probe: Probe | None,
    ) -> None:
        """`voter_count` returns the size of the quorum. Without a `probe`, broken connections are ignored."""
        self._decisions = decisions
        self._leases = leases
        self._clock = clock
        self._static = static
        self._layers = BrokerLayers(static=static)
        self._slices = slices
        self._voter_count = voter_count
        self._probe = probe
        self._tasks: set[asyncio.Task[None]] = set()
        # The brokers that are probed, or that all probes failed to reach, and when their connection broke.
        self._lost: dict[NodeId, float] = {}
        # The partitions whose preferred replica could lead at the last pass.
        self._returning: AbstractSet[tuple[TopicId, PartitionIndex]] = frozenset()
        self._scanned: ClusterImage | None = None
        self._last_offset = -1

    def start(self) -> None:
        layers = self._layers
        self._repeat("leases", self._leases.check_interval_s, self.fence_lost)
        if layers.boolean("auto.leader.rebalance.enable"):
            interval_s = layers.integer("leader.imbalance.check.interval.seconds")
            self._repeat("preferred leaders", interval_s, self.return_leaders)
        self._repeat(
            "unclean elections", layers.integer("unclean.leader.election.interval.ms") / 1000, self.elect_unclean
        )
        if layers.text("delegation.token.secret.key") is not None:
            check_s = layers.integer("delegation.token.expiry.check.interval.ms") / 1000
            self._repeat("expired tokens", check_s, self.remove_expired_tokens)
        idle_s = layers.integer("metadata.max.idle.interval.ms") / 1000
        if idle_s:
            self._repeat("no-op records", idle_s, self.show_progress)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._lost.clear()
        self._returning = frozenset()
        self._scanned = None

    async def stopped(self) -> None:
        """Return when the cancelled tasks have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def connection_lost(self, node_id: NodeId) -> None:
        """Begin to probe a broker whose connection broke."""
        broker = self._decisions.image.brokers.get(node_id)
        if node_id in self._lost and not self._is_silent(node_id):
            del self._lost[node_id]
        if self._probe is None or broker is None or broker.fenced or node_id in self._lost:
            return
        self._lost[node_id] = self._clock.monotonic()
        self._spawn(self._watch(node_id, broker.broker_epoch, self._probe))

    async def fence_lost(self) -> None:
        """Fence the brokers whose lease has expired, one decision after the other."""
        while (node_id := self._leases.find_lost(self._with_lease(), self._clock.monotonic())) is not None:
            epoch = self._decisions.image.brokers[node_id].broker_epoch
            logger.warning("a broker's lease has expired", broker=node_id)
            await self._fence(node_id, epoch, partial(self._has_expired, node_id))

    async def return_leaders(self) -> None:
        """Give partitions back to their preferred replicas, if these have been in the ISR since the last pass."""
        image = self._decisions.image
        if image is self._scanned and not self._returning:
            return
        found = {(topic_id, index): name async for topic_id, name, index in self._find_returning(image)}
        due = [(name, index) for (topic_id, index), name in found.items() if (topic_id, index) in self._returning]
        self._returning, self._scanned = found.keys(), image
        for start in range(0, len(due), ELECTIONS_PER_PASS):
            some = due[start : start + ELECTIONS_PER_PASS]
            decide = partial(decide_return_leaders, partitions=some, static=self._static)
            moved = await self._decisions.submit(decide)
            logger.info("returned leaders to preferred replicas", partitions=moved)

    async def elect_unclean(self) -> None:
        """Elect leaders of partitions that have none, where their topic accepts the loss of records."""
        elected = ELECTIONS_PER_PASS
        while elected == ELECTIONS_PER_PASS:
            elected = await self._decisions.submit(partial(steps_to_elect_unclean, static=self._static))

    async def remove_expired_tokens(self) -> None:
        """Remove the delegation tokens that have expired, one decision per thousand."""
        removed = EXPIRED_PER_PASS
        while removed == EXPIRED_PER_PASS:
            removed = await self._decisions.submit(
                lambda image: steps_to_remove_expired_tokens(image, self._clock.now_ms())
            )
            if removed:
                logger.info("removed expired delegation tokens", tokens=removed)

    async def show_progress(self) -> None:
        """Append a record that does nothing, if the log had no other since the last pass.

        In a quorum with other voters it keeps the high watermark and the lag of each node visible. A node that is alone
        writes nothing while it is idle.
        """
        offset = self._decisions.image.offset
        if self._voter_count() > 1 and offset == self._last_offset:
            await self._decisions.submit(lambda image: ControllerResult((NoOpRecord(),), None))
        self._last_offset = self._decisions.image.offset

    def _unfenced(self) -> Iterable[NodeId]:
        return [node_id for node_id, broker in self._decisions.image.brokers.items() if not broker.fenced]

    def _with_lease(self) -> Iterable[NodeId]:
        """Return the unfenced brokers, and those that have registered and not been unfenced yet."""
        brokers = self._decisions.image.brokers.items()
        return [node_id for node_id, broker in brokers if not broker.fenced or self._leases.has(node_id)]

    def _has_expired(self, node_id: NodeId) -> bool:
        return not self._leases.is_alive(node_id, self._clock.monotonic())

    async def _fence(self, node_id: NodeId, broker_epoch: int, is_due: Callable[[], bool]) -> None:
        """Fence a broker, unless it was heard of while the decision waited for its turn."""

        def decide(image: ClusterImage) -> ControllerResult[bool] | Steps[bool]:
            if not is_due():
                return ControllerResult((), False)
            return steps_to_fence(image, node_id, broker_epoch, static=self._static)

        def end_lease(is_fenced: bool) -> None:
            if is_fenced:
                self._leases.end(node_id)

        if await self._decisions.submit(decide, appended=end_lease):
            logger.warning("fenced a broker", broker=node_id, epoch=broker_epoch)

    async def _watch(self, node_id: NodeId, broker_epoch: int, probe: Probe) -> None:
        lost_at = self._lost[node_id]
        while self._clock.monotonic() - lost_at < PROBING_S:
            if not self._is_silent(node_id) or await _succeeds(probe, node_id):
                self._lost.pop(node_id, None)
                return
            await asyncio.sleep(_PROBE_PAUSE_S)
        if all(map(self._is_silent, self._unfenced())):
            # The controller itself may be cut off: the leases decide. The broker stays in `_lost` until it is heard of.
            logger.warning("no broker can be reached: waiting for their leases")
            return
        with suppress(NotControllerError):
            await self._fence(node_id, broker_epoch, lambda: self._is_silent(node_id))
        self._lost.pop(node_id, None)

    def _is_silent(self, node_id: NodeId) -> bool:
        """Return whether the broker was not heard of since its connection broke; False if it did not break."""
        return node_id in self._lost and not self._leases.heard_since(node_id, self._lost[node_id])

    async def _find_returning(self, image: ClusterImage) -> AsyncIterator[tuple[TopicId, TopicName, PartitionIndex]]:
        rules = TopicRules(image, self._static)
        seen = 0
        for topic in image.topics.values():
            topic_rules = rules.of(topic.name)
            for partition in topic.partitions.values():
                seen += 1
                if seen % ITEMS_PER_SLICE == 0:
                    await self._slices.pause()
                if can_return(partition, topic_rules):
                    yield topic.topic_id, topic.name, partition.index

    def _repeat(self, name: str, interval_s: float, run: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    await run()
                except NotControllerError:
                    return
                except Exception as error:
                    logger.exception("a task of the controller failed", task=name, error=str(error))

        self._spawn(repeat())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _succeeds(probe: Probe, node_id: NodeId) -> bool:
    try:
        # Not `wait_for`, which in Python 3.11 ignores a cancellation if the probe has just ended.
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            return await probe(node_id)
    except (ApiError, OSError, TimeoutError):
        return False
