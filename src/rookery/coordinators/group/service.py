"""The group coordinator's interface to the request handlers: one method per request, each of which returns a future.

The future's result is the response, or an ErrorCode if this node has no active shard for the group. It is already done
when the method returns, unless the response must wait for other members or for replicas.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from uuid import UUID

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.config_access import AUTHORIZER
from rookery.base.errors import ErrorCode
from rookery.base.slices import Slices
from rookery.base.types import NodeId, ProducerId, TopicName, TopicPartition, encode_uuid
from rookery.coordinators.group.classic.results import (
    DescribedGroup,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.consumer.describe import DescribedConsumerGroup
from rookery.coordinators.group.consumer.environment import ConsumerSettings, ErrorResponse
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest as ConsumerHeartbeatRequest
from rookery.coordinators.group.consumer.heartbeat import HeartbeatResponse as ConsumerHeartbeatResponse
from rookery.coordinators.group.offsets.commit import CommitRequest, CommittedPartition, FetchedOffsets, FetchRequest
from rookery.coordinators.group.offsets.transactional import TransactionalCommitRequest
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.group.shard import GroupShard, ListedGroup
from rookery.coordinators.result import CoordinatorResult
from rookery.coordinators.runtime import Coordinator, Replicas, ResponseFuture
from rookery.coordinators.topic_matches import TopicMatches
from rookery.metadata.image import ClusterImage, Delta, TopicImage
from rookery.metadata.internal_topics import OFFSETS_TOPIC
from rookery.records.batch import Codec
from rookery.replication.pending import Pending


class GroupCoordinator:
    """`runtime` is public for FindCoordinator, and for the writer of transaction markers."""

    def __init__(
        self,
        config: BrokerLayers,
        *,
        node_id: NodeId,
        replicas: Replicas,
        pending: Pending,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        executor: Executor | None = None,
    ) -> None:
        settings = GroupSettings.of(config)
        self.consumer_settings = ConsumerSettings.of(config)
        self._new_uuid = new_uuid
        self._topics: Mapping[TopicName, TopicImage] = {}
        # Topics of the image before, whose offsets are still to be deleted.
        self._deleted_topics: set[TopicName] = set()
        self._matches = TopicMatches(self._match_waiting)
        self._matching: asyncio.Task[None] | None = None
        self._slices = Slices()
        self.runtime: Coordinator[GroupShard] = Coordinator(
            OFFSETS_TOPIC,
            node_id=node_id,
            make_shard=lambda _: GroupShard(
                settings,
                new_id=lambda: str(new_uuid()),
                consumer_settings=self.consumer_settings,
                topics=lambda: self._topics,
                match=self._matches.find,
                is_restricted=bool(config.text(AUTHORIZER)),
            ),
            replicas=replicas,
            pending=pending,
            clock=clock,
            commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
            load_bytes=config.integer("offsets.load.buffer.size"),
            codec=Codec(config.integer("offsets.topic.compression.codec")),
            executor=executor,
        )

    def start(self, image: ClusterImage) -> None:
        """Load the partitions that this node leads; their replicas must exist."""
        self._topics = image.topics
        self.runtime.apply(image)

    def apply(self, image: ClusterImage, delta: Delta) -> None:
        self._topics = image.topics
        self.runtime.apply(image)
        self._deleted_topics |= {topic.name for topic in delta.deleted}

    async def finish(self) -> None:
        """Delete the offsets of the topics that the newest image no longer has."""
        if self._deleted_topics:
            deleted, self._deleted_topics = self._deleted_topics, set()
            await self.runtime.write_all(lambda shard: shard.steps_to_delete_topic_offsets(deleted))

    def partition_of(self, group_id: str) -> TopicPartition | None:
        """The partition that stores a group, which a transaction that commits its offsets must include.

        None while the topic does not exist.
        """
        if not self.runtime.partition_count:
            return None
        return TopicPartition(OFFSETS_TOPIC, self.runtime.partition_of(group_id))

    def guard(self, group_id: str, producer_id: ProducerId) -> object | ErrorCode:
        """Return a guard, to be taken before a transaction is verified and passed with its offsets.

        See `Coordinator.guard`.
        """
        return self.runtime.guard(group_id, producer_id)

    async def close(self) -> None:
        await self.runtime.close()
        if self._matching is not None:
            self._matching.cancel()
            await asyncio.gather(self._matching, return_exceptions=True)

    def _match_waiting(self) -> None:
        """Match patterns with many topics in the background; later heartbeats of their groups get the result."""
        if self._matching is None or self._matching.done():
            self._matching = asyncio.ensure_future(self._match_in_slices())

    async def _match_in_slices(self) -> None:
        await self._slices.pause()
        while self._matches.advance():
            await self._slices.pause()

    def join(self, request: JoinRequest) -> ResponseFuture[JoinResult]:
        token = self.runtime.new_token()
        return self.runtime.write(
            request.group_id, lambda shard, now_ms: shard.join(request, token, now_ms), token=token
        )

    def sync(self, request: SyncRequest) -> ResponseFuture[SyncResult]:
        token = self.runtime.new_token()
        return self.runtime.write(
            request.group_id, lambda shard, now_ms: shard.sync(request, token, now_ms), token=token
        )

    def heartbeat(self, request: HeartbeatRequest) -> ResponseFuture[ErrorCode]:
        return self.runtime.write(request.group_id, lambda shard, now_ms: shard.heartbeat(request, now_ms))

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> ResponseFuture[LeaveResult]:
        return self.runtime.write(group_id, lambda shard, now_ms: shard.leave(group_id, members, now_ms))

    def consumer_heartbeat(
        self, request: ConsumerHeartbeatRequest
    ) -> ResponseFuture[ConsumerHeartbeatResponse | ErrorResponse]:
        """Process a heartbeat. A member without an id, as in the first request of old clients, is assigned one."""
        named = request if request.member_id else replace(request, member_id=encode_uuid(self._new_uuid()))
        return self.runtime.write(request.group_id, lambda shard, now_ms: shard.consumer_heartbeat(named, now_ms))

    def describe_consumer(self, group_id: str) -> ResponseFuture[DescribedConsumerGroup]:
        return self.runtime.write(
            group_id, lambda shard, now_ms: CoordinatorResult(response=shard.describe_consumer(group_id, now_ms))
        )

    def commit(self, request: CommitRequest) -> ResponseFuture[tuple[CommittedPartition, ...]]:
        return self.runtime.write(request.group_id, lambda shard, now_ms: shard.commit(request, now_ms))

    def commit_transactional(
        self, request: TransactionalCommitRequest
    ) -> ResponseFuture[tuple[CommittedPartition, ...]]:
        return self.runtime.write(request.group_id, lambda shard, now_ms: shard.commit_transactional(request, now_ms))

    def fetch(self, request: FetchRequest) -> ResponseFuture[FetchedOffsets]:
        return self.runtime.read(request.group_id, lambda shard: shard.fetch(request))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> ResponseFuture[tuple[CommittedPartition, ...]]:
        return self.runtime.write(group_id, lambda shard, _: shard.delete_offsets(group_id, partitions))

    def delete(self, group_id: str) -> ResponseFuture[ErrorCode]:
        return self.runtime.write(group_id, lambda shard, _: shard.delete(group_id))

    def describe(self, group_id: str) -> ResponseFuture[DescribedGroup]:
        return self.runtime.read(group_id, lambda shard: shard.describe(group_id))

    def list(self) -> list[ListedGroup] | ErrorCode:
        shards = self.runtime.read_all()
        return shards if isinstance(shards, ErrorCode) else [group for shard in shards for group in shard.list()]
