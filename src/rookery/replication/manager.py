"""The partitions that this node hosts: created from the cluster image, looked up by the handlers.

`apply` is the image listener: partitions appear, and disappear, in one step. The work that takes long with many
partitions is done in slices before and after it. `prepare` creates the logs of new partitions, and sets leader, epoch
and in-sync replicas, also of existing partitions: these learn of their new leader some turns of the loop before the
image is published. `finish` starts and stops fetchers and deletes the logs of removed partitions. A topic that was
deleted and created again under the same name has another id; the old log is deleted before the new one is created, so
that no record passes from one to the other.

After a restart a partition's high watermark starts from its checkpoint (`high_watermarks`); a leader without followers
advances it to the end of its log immediately.

Replication runs from `begin_replication` on. A partition is copied in one leader epoch at a time: when the epoch
changes, its fetcher is stopped, then the end of the log is read, then a fetcher of the new leader starts.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from uuid import UUID

import structlog

from rookery.base.bounds import ITEMS_PER_SLICE, PARTITIONS_PER_SLICE
from rookery.base.codes import RecoveryState, ResourceType
from rookery.base.errors import CorruptionError, ErrorCode, StorageError
from rookery.base.slices import Slices
from rookery.base.types import (
    NO_TOPIC_ID,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
)
from rookery.metadata.controller_link import ControllerLink
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta, PartitionImage, TopicImage
from rookery.metadata.log_config import LogConfigs, broker_layers
from rookery.quotas.replication import ReplicationThrottle, ReplicationThrottles
from rookery.replication.directory_reports import ReportedReplica
from rookery.replication.fetcher import BrokerPeers, Follower
from rookery.replication.flusher import Flusher
from rookery.replication.high_watermarks import HighWatermarkCheckpoints
from rookery.replication.isr import IsrConditions
from rookery.replication.isr_changes import IsrCounts
from rookery.replication.partition import Partition
from rookery.replication.pending import Pending
from rookery.replication.replica import Fetched, Replica
from rookery.replication.replicator import Replicator
from rookery.replication.selectors import RACK_AWARE, ReadableReplica, select_in_rack
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import LogManager
from rookery.telemetry.traffic import TopicTraffic, Traffic

logger = structlog.get_logger(__name__)


class ReplicaManager:
    """All replicas of one node."""

    def __init__(
        self,
        logs: LogManager,
        *,
        node_id: NodeId,
        static_config: Mapping[str, str],
        pending: Pending,
        flusher: Flusher,
        executor: Executor | None = None,
        slices: Slices | None = None,
        directory_ids: Mapping[Path, UUID] | None = None,
        throttles: ReplicationThrottles | None = None,
    ) -> None:
        """`directory_ids` are the ids of the log directories, as they are registered with the controller."""
        self.throttles = throttles or ReplicationThrottles(ReplicationThrottle(), ReplicationThrottle())
        self._logs = logs
        self._directory_ids = directory_ids or {}
        self._slices = slices or Slices()
        self._files = logs.files
        self._node_id = node_id
        self._static_config = static_config
        self._pending = pending
        self._flusher = flusher
        self._executor = executor
        self._image = EMPTY_IMAGE
        self._configs = LogConfigs(broker_layers(EMPTY_IMAGE, node_id, static_config))
        self._replicas: dict[TopicPartition, Replica] = {}
        # An image that is about to be published: its new replicas, and the partitions that `apply` must look at.
        self._prepared_image = EMPTY_IMAGE
        self._prepared: dict[TopicPartition, Replica] = {}
        self._unprepared: list[tuple[TopicImage, PartitionIndex]] = []
        # Replicas of the newest image that are not copied from their leaders yet.
        self._unfollowed: list[Replica] = []
        # Partitions that the image no longer has, and whose logs are still to be deleted.
        self._removed: list[TopicPartition] = []
        # What clients do with the topics of this node.
        self.traffic = Traffic()
        # Whether brokers have changed since the high watermarks of all partitions were checked.
        self._has_new_brokers = False
        self._checkpoints = HighWatermarkCheckpoints(logs, is_hosted=self._is_hosted)
        layers = broker_layers(EMPTY_IMAGE, node_id, static_config)
        self._selects_by_rack = layers.text("replica.selector.class") in RACK_AWARE
        self._conditions = IsrConditions(lag_max_s=layers.integer("replica.lag.time.max.ms") / 1000)
        # None until the broker is registered.
        self._replicator: Replicator | None = None

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def directories(self) -> Sequence[LogDirectory]:
        return self._logs.directories

    @property
    def offline_directories(self) -> Sequence[UUID]:
        """The ids of the log directories that have failed, for the broker's heartbeats."""
        return self._ids_of(directory for directory in self._logs.directories if not directory.is_online)

    @property
    def cordoned_directories(self) -> Sequence[UUID]:
        """The ids of the log directories that should get no new partitions, for the broker's heartbeats."""
        return self._ids_of(directory for directory in self._logs.directories if directory.is_cordoned)

    def _ids_of(self, directories: Iterable[LogDirectory]) -> list[UUID]:
        return [self._directory_ids[each.path] for each in directories if each.path in self._directory_ids]

    def volume_bytes(self, directory: LogDirectory) -> tuple[int, int]:
        """Return the total and the free bytes of a log directory's volume."""
        return self._files.total_bytes(directory.path), self._files.free_bytes(directory.path)

    async def begin_replication(
        self,
        *,
        new_peers: Callable[[], BrokerPeers],
        controller: ControllerLink,
        broker_epoch: Callable[[], int],
    ) -> None:
        """Copy partitions from their leaders, and propose changes of in-sync replicas to the controller, from now on.

        Call it once, after the registration: `broker_epoch` returns the epoch of this process. `new_peers` creates
        connections to the brokers' listeners for requests between brokers.
        """
        self._replicator = Replicator(
            Follower(self._node_id, broker_epoch, self.find, self.throttles.follower),
            new_peers=new_peers,
            controller=controller,
            replicas=lambda: self,
            settings=broker_layers(self._image, self._node_id, self._static_config),
            clock=self._logs.clock,
            slices=self._slices,
        )
        self._unfollowed = list(self._replicas.values())
        await self._join_all()

    def traffic_of(self, partition: TopicPartition) -> TopicTraffic:
        """Return where to count a request that failed: clients may name topics that do not exist."""
        replica = self._replicas.get(partition)
        return self.traffic.others if replica is None else replica.traffic

    def copy_lag(self) -> int:
        """Return how many records the slowest replica is behind what it knows of its leader's high watermark."""
        lags = (replica.state.leader_lag for replica in self._replicas.values() if not replica.state.is_leader)
        return max(lags, default=0)

    @property
    def isr_counts(self) -> IsrCounts:
        """How often in-sync replicas have changed, on request of this node."""
        return IsrCounts() if self._replicator is None else self._replicator.changes.counts

    async def close(self) -> None:
        """Stop the replication. Partitions are no longer copied, and no change of in-sync replicas is proposed."""
        if self._replicator is not None:
            await self._replicator.close()
            self._replicator = None

    def find(self, partition: TopicPartition) -> Replica | ErrorCode:
        """Return the replica, or the error code if this node cannot serve it."""
        replica = self._replicas.get(partition)
        if replica is None:
            return self._missing_error(partition)
        if replica.log.log_directory.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return replica

    def find_reader(
        self, replica: Replica, rack: str, offset: Offset, current_leader_epoch: LeaderEpoch
    ) -> Fetched | None:
        """Return the answer that refers a consumer in `rack` to a follower; None if it should read from `replica`."""
        state, brokers = replica.state, self._image.brokers
        if not self._selects_by_rack or state.check_leader(current_leader_epoch) is not ErrorCode.NONE:
            return None
        leader = brokers.get(self._node_id)
        node = select_in_rack(
            rack,
            None if leader is None else leader.rack,
            (
                ReadableReplica(node, brokers[node].rack, follower.end_offset, follower.caught_up_s)
                for node, follower in state.replicas_with(offset)
                if self._conditions.is_alive(node)
            ),
        )
        return None if node is None else replica.refer_to(node)

    def exists(self, partition: TopicPartition) -> bool:
        """Return whether the cluster has this partition, on this node or another one."""
        topic = self._image.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.partitions

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        return self._image.topic_names.get(topic_id)

    def _missing_error(self, partition: TopicPartition) -> ErrorCode:
        """Return the error code for a partition without a replica on this node."""
        topic = self._image.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic is not None else None
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # This node should have the replica: its log is in a directory that failed, or is quarantined. The error is
        # retriable; UNKNOWN_TOPIC_OR_PARTITION would let clients conclude that the records are gone.
        return ErrorCode.KAFKA_STORAGE_ERROR if self._node_id in found.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def start(
        self,
        image: ClusterImage,
        removed_topics: Mapping[TopicId, TopicName],
        *,
        is_from_majority: bool = False,
    ) -> None:
        """Host the partitions of the image, with the logs that were found on disk.

        `removed_topics` are the topics that the metadata log has removed. Only their logs are set aside: a log whose
        topic the metadata does not contain at all may be the only remains of a topic whose metadata was lost. With
        `is_from_majority`, the image is the one that a majority of several controllers has, so that a topic that it
        does not contain was deleted, perhaps while this node was down.
        """
        await asyncio.get_running_loop().run_in_executor(self._executor, self._checkpoints.read)
        self._set_image(image)
        self._logs.resolve_missing(self._topic_id_here)
        strays: dict[TopicPartition, TopicId] = {}
        async for some_stored in self._slices.of(self._logs.stored().items(), ITEMS_PER_SLICE):
            strays.update(item for item in some_stored if self._is_stray(*item))
        for partition, topic_id in strays.items():
            if is_from_majority or self._is_obsolete(partition, topic_id, removed_topics):
                logger.warning("setting aside the log of a removed topic", partition=str(partition), id=str(topic_id))
                self._logs.set_aside(partition)
            else:
                logger.error(
                    "the topic of a log is not in the metadata: the log is not served, its files are kept",
                    partition=str(partition),
                    topic_id=str(topic_id),
                    to_do="restore the metadata log, or move the directory out of the log directory",
                )
                # If it stayed open, a topic with the same name would be served with the records of another topic.
                self._logs.quarantine(
                    partition, f"its directory belongs to topic id {topic_id}, which is not in the metadata"
                )
        if strays:
            # A later start would report those that were set aside as missing, if the metadata has them here again.
            await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.checkpoint)
        partitions = ((topic, index) for topic in image.topics.values() for index in topic.partitions)
        async for some in self._slices.of(partitions, ITEMS_PER_SLICE):
            for topic, index in some:
                self._host(topic, index, is_new=False)
        self._checkpoints.end_start()

    async def prepare(self, image: ClusterImage, delta: Delta) -> None:
        """Do for `image`, before it is published, what takes long. `apply` follows, with the same image."""
        self._conditions.brokers = image.brokers
        configs = LogConfigs(broker_layers(image, self._node_id, self._static_config))
        deleted = {topic.name for topic in delta.deleted}
        self._prepared_image, self._unprepared = image, []
        new: list[tuple[TopicImage, TopicPartition]] = []
        existing: list[tuple[Replica, PartitionImage]] = []
        async for some in self._slices.of(_touched(image, delta), ITEMS_PER_SLICE):
            for topic, index in some:
                partition = TopicPartition(topic.name, index)
                replica = self._replicas.get(partition)
                if self._node_id not in topic.partitions[index].replicas or topic.name in deleted:
                    # A topic that is deleted and created again in one change: the directory of its old log has the same
                    # name and is still in use. `apply` deletes it and creates the new one.
                    self._unprepared.append((topic, index))
                elif replica is None:
                    new.append((topic, partition))
                elif replica.state.topic_id == topic.topic_id:
                    existing.append((replica, topic.partitions[index]))
                else:
                    self._unprepared.append((topic, index))
        async for some_new in self._slices.of(new, PARTITIONS_PER_SLICE):
            for topic, partition in some_new:
                try:
                    replica = self._create(topic, partition, configs.get(image.topic_config(topic.name)), is_new=True)
                except (StorageError, CorruptionError):
                    # `apply` tries again, and logs the error if that fails too.
                    self._unprepared.append((topic, partition.partition))
                    continue
                self._set_leader(replica, topic.partitions[partition.partition])
                self._prepared[partition] = replica
        async for some_existing in self._slices.of(existing, ITEMS_PER_SLICE):
            for replica, partition_image in some_existing:
                self._update_state(replica, partition_image)
        # `apply` follows, in a turn of its own.
        await self._slices.pause()

    async def _join_all(self) -> None:
        while self._unfollowed:
            some, self._unfollowed = self._unfollowed[:ITEMS_PER_SLICE], self._unfollowed[ITEMS_PER_SLICE:]
            for replica in some:
                # It may have been removed since.
                if self._replicas.get(replica.state.topic_partition) is replica:
                    self._join_replication(replica)
            await self._slices.pause()

    async def finish(self) -> None:
        """Do what `apply` left: copy new partitions, delete the logs of removed ones, check high watermarks."""
        await self._join_all()
        removed, self._removed = self._removed, []
        async for some_removed in self._slices.of(removed, PARTITIONS_PER_SLICE):
            for partition in some_removed:
                self._delete(partition)
        if self._has_new_brokers:
            # Only live followers delay a high watermark.
            self._has_new_brokers = False
            async for some_replicas in self._slices.of(list(self._replicas.values()), ITEMS_PER_SLICE):
                for replica in some_replicas:
                    replica.check_high_watermark()

    def apply(self, image: ClusterImage, delta: Delta) -> None:
        """Update the hosted partitions to `image`. `delta` is the difference to the image before."""
        brokers_before = self._image.broker_config(self._node_id), self._image.broker_default_config()
        self._set_image(image)
        for topic in delta.deleted:
            self._remove(topic.name, topic.partitions)
        for topic in delta.created:
            self._delete_previous_logs(topic)
        # Without a check of each: ten thousand may become visible in this one step.
        self._replicas.update(self._prepared)
        self._unfollowed += self._prepared.values()
        for topic, index in self._unprepared if image is self._prepared_image else _touched(image, delta):
            self._host(topic, index)
        if brokers_before != (image.broker_config(self._node_id), image.broker_default_config()):
            self._configure(image.topics)
        else:
            self._configure(resource.name for resource in delta.configs if resource.type == ResourceType.TOPIC)
        self._prepared, self._unprepared, self._prepared_image = {}, [], EMPTY_IMAGE
        self._has_new_brokers |= bool(delta.brokers)
        if self._replicator is not None:
            self._replicator.fetchers.end_idle()

    def _set_image(self, image: ClusterImage) -> None:
        self._image = image
        self._conditions.brokers = image.brokers
        self._configs = LogConfigs(broker_layers(image, self._node_id, self._static_config))

    def _topic_id_here(self, partition: TopicPartition) -> TopicId | None:
        """Return the id of the partition's topic if this node should host the partition, else None."""
        topic = self._image.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic is not None else None
        if topic is None or found is None or self._node_id not in found.replicas:
            return None
        return topic.topic_id

    def _is_stray(self, partition: TopicPartition, topic_id: TopicId) -> bool:
        """Return whether the metadata does not have a partition on disk here with its topic id, if that is known."""
        expected = self._topic_id_here(partition)
        if topic_id == NO_TOPIC_ID and expected is not None:
            return self._is_doubtful(partition)
        return topic_id != expected

    def _is_doubtful(self, partition: TopicPartition) -> bool:
        """Return whether a log without a topic id may be of a deleted topic, and in-sync replicas have the right one.

        A power loss may take the file with the id and leave records, which were never synced. If the topic was deleted
        and created again meanwhile, consumers would get the records of its predecessor.
        """
        log = self._logs.get(partition)
        image = self._image.topics[partition.topic].partitions[partition.partition]
        return log is not None and log.end_offset > 0 and any(node != self._node_id for node in image.isr)

    def _is_obsolete(
        self, partition: TopicPartition, topic_id: TopicId, removed_topics: Mapping[TopicId, TopicName]
    ) -> bool:
        """Return whether the metadata shows that this node no longer needs a log on its disk."""
        if topic_id == NO_TOPIC_ID:
            # The file with the topic id was lost in a crash: only the name is left to identify the topic.
            is_here = self._topic_id_here(partition) is not None
            return partition.topic in removed_topics.values() or (is_here and self._is_doubtful(partition))
        topic = self._image.topic_by_id(topic_id)
        found = topic.partitions.get(partition.partition) if topic is not None else None
        return topic_id in removed_topics or (found is not None and self._node_id not in found.replicas)

    def _host(self, topic: TopicImage, index: PartitionIndex, *, is_new: bool = True) -> None:
        partition, state = TopicPartition(topic.name, index), topic.partitions[index]
        if self._node_id not in state.replicas:
            self._remove(topic.name, [index])
            return
        try:
            replica = self._replicas.get(partition)
            if replica is None:
                config = self._configs.get(self._image.topic_config(topic.name))
                replica = self._replicas[partition] = self._create(topic, partition, config, is_new=is_new)
        except StorageError as error:
            logger.error("partition is offline", partition=str(partition), error=str(error))
            return
        if replica.state.partition_epoch != state.partition_epoch:
            self._update_state(replica, state)

    def _create(self, topic: TopicImage, partition: TopicPartition, config: LogConfig, *, is_new: bool) -> Replica:
        is_found = self._logs.get(partition) is not None
        log = self._logs.create(partition, topic.topic_id, config, is_new=is_new)
        if not is_found:
            self._checkpoints.forget(partition)
        state = Partition(partition, topic.topic_id, node_id=self._node_id, conditions=self._conditions)
        high_watermark = self._checkpoints.found(partition)
        state.restore(high_watermark=high_watermark, start_offset=log.start_offset, end_offset=log.end_offset)
        lost = high_watermark - log.end_offset
        if lost > 0:
            # A power loss removes records that were never synced; damage after the recovery point has the same effect.
            logger.error(
                "the end of a log is missing: records that consumers could read are lost",
                partition=str(partition),
                offset=log.end_offset,
                records=lost,
            )
        return Replica(
            state,
            log,
            changed=self._changed,
            flush=self._flusher.request,
            propose=self._propose,
            traffic=self.traffic.of(topic.name),
        )

    def _update_state(self, replica: Replica, image: PartitionImage) -> None:
        state = replica.state
        is_new_epoch = image.leader_epoch > state.leader_epoch
        if is_new_epoch and self._replicator is not None:
            # First of all: a response of the former leader must not be appended once the state has the new epoch.
            self._replicator.fetchers.stop(state.topic_partition)
        proposal = state.proposal
        self._set_leader(replica, image)
        if is_new_epoch:
            self._follow(replica)
        self._report_directory(replica, image)
        if state.proposal is not None and state.proposal is not proposal:
            self._propose(replica)
        self._changed(replica)

    def _set_leader(self, replica: Replica, image: PartitionImage) -> None:
        state = replica.state
        is_new_epoch = image.leader_epoch > state.leader_epoch
        state.set_leader(
            image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            is_recovering=image.recovery_state == RecoveryState.RECOVERING,
            now_s=self._logs.clock.monotonic(),
        )
        if is_new_epoch and state.is_leader and len(state.replicas) > 1:
            self._begin_epoch(replica)

    @staticmethod
    def _begin_epoch(replica: Replica) -> None:
        """Enter a new leader's epoch at the end of its log, even if it never writes a record.

        Without the entry, a follower that asks where an older epoch ended would get an offset above records of that
        epoch that this leader does not have: the logs would differ below the high watermark (KIP-279).
        """
        try:
            replica.log.assign_epoch(replica.state.leader_epoch)
        except (StorageError, CorruptionError) as error:
            logger.error("partition is offline", partition=str(replica.state.topic_partition), error=str(error))

    def _report_directory(self, replica: Replica, image: PartitionImage) -> None:
        """Inform the controller of a replica's log directory if there are several and it knows another one."""
        if self._replicator is None or len(self._logs.directories) == 1:
            return
        directory_id = self._directory_ids.get(replica.log.log_directory.path)
        if directory_id is not None and directory_id != image.directory_of(self._node_id):
            state = replica.state
            reported = ReportedReplica(state.topic_id, state.topic_partition.partition)
            self._replicator.directories.report(reported, directory_id)

    def _follow(self, replica: Replica) -> None:
        """Start to copy a partition from its leader, if it has one and that is another node."""
        state = replica.state
        if self._replicator is not None and not state.is_leader and state.leader >= 0:
            self._replicator.fetchers.start(
                state.topic_partition, state.topic_id, leader=state.leader, leader_epoch=state.leader_epoch
            )

    def _join_replication(self, replica: Replica) -> None:
        """Copy a replica from its leader; propose what it has to propose, if it leads; report its log directory."""
        self._follow(replica)
        topic, index = replica.state.topic_partition
        self._report_directory(replica, self._image.topics[topic].partitions[index])
        if replica.state.proposal is not None:
            self._propose(replica)

    def _propose(self, replica: Replica) -> None:
        if self._replicator is not None:
            self._replicator.changes.propose(replica)

    def _remove(self, topic: TopicName, indexes: Iterable[int]) -> None:
        for index in indexes:
            partition = TopicPartition(topic, index)
            if self._replicator is not None:
                self._replicator.fetchers.stop(partition)
            if self._replicas.pop(partition, None) is not None or self._logs.is_quarantined(partition):
                self._removed.append(partition)
                self._pending.wake(partition)
        if topic not in self._image.topics:
            self.traffic.remove(topic)

    def _delete_previous_logs(self, topic: TopicImage) -> None:
        """Delete the logs of a deleted topic with the same name, because the new topic uses the same directories.

        Without this, `LogManager.create` would return the old log, and the new topic would have the old records.
        """
        previous = [partition for partition in self._removed if partition.topic == topic.name]
        if previous:
            self._removed = [partition for partition in self._removed if partition.topic != topic.name]
            for partition in previous:
                self._delete(partition)

    def _delete(self, partition: TopicPartition) -> None:
        try:
            self._logs.delete(partition)
        except StorageError as error:
            logger.error("could not delete a log", partition=str(partition), error=str(error))

    def _configure(self, topics: Iterable[TopicName]) -> None:
        for name in topics:
            topic = self._image.topics.get(name)
            for index in topic.partitions if topic is not None else ():
                replica = self._replicas.get(TopicPartition(name, index))
                if replica is not None:
                    replica.configure(self._configs.get(self._image.topic_config(name)))

    def _is_hosted(self, replica: Replica) -> bool:
        return self._replicas.get(replica.state.topic_partition) is replica

    def _changed(self, replica: Replica) -> None:
        self._pending.wake(replica.state.topic_partition)
        if self._replicator is not None and not replica.state.is_leader:
            self._replicator.fetchers.wake(replica.state.topic_partition)

    async def checkpoint_high_watermarks(self) -> None:
        """Write all high watermarks, in a worker thread: collecting those of thousands of partitions takes long."""
        replicas = list(self._replicas.values())
        await asyncio.get_running_loop().run_in_executor(self._executor, self._checkpoints.write, replicas)


def _touched(image: ClusterImage, delta: Delta) -> Iterator[tuple[TopicImage, PartitionIndex]]:
    """Yield the new and changed partitions of `image`."""
    for topic in delta.created:
        for index in topic.partitions:
            yield topic, index
    for topic_id, changed in delta.changed.items():
        topic_changed = image.topic_by_id(topic_id)
        if topic_changed is not None:
            for index in changed:
                yield topic_changed, index
