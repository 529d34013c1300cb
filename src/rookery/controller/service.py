"""The active controller: decides on the newest image, appends the records, waits for their publication, returns.

It makes one decision at a time: the next one is based on the image that results from the one before. A decision that
has begun is completed even if its caller is cancelled, because its records may already be in the log.
`MetadataLog.append` returns when the records are committed and this node has published them, so that a change is
effective before its response is sent.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import UUID

from rookery.base.bounds import DESCRIPTIONS_PER_SLICE, METADATA_RECORDS_PER_SLICE
from rookery.base.errors import ErrorCode, StorageError
from rookery.base.slices import Slices
from rookery.base.types import NodeId, Offset, TopicId, TopicName, encode_uuid
from rookery.controller.brokers import decide_register_broker
from rookery.controller.configs import steps_to_alter_configs, steps_to_incremental_alter_configs
from rookery.controller.decision import Context, ControllerResult, Steps
from rookery.controller.features import decide_update_features
from rookery.controller.producer_ids import decide_allocate_producer_ids
from rookery.controller.topics import steps_to_create_partitions, steps_to_create_topics, steps_to_delete_topics
from rookery.metadata.image import ClusterImage
from rookery.metadata.records import MetadataRecord, encode_record
from rookery.metadata.requests import (
    AlteredResource,
    ChangedTopic,
    CreatedTopic,
    DeletedTopic,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    Outcome,
    ProducerIdBlock,
    Registration,
    ResourceChange,
)

ResultT = TypeVar("ResultT")


class MetadataLog(Protocol):
    """The part of the quorum that the controller uses."""

    @property
    def next_offset(self) -> Offset: ...

    async def append(self, values: Sequence[bytes]) -> None: ...


class Images(Protocol):
    """The source of the newest image: `metadata.publisher`, which follows the same log."""

    @property
    def image(self) -> ClusterImage: ...


class Controller:
    """Implements `metadata.requests.ControllerRequests`. `static` is the configuration from the node's start."""

    def __init__(
        self,
        log: MetadataLog,
        images: Images,
        *,
        node_id: NodeId,
        static: Mapping[str, str],
        random: Random,
        slices: Slices | None = None,
    ) -> None:
        self._log = log
        self._images = images
        self._slices = slices or Slices()
        self._node_id = node_id
        self._static = static
        self._random = random
        self._turn = asyncio.Lock()
        self._unfinished: set[asyncio.Task[Any]] = set()

    async def submit(
        self,
        decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]],
        failed: Callable[[Outcome], ResultT] | None = None,
    ) -> ResultT:
        """Make a decision, append its records and return its results.

        If the metadata log's disk fails, or has failed earlier, this returns `failed(outcome)`, or raises StorageError
        if `failed` is None.
        """
        task = asyncio.ensure_future(self._submit(decide))
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        try:
            # Without the shield, a client that disconnects would cancel the append between its write and its
            # publication, and the next decision would be based on an image without the records of the log.
            return await asyncio.shield(task)
        except StorageError as error:
            if failed is None:
                raise
            return failed(Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    async def close(self) -> None:
        """Wait until all decisions that have begun are completed."""
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
        return await self.submit(
            lambda image: decide_update_features(image, updates, validate_only=validate_only), lambda outcome: outcome
        )

    async def register_broker(self, registration: Registration) -> int:
        """Return the broker's epoch."""
        return await self.submit(
            lambda image: decide_register_broker(image, registration, next_offset=self._log.next_offset)
        )

    async def allocate_producer_ids(self, node_id: NodeId, broker_epoch: int) -> ProducerIdBlock:
        return await self.submit(
            lambda image: decide_allocate_producer_ids(image, node_id, broker_epoch), ProducerIdBlock
        )

    async def _submit(self, decide: Callable[[ClusterImage], ControllerResult[ResultT] | Steps[ResultT]]) -> ResultT:
        async with self._turn:
            decided = decide(self._images.image)
            decision = decided if isinstance(decided, ControllerResult) else await self._run_steps(decided)
            if decision.records:
                await self._log.append(await self._encode(decision.records))
            return decision.results

    async def _run_steps(self, steps: Steps[ResultT]) -> ControllerResult[ResultT]:
        # `_turn` is held: no other decision can change the image during a pause.
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
        encoded: list[bytes] = []
        async for some in self._slices.of(records, METADATA_RECORDS_PER_SLICE):
            encoded += map(encode_record, some)
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
