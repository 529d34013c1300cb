"""The active controller: decides on the newest draft, appends the records, waits for their publication, returns.

A node with the controller role has one `Controller`. It is active between `activate` and `deactivate`, that is, while
the node leads the quorum; otherwise every request raises NotControllerError.

It makes one decision at a time, and appends its records as one batch; the next one begins then, on a draft of the image
that has these records (`draft`, decision 34). A response waits until the records of its decision are committed and this
node has published them, so that a change is effective before its response is sent. A decision without records waits for
those that it has seen. A decision that has begun is completed even if its caller is cancelled, because its records may
already be in the log. Heartbeats that change nothing do not wait, unless their broker's registration is in the draft.

Leases change when the records are appended, not when they are committed: the next decision depends on them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import UUID

import structlog

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE, METADATA_RECORDS_PER_SLICE
from rookery.base.clock import Clock
from rookery.base.codes import ElectionType
from rookery.base.config import BrokerLayers
from rookery.base.errors import ApiError, ErrorCode, NotControllerError, StorageError
from rookery.base.slices import Slices
from rookery.base.types import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName, encode_uuid
from rookery.controller.brokers import plan_heartbeat, steps_to_heartbeat, steps_to_unregister_broker
from rookery.controller.configs import steps_to_alter_configs, steps_to_incremental_alter_configs
from rookery.controller.decision import Context, ControllerResult, Steps
from rookery.controller.draft import Draft, Images
from rookery.controller.features import decide_bootstrap, decide_update_features
from rookery.controller.leases import Leases
from rookery.controller.partitions import (
    steps_to_alter_partitions,
    steps_to_assign_replicas,
    steps_to_elect_leaders,
)
from rookery.controller.producer_ids import decide_allocate_producer_ids
from rookery.controller.reassignments import list_reassignments, steps_to_alter_reassignments
from rookery.controller.registration import decide_register_controller, steps_to_register_broker
from rookery.controller.security import SecurityController
from rookery.controller.topics import steps_to_create_partitions, steps_to_create_topics, steps_to_delete_topics
from rookery.controller.upkeep import Probe, Upkeep
from rookery.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_LEVEL
from rookery.metadata.image import ClusterImage, ImageChanges
from rookery.metadata.records import MetadataRecord, decode_record, encode_record
from rookery.metadata.requests import (
    OK,
    AlteredPartitions,
    AlteredResource,
    AssignedReplica,
    AssignedReplicas,
    BrokerHeartbeat,
    ChangedTopic,
    ControllerRegistration,
    CreatedTopic,
    DeletedTopic,
    FeatureUpdate,
    HeartbeatReply,
    MorePartitions,
    NewTopic,
    OngoingReassignment,
    Outcome,
    PartitionAlteration,
    PartitionOutcome,
    ProducerIdBlock,
    Reassignment,
    Registered,
    Registration,
    ResourceChange,
)

logger = structlog.get_logger(__name__)

ResultT = TypeVar("ResultT")


class MetadataLog(Protocol):
    """The part of the quorum that the controller uses."""

    @property
    def next_offset(self) -> Offset: ...

    async def propose(self, values: Sequence[bytes], *, epoch: LeaderEpoch) -> "tuple[Offset, asyncio.Future[None]]":
        """Append as the leader of `epoch`; NotControllerError if this node does not lead it.

        Returns the offset of the last record, and a future that is done when the records are committed and published.
        """
        ...

    @property
    def kraft_version(self) -> int: ...

    async def upgrade_kraft_version(self, *, epoch: LeaderEpoch, validate_only: bool) -> None:
        """Put the voters into the log; ApiError with the reason if that is not possible."""
        ...


class Controller:
    """Implements `metadata.requests.ControllerRequests`."""

    def __init__(
        self,
        log: MetadataLog,
        images: Images,
        *,
        node_id: NodeId,
        cluster_id: str,
        static: Mapping[str, str],
        random: Random,
        clock: Clock,
        slices: Slices | None = None,
        bootstrap: Sequence[MetadataRecord] = (),
        voter_count: Callable[[], int] = lambda: 1,
        probe: Probe | None = None,
    ) -> None:
        """Create an inactive controller.

        `static` is the configuration from the node's start. `bootstrap` are the records that an empty log begins with.
        `voter_count` returns the size of the quorum; `probe` whether a broker can be reached.
        """
        self._log = log
        self._images = images
        self._draft = Draft(images)
        # Done when the newest records of the draft are published.
        self._last_append: asyncio.Future[None] | None = None
        self._slices = slices or Slices()
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._static = static
        self._random = random
        self._clock = clock
        self._bootstrap = bootstrap
        self._turn = asyncio.Lock()
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._epoch: LeaderEpoch | None = None
        self._activated_at = 0.0
        self._voter_count = voter_count
        self.security = SecurityController(self.submit, context=self._context, static=static, clock=clock)
        self._leases = Leases(BrokerLayers(static=static).integer("broker.session.timeout.ms") / 1000)
        self._upkeep = Upkeep(
            self,
            self._leases,
            clock=clock,
            static=static,
            slices=self._slices,
            voter_count=voter_count,
            probe=probe,
        )

    @property
    def is_active(self) -> bool:
        return self._epoch is not None

    @property
    def image(self) -> ClusterImage:
        return self._images.image

    def activate(self, epoch: LeaderEpoch) -> None:
        """Begin to decide, as the leader of the quorum in `epoch`. All committed records must have been published.

        The first decision appends what the log lacks to begin with; requests that arrive from now on wait for it.
        """
        if self.is_active:
            self.deactivate()
        self._epoch = epoch
        brokers, leaders = self.image.brokers, _leaders(self.image)
        self._activated_at = self._clock.monotonic()
        self._leases.start(
            [node_id for node_id, broker in brokers.items() if not broker.fenced or node_id in leaders],
            self._activated_at,
        )
        self._begin(lambda image: decide_bootstrap(image, self._bootstrap, self._static)).add_done_callback(_report)
        self._upkeep.start()
        logger.info("is the active controller", epoch=epoch)

    def deactivate(self) -> None:
        """Stop deciding, and drop the draft. Requests that wait raise NotControllerError."""
        if self.is_active:
            logger.info("is no longer the active controller", epoch=self._epoch)
        self._epoch = None
        self._draft.drop()
        self._upkeep.stop()

    def connection_lost(self, node_id: NodeId) -> None:
        """Take the loss of a broker's connection as a hint: probe it, and fence it soon if it cannot be reached."""
        if self.is_active:
            self._upkeep.connection_lost(node_id)

    def probe_brokers(self) -> None:
        """Probe all other brokers. One may have ended with the process of the last active controller.

        No connection of it breaks here: without this, a new controller would wait for the end of its lease.
        """
        for node_id in self.image.brokers:
            if node_id != self._node_id:
                self.connection_lost(node_id)

    async def submit(
        self,
        decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]],
        failed: Callable[[Outcome], ResultT] | None = None,
        appended: Callable[[ResultT], None] | None = None,
    ) -> ResultT:
        """Make a decision, append its records and return its results when they are published.

        `appended` is called with the results before the next decision begins. If the metadata log's disk fails, or has
        failed earlier, this returns `failed(outcome)`, or raises StorageError if `failed` is None. NotControllerError
        if this node is not the active controller, or no longer when the records would be committed.
        """
        task = self._begin(decide, appended)
        try:
            # Without the shield, a client that disconnects would cancel the decision between the append and the draft,
            # and the next decision would be based on an image without the records of the log.
            return await asyncio.shield(task)
        except StorageError as error:
            if failed is None:
                raise
            return failed(Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        except asyncio.CancelledError:
            task.add_done_callback(_report_abandoned)
            raise

    def _begin(
        self,
        decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]],
        appended: Callable[[ResultT], None] | None = None,
    ) -> asyncio.Task[ResultT]:
        self._check_active()
        assert self._epoch is not None
        task = asyncio.ensure_future(self._submit(decide, self._epoch, appended))
        self._unfinished.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.discard(task)
        if not task.cancelled():
            # Mark the exception as retrieved: the caller may be gone, and a change of leaders is no news then.
            task.exception()

    async def close(self) -> None:
        """Stop deciding, and wait until the decisions that have begun are completed."""
        if self.is_active:
            self.deactivate()
        await self._upkeep.stopped()
        if self._unfinished:
            await asyncio.wait(self._unfinished)

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        return await self.submit(
            lambda image: steps_to_create_topics(image, topics, self._context(), validate_only=validate_only),
            lambda outcome: [CreatedTopic(topic.name, outcome) for topic in topics],
        )

    async def delete_topics(self, topics: Sequence[tuple[TopicName | None, TopicId]]) -> list[DeletedTopic]:
        return await self.submit(
            lambda image: steps_to_delete_topics(image, topics, self._context()),
            lambda outcome: [DeletedTopic(name, topic_id, outcome) for name, topic_id in topics],
        )

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[ChangedTopic]:
        return await self.submit(
            lambda image: steps_to_create_partitions(image, topics, self._context(), validate_only=validate_only),
            lambda outcome: [ChangedTopic(topic.name, outcome) for topic in topics],
        )

    async def alter_configs(
        self, resources: Sequence[ResourceChange], *, validate_only: bool = False
    ) -> list[AlteredResource]:
        return await self.submit(
            lambda image: steps_to_alter_configs(image, resources, self._context(), validate_only=validate_only),
            lambda outcome: [AlteredResource(change.resource, outcome) for change in resources],
        )

    async def incremental_alter_configs(
        self, resources: Sequence[ResourceChange], *, validate_only: bool = False
    ) -> list[AlteredResource]:
        return await self.submit(
            lambda image: steps_to_incremental_alter_configs(
                image, resources, self._context(), validate_only=validate_only
            ),
            lambda outcome: [AlteredResource(change.resource, outcome) for change in resources],
        )

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> Outcome:
        def decide(image: ClusterImage, *, validate_only: bool = validate_only) -> ControllerResult[Outcome]:
            return decide_update_features(
                image, updates, kraft_version=self._log.kraft_version, validate_only=validate_only
            )

        if any(update.name == KRAFT_VERSION and update.level > self._log.kraft_version for update in updates):
            # First the level that a voter can still prevent: the records of the others are not refused any more.
            outcome = await self.submit(partial(decide, validate_only=True), lambda outcome: outcome)
            if outcome.code is ErrorCode.NONE:
                outcome = await self._upgrade_kraft_version(validate_only=validate_only)
            if outcome.code is not ErrorCode.NONE or validate_only:
                return outcome
        return await self.submit(decide, lambda outcome: outcome)

    async def _upgrade_kraft_version(self, *, validate_only: bool) -> Outcome:
        self._check_active()
        assert self._epoch is not None
        try:
            await self._log.upgrade_kraft_version(epoch=self._epoch, validate_only=validate_only)
        except NotControllerError:
            raise
        except ApiError as error:
            return Outcome(error.code, f"no feature was changed: {KRAFT_VERSION} cannot be raised: {error.message}")
        except StorageError as error:
            return Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return OK

    async def register_broker(self, registration: Registration) -> Registered:
        node_id = registration.node_id
        registered = await self.submit(
            lambda image: steps_to_register_broker(
                image,
                registration,
                cluster_id=self._cluster_id,
                static=self._static,
                next_offset=self._log.next_offset,
                is_alive=self._leases.is_alive(node_id, self._clock.monotonic()) and not self._is_own_start(node_id),
            ),
            appended=lambda registered: self._begin_lease(node_id, registered),
        )
        if registered.outcome.code is ErrorCode.NONE:
            logger.info("registered a broker", broker=node_id, epoch=registered.broker_epoch)
        else:
            logger.error("rejected the registration of a broker", broker=node_id, reason=registered.outcome.message)
        return registered

    def _begin_lease(self, node_id: NodeId, registered: Registered) -> None:
        if registered.outcome.code is ErrorCode.NONE:
            self._leases.end(node_id)
            self._leases.touch(node_id, self._clock.monotonic())

    def _is_own_start(self, node_id: NodeId) -> bool:
        """Return whether this is the first registration of the broker in this process, which is the only controller.

        Its log directories may have new ids. The process that was registered before is gone: this one has its place.
        """
        is_alone = node_id == self._node_id and self._voter_count() == 1
        return is_alone and not self._leases.heard_since(node_id, self._activated_at)

    async def register_controller(self, registration: ControllerRegistration) -> Outcome:
        return await self.submit(lambda image: decide_register_controller(image, registration), lambda outcome: outcome)

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        self._check_active()
        node_id, draft = heartbeat.node_id, self._draft.image
        broker = draft.brokers.get(node_id)
        if broker is not None and broker.broker_epoch == heartbeat.broker_epoch:
            # Before the decision waits for its turn: a slow controller must not fence brokers that it made wait.
            self._leases.touch(node_id, self._clock.monotonic())
            self._leases.note_applied(node_id, heartbeat.metadata_offset)
        plan = plan_heartbeat(draft, heartbeat, may_shut_down=self._may_shut_down(draft, node_id))
        if plan.reply.outcome.code is ErrorCode.STALE_BROKER_EPOCH:
            logger.warning(
                "rejected a heartbeat of an earlier process of a broker",
                broker=node_id,
                epoch=heartbeat.broker_epoch,
                reason=plan.reply.outcome.message,
            )
        if not plan.is_change and broker == self.image.brokers.get(node_id):
            return plan.reply
        return await self.submit(
            lambda image: steps_to_heartbeat(
                image, heartbeat, static=self._static, may_shut_down=self._may_shut_down(image, node_id)
            ),
            HeartbeatReply,
        )

    def _may_shut_down(self, image: ClusterImage, node_id: NodeId) -> bool:
        broker = image.brokers.get(node_id)
        if broker is None or not broker.in_controlled_shutdown:
            return False
        # The moves of its leaderships are in this image. Other brokers must have applied it, too.
        self._leases.begin_shutdown(node_id, image.offset)
        active = [other for other, each in image.brokers.items() if each.is_active]
        return self._leases.may_shut_down(node_id, active)

    async def unregister_broker(self, node_id: NodeId) -> Outcome:
        def end_lease(outcome: Outcome) -> None:
            if outcome.code is ErrorCode.NONE:
                self._leases.end(node_id)

        return await self.submit(
            lambda image: steps_to_unregister_broker(image, node_id, static=self._static),
            lambda outcome: outcome,
            end_lease,
        )

    async def alter_partitions(
        self, node_id: NodeId, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> AlteredPartitions:
        return await self.submit(
            lambda image: steps_to_alter_partitions(image, node_id, broker_epoch, alterations, static=self._static),
            AlteredPartitions,
        )

    async def assign_replicas(
        self, node_id: NodeId, broker_epoch: int, replicas: Sequence[AssignedReplica]
    ) -> AssignedReplicas:
        return await self.submit(
            lambda image: steps_to_assign_replicas(image, node_id, broker_epoch, replicas, static=self._static),
            AssignedReplicas,
        )

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[tuple[TopicName, PartitionIndex]] | None
    ) -> list[PartitionOutcome]:
        return await self.submit(
            lambda image: steps_to_elect_leaders(image, election, partitions, static=self._static),
            lambda outcome: [PartitionOutcome(topic, index, outcome) for topic, index in partitions or ()],
        )

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        return await self.submit(
            lambda image: steps_to_alter_reassignments(
                image, reassignments, allow_factor_change=allow_factor_change, static=self._static
            ),
            lambda outcome: [PartitionOutcome(each.topic, each.index, outcome) for each in reassignments],
        )

    async def list_reassignments(
        self, partitions: Sequence[tuple[TopicName, PartitionIndex]] | None
    ) -> list[OngoingReassignment]:
        self._check_active()
        return list_reassignments(self.image, partitions)

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock:
        return await self.submit(
            lambda image: decide_allocate_producer_ids(image, node_id, broker_epoch), ProducerIdBlock
        )

    def _check_active(self) -> None:
        if self._epoch is None:
            raise NotControllerError(f"node {self._node_id} is not the active controller")

    async def _submit(
        self,
        decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]],
        epoch: LeaderEpoch,
        appended: Callable[[ResultT], None] | None,
    ) -> ResultT:
        async with self._turn:
            self._check_epoch(epoch)
            decided = decide(self._draft.image)
            decision = decided if isinstance(decided, ControllerResult) else await self._run_steps(decided)
            if decision.records:
                published = await self._append(decision.records, epoch)
            else:
                # Without records, too: the results may depend on records that are not committed.
                self._check_epoch(epoch)
                published = self._settled()
            if appended is not None:
                appended(decision.results)
        await published
        return decision.results

    async def _append(self, records: Sequence[MetadataRecord], epoch: LeaderEpoch) -> Awaitable[None]:
        """Append the records of a decision, and continue with a draft that has them."""
        values, changes = await self._encode(records), ImageChanges(self._draft.image)
        async for some in self._slices.of(values, METADATA_RECORDS_PER_SLICE):
            for value in some:
                # What the log has: an older metadata version leaves fields of the record out.
                changes.apply(decode_record(value))
        # The draft changes only after the append. If the log refuses the records, it stays as it was.
        last_offset, published = await self._log.propose(values, epoch=epoch)
        draft = changes.build_image(last_offset)
        self._draft.advance(draft)
        self._last_append = published
        published.add_done_callback(lambda _: self._settle(draft, published))
        return published

    def _settle(self, draft: ClusterImage, published: "asyncio.Future[None]") -> None:
        # After an error, this node stops to lead and drops the draft, or the log has records that the image misses.
        if not published.cancelled() and published.exception() is None:
            self._draft.settle(draft)

    async def _settled(self) -> None:
        """Return when all records of the draft are published; raises the error if they could not be committed."""
        if self._last_append is not None and not self._draft.is_published:
            await asyncio.shield(self._last_append)

    def _check_epoch(self, epoch: LeaderEpoch) -> None:
        if self._epoch != epoch:
            raise NotControllerError(f"node {self._node_id} is no longer the active controller")

    async def _run_steps(self, steps: Steps[ResultT]) -> ControllerResult[ResultT]:
        # `_turn` is held: no other decision can change the draft during a pause.
        for step_count in count(1):
            try:
                next(steps)
            except StopIteration as end:
                decision: ControllerResult[ResultT] = end.value
                return decision
            if step_count % DESCRIPTIONS_PER_SLICE == 0:
                await self._slices.pause()
        raise AssertionError("count ends")

    async def _encode(self, records: Sequence[MetadataRecord]) -> list[bytes]:
        metadata_version = self._draft.image.features.get(METADATA_VERSION, METADATA_VERSION_LEVEL)
        encoded: list[bytes] = []
        async for some in self._slices.of(records, METADATA_RECORDS_PER_SLICE):
            encoded += (encode_record(record, metadata_version=metadata_version) for record in some)
        return encoded

    def _context(self) -> Context:
        return Context(
            node_id=self._node_id,
            static=self._static,
            new_id=self._new_id,
            placement_start=self._random.randrange(1 << 16),
        )

    def _new_id(self) -> UUID:
        """Return a random id whose text does not begin with "-": a command line would parse that as an option."""
        while True:
            candidate = UUID(bytes=self._random.randbytes(16), version=4)
            if not encode_uuid(candidate).startswith("-"):
                return candidate


def _leaders(image: ClusterImage) -> set[NodeId]:
    return {partition.leader for topic in image.topics.values() for partition in topic.partitions.values()}


def _report_abandoned(task: asyncio.Task[Any]) -> None:
    """Retrieve the failure of a decision whose caller was cancelled, and log it if it is not an ordinary one."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, NotControllerError | StorageError):
        logger.error("a decision failed", error=repr(error))


def _report(task: asyncio.Task[None]) -> None:
    """Log that the first decision of an active controller failed. Its caller is not there to see it."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, NotControllerError):
        logger.error("the controller could not begin its log", error=str(error))
