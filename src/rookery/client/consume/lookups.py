"""The consumer's look-ups: offsets by timestamp, beginning and end offsets, topics and their partitions.

None of them changes positions or the assignment. Each takes a time-out, by default default.api.timeout.ms, and raises
`ApiError` when it expires, or immediately if a topic or partition does not exist.
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
        """Return the first offset of each partition."""
        return await self._edges(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the offset after the last record; with read_committed, the last stable offset."""
        return await self._edges(partitions, LATEST, timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, TimestampMs], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each timestamp; None for partitions without such a record."""
        self._check_open()
        for tp, time_ms in times_ms.items():
            if time_ms < 0:
                raise ValueError(f"{time_ms} is not a timestamp (for {partition_of(tp)})")
        wanted = {partition_of(tp): time_ms for tp, time_ms in times_ms.items()}
        return await self._queries.find(wanted, timeout_s=self._timeout_or_default(timeout_s))

    async def wait_for_records(self, positions: Mapping[TopicPartition, Offset], *, timeout_s: float) -> bool:
        """Return whether there is a record at or after any of `positions`; wait for one up to the time-out.

        One attempt: errors are not retried.
        """
        self._check_open()
        return await RangeProbe(self._cluster, self._settings).wait(positions, timeout_s=timeout_s)

    async def measure(
        self, positions: Mapping[TopicPartition, Offset], *, size_max: int
    ) -> dict[TopicPartition, StoredRun]:
        """Return the stored size and the number of offsets of the first batches from each position on.

        Each run is limited to about `size_max` bytes. Partitions without records at their position are left out. One
        attempt: errors are not retried.
        """
        self._check_open()
        return await RangeProbe(self._cluster, self._settings).measure(positions, size_max=size_max)

    async def partitions_for(self, topic: TopicName, *, timeout_s: float | None = None) -> list[Partition]:
        """Return the partitions of a topic in the order of their indexes. Raises ApiError if it does not exist."""
        self._check_open()
        return list(await self._known_partitions(topic, timeout_s))

    async def list_topics(self, *, timeout_s: float | None = None) -> dict[TopicName, list[Partition]]:
        """Return all topics with their partitions; internal ones only if exclude.internal.topics is false."""
        self._check_open()

        async def refresh() -> ClusterMetadata:
            return await self._cluster.refresh()

        metadata = await self._cluster.retry(refresh, timeout_s=timeout_s)
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
        return await self._queries.resolve(wanted, timeout_s=self._timeout_or_default(timeout_s))
