"""The partitions that this node hosts: created from the cluster image, looked up by the handlers.

`apply` is the image listener: it sets the leader, epoch and configs of partitions. The work that takes long with many
partitions is done in slices before and after it: `prepare` creates the logs of new partitions before the image is
published, and `delete_removed_logs` deletes those of removed partitions afterwards. A topic that was deleted and
created again under the same name has another id; the old log is deleted before the new one is created, so that no
record passes from one to the other.

High watermarks are checkpointed per log directory as in Kafka (`replication-offset-checkpoint`). After a restart a
partition's high watermark starts from there; a leader without followers advances it to the end of its log immediately.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

import structlog

from rookery.base.bounds import PARTITIONS_PER_SLICE
from rookery.base.codes import ResourceType
from rookery.base.errors import CorruptionError, ErrorCode, StorageError
from rookery.base.slices import Slices
from rookery.base.types import NO_TOPIC_ID, NodeId, Offset, TopicId, TopicName, TopicPartition
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta, PartitionImage, TopicImage
from rookery.metadata.log_config import LogConfigs, broker_layers
from rookery.replication.flusher import Flusher
from rookery.replication.partition import Partition
from rookery.replication.pending import Pending
from rookery.replication.replica import Replica
from rookery.storage.checkpoints import HIGH_WATERMARK_FILE, read_offsets, write_offsets
from rookery.storage.config import LogConfig
from rookery.storage.directory import LogDirectory
from rookery.storage.manager import LogManager

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
    ) -> None:
        self._logs = logs
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
        # Replicas of an image that is about to be published.
        self._prepared: dict[TopicPartition, Replica] = {}
        # Partitions that the image no longer has, and whose logs are still to be deleted.
        self._removed: list[TopicPartition] = []
        self._high_watermarks: dict[TopicPartition, Offset] = {}
        # The content of the checkpoint files: an idle node does not rewrite them.
        self._checkpointed: dict[Path, dict[TopicPartition, Offset]] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def directories(self) -> Sequence[LogDirectory]:
        return self._logs.directories

    def volume_bytes(self, directory: LogDirectory) -> tuple[int, int]:
        """Return the total and the free bytes of a log directory's volume."""
        return self._files.total_bytes(directory.path), self._files.free_bytes(directory.path)

    def find(self, partition: TopicPartition) -> Replica | ErrorCode:
        """Return the replica, or the error code if this node cannot serve it."""
        replica = self._replicas.get(partition)
        if replica is None:
            return self._missing_error(partition)
        if replica.log.log_directory.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return replica

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

    def start(self, image: ClusterImage, removed_topics: Mapping[TopicId, TopicName]) -> None:
        """Host the partitions of the image, with the logs that were found on disk.

        `removed_topics` are the topics that the metadata log has removed. Only their logs are set aside: a log whose
        topic the metadata does not contain at all may be the only remains of a topic whose metadata was lost.
        """
        self._high_watermarks = self._read_checkpoints()
        self._set_image(image)
        self._logs.resolve_missing(self._topic_id_here)
        for partition, topic_id in self._logs.strays(self._topic_id_here).items():
            if self._is_obsolete(partition, topic_id, removed_topics):
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
        for topic in image.topics.values():
            self._host(topic, topic.partitions, is_new=False)
        self._high_watermarks = {}

    async def prepare(self, image: ClusterImage, delta: Delta) -> None:
        """Create the logs of new partitions before `image` is published. `apply` follows, with the same image."""
        configs = LogConfigs(broker_layers(image, self._node_id, self._static_config))
        deleted = {topic.name for topic in delta.deleted}
        new = [
            (topic, index)
            for topic in self._touched_topics(image, delta)
            # A topic that is deleted and created again in one change: the directory of its old log has the same name
            # and is still in use. `apply` deletes it and creates the new one.
            if topic.name not in deleted
            for index in topic.partitions
            if self._node_id in topic.partitions[index].replicas
            and TopicPartition(topic.name, index) not in self._replicas
        ]
        async for some in self._slices.of(new, PARTITIONS_PER_SLICE):
            for topic, index in some:
                partition = TopicPartition(topic.name, index)
                try:
                    replica = self._create(topic, partition, configs.get(image.topic_config(topic.name)), is_new=True)
                except (StorageError, CorruptionError):
                    # `apply` tries again, and logs the error if that fails too.
                    continue
                self._prepared[partition] = replica

    @staticmethod
    def _touched_topics(image: ClusterImage, delta: Delta) -> Iterator[TopicImage]:
        yield from delta.created
        for topic_id in delta.changed:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                yield topic

    async def delete_removed_logs(self) -> None:
        """Delete the logs of the partitions that `apply` removed."""
        removed, self._removed = self._removed, []
        async for some in self._slices.of(removed, PARTITIONS_PER_SLICE):
            for partition in some:
                self._delete(partition)

    def apply(self, image: ClusterImage, delta: Delta) -> None:
        """Update the hosted partitions to `image`. `delta` is the difference to the image before."""
        brokers_before = self._image.broker_config(self._node_id), self._image.broker_default_config()
        self._set_image(image)
        for topic in delta.deleted:
            self._remove(topic.name, topic.partitions)
        for topic in delta.created:
            self._delete_previous_logs(topic)
            self._host(topic, topic.partitions)
        for topic_id, partitions in delta.changed.items():
            topic_changed = image.topic_by_id(topic_id)
            if topic_changed is not None:
                self._host(topic_changed, partitions)
        if brokers_before != (image.broker_config(self._node_id), image.broker_default_config()):
            self._configure(image.topics)
        else:
            self._configure(resource.name for resource in delta.configs if resource.type == ResourceType.TOPIC)
        self._prepared.clear()

    def _set_image(self, image: ClusterImage) -> None:
        self._image = image
        self._configs = LogConfigs(broker_layers(image, self._node_id, self._static_config))

    def _topic_id_here(self, partition: TopicPartition) -> TopicId | None:
        """Return the id of the partition's topic if this node should host the partition, else None."""
        topic = self._image.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic is not None else None
        if topic is None or found is None or self._node_id not in found.replicas:
            return None
        return topic.topic_id

    def _is_obsolete(
        self, partition: TopicPartition, topic_id: TopicId, removed_topics: Mapping[TopicId, TopicName]
    ) -> bool:
        """Return whether the metadata shows that this node no longer needs a log on its disk."""
        if topic_id == NO_TOPIC_ID:
            # The file with the topic id was lost in a crash: only the name is left to identify the topic.
            return partition.topic in removed_topics.values()
        topic = self._image.topic_by_id(topic_id)
        found = topic.partitions.get(partition.partition) if topic is not None else None
        return topic_id in removed_topics or (found is not None and self._node_id not in found.replicas)

    def _host(self, topic: TopicImage, indexes: Iterable[int], *, is_new: bool = True) -> None:
        config = self._configs.get(self._image.topic_config(topic.name))
        for index in indexes:
            partition, state = TopicPartition(topic.name, index), topic.partitions[index]
            if self._node_id not in state.replicas:
                self._remove(topic.name, [index])
                continue
            try:
                replica = self._replicas.get(partition) or self._prepared.get(partition)
                if replica is None:
                    replica = self._create(topic, partition, config, is_new=is_new)
                self._replicas[partition] = replica
            except StorageError as error:
                logger.error("partition is offline", partition=str(partition), error=str(error))
                continue
            self._update_state(replica, state)

    def _create(self, topic: TopicImage, partition: TopicPartition, config: LogConfig, *, is_new: bool) -> Replica:
        log = self._logs.create(partition, topic.topic_id, config, is_new=is_new)
        state = Partition(partition, topic.topic_id, node_id=self._node_id)
        state.restore(
            high_watermark=self._high_watermarks.get(partition, 0),
            start_offset=log.start_offset,
            end_offset=log.end_offset,
        )
        lost = self._high_watermarks.get(partition, 0) - log.end_offset
        if lost > 0:
            # A power loss removes records that were never synced; damage after the recovery point has the same effect.
            logger.error(
                "the end of a log is missing: records that consumers could read are lost",
                partition=str(partition),
                offset=log.end_offset,
                records=lost,
            )
        return Replica(state, log, changed=self._changed, flush=self._flusher.request)

    def _update_state(self, replica: Replica, state: PartitionImage) -> None:
        replica.state.set_leader(
            state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
        )
        self._changed(replica)

    def _remove(self, topic: TopicName, indexes: Iterable[int]) -> None:
        for index in indexes:
            partition = TopicPartition(topic, index)
            if self._replicas.pop(partition, None) is not None or self._logs.is_quarantined(partition):
                self._removed.append(partition)
                self._pending.wake(partition)

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

    def _changed(self, replica: Replica) -> None:
        self._pending.wake(replica.state.topic_partition)

    def _read_checkpoints(self) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        for directory in self._logs.directories:
            try:
                found |= read_offsets(self._files, directory.path / HIGH_WATERMARK_FILE)
            except CorruptionError as error:
                # The high watermark then starts at the log's start and catches up with the in-sync replicas.
                logger.warning("ignoring a checkpoint", directory=str(directory.path), reason=str(error))
            except OSError as error:
                directory.fail(error)
        return found

    async def checkpoint_high_watermarks(self) -> None:
        """Write all high watermarks, in a worker thread: collecting those of thousands of partitions takes long."""
        replicas = list(self._replicas.values())
        await asyncio.get_running_loop().run_in_executor(self._executor, self._write_checkpoints, replicas)

    def _write_checkpoints(self, replicas: Iterable[Replica]) -> None:
        """Write the checkpoint files. A high watermark may advance meanwhile; each value that it had is valid."""
        by_directory: dict[LogDirectory, dict[TopicPartition, Offset]] = {}
        for replica in replicas:
            offsets = by_directory.setdefault(replica.log.log_directory, {})
            offsets[replica.state.topic_partition] = replica.state.high_watermark
        for directory, offsets in by_directory.items():
            if directory.is_online and self._checkpointed.get(directory.path) != offsets:
                try:
                    with directory.checkpoint_lock:
                        write_offsets(self._files, directory.path / HIGH_WATERMARK_FILE, offsets)
                except OSError as error:
                    directory.fail(error)
                    continue
                self._checkpointed[directory.path] = offsets
