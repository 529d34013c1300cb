"""The consumer's questions about the cluster: offsets by time and at the ends, topics and their partitions.

They leave positions and assignment alone. Each takes a time-out, by default default.api.timeout.ms, and raises
`ApiError` when it is over, or at once where a topic or partition does not exist.
"""

from collections.abc import Mapping

from rookery.base.errors import ErrorCode
from rookery.base.types import Offset, TimestampMs, TopicName, TopicPartition
from rookery.client.consume.base import ConsumerBase
from rookery.client.consume.positions import EARLIEST, LATEST
from rookery.client.consume.ranges import RangeProbe, StoredRun
from rookery.client.consume.records import OffsetAndTimestamp, SomePartitions, partition_of, partitions_of
from rookery.client.metadata import ClusterMetadata, Partition


class LookupMethods(ConsumerBase):
    async def beginning_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The first offset of each partition."""
        return await self._edges(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offset behind the last record; with read_committed, behind the last that is decided."""
        return await self._edges(partitions, LATEST, timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, TimestampMs], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record with each time or a later one; None where no record is so late."""
        self._check_open()
        for tp, time_ms in times_ms.items():
            if time_ms < 0:
                raise ValueError(f"{time_ms} is no timestamp (for {partition_of(tp)})")
        wanted = {partition_of(tp): time_ms for tp, time_ms in times_ms.items()}
        return await self._queries.find(wanted, timeout_s=self._patience_s(timeout_s))

    async def wait_for_records(self, positions: Mapping[TopicPartition, Offset], *, timeout_s: float) -> bool:
        """Whether there is a record at or behind any of these positions; waits for the first up to the time-out.

        Not tried again where it fails.
        """
        self._check_open()
        return await RangeProbe(self._cluster, self._settings).wait(positions, timeout_s=timeout_s)

    async def measure(
        self, positions: Mapping[TopicPartition, Offset], *, size_max: int
    ) -> dict[TopicPartition, StoredRun]:
        """What the first offsets from each position on take where they are stored, up to about `size_max` bytes.

        Partitions with nothing there are left out. Not tried again where it fails.
        """
        self._check_open()
        return await RangeProbe(self._cluster, self._settings).measure(positions, size_max=size_max)

    async def partitions_for(self, topic: TopicName, *, timeout_s: float | None = None) -> list[Partition]:
        """The partitions of a topic, by index. Raises ApiError if it does not exist."""
        self._check_open()
        return list(await self._known_partitions(topic, timeout_s))

    async def list_topics(self, *, timeout_s: float | None = None) -> dict[TopicName, list[Partition]]:
        """All topics with their partitions, without internal ones unless exclude.internal.topics is false."""
        self._check_open()

        async def ask() -> ClusterMetadata:
            return await self._cluster.refresh()

        metadata = await self._cluster.retry(ask, timeout_s=timeout_s)
        return {
            name: list(topic.partitions)
            for name, topic in sorted(metadata.topics.items())
            if topic.error is ErrorCode.NONE and not (topic.is_internal and self._settings.exclude_internal_topics)
        }

    async def _edges(
        self, partitions: SomePartitions, edge: TimestampMs, timeout_s: float | None
    ) -> dict[TopicPartition, Offset]:
        self._check_open()
        wanted = dict.fromkeys(partitions_of(partitions), edge)
        return await self._queries.resolve(wanted, timeout_s=self._patience_s(timeout_s))

    def _patience_s(self, timeout_s: float | None) -> float:
        return self._api_timeout_s if timeout_s is None else timeout_s
