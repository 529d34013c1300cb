"""`Consumer` without `await`: the same methods as `rookery.client.Consumer`, which wait for their results.

Only one thread at a time may use a consumer; any thread may call `wakeup` and `metrics`. Listeners run in the thread
that polls and may call the consumer. Deserializers, interceptors and commit callbacks run on the clients' thread.

`_unreturned` holds records that the asynchronous consumer has returned and the user has not received: the rest of an
iteration's fetch, and the records of a poll that was interrupted. The next poll returns them first. They count as not
read: `commit` commits the positions before them, and every other call that uses positions seeks back to them first.
Otherwise their offsets would be committed without being processed, or they would be skipped.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from rookery.base.clock import Clock
from rookery.base.types import Offset, TimestampMs, TopicName, TopicPartition
from rookery.client.consume.columns import Positions
from rookery.client.consume.consumer import DEFAULT_CLOSE_S, DEFAULT_POLL_S, Offsets
from rookery.client.consume.consumer import Consumer as AsyncConsumer
from rookery.client.consume.ranges import StoredRun
from rookery.client.consume.records import (
    BEGINNING,
    END,
    ConsumerGroupMetadata,
    ConsumerInterceptor,
    ConsumerRecord,
    ConsumerRecords,
    Deserializer,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OnePartition,
    RebalanceListener,
    SomePartitions,
)
from rookery.client.errors import ClientStateError
from rookery.client.generics import K, V
from rookery.client.membership.assignors.base import Assignor
from rookery.client.membership.interfaces import CommitCallback
from rookery.client.metadata import Partition
from rookery.client.metrics.names import MetricName
from rookery.client.sync.listener_calls import BridgedListener, ThreadBridge
from rookery.client.sync.loop import shared_loop

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")


async def _call(work: Callable[[], Result]) -> Result:
    return work()


class Consumer(Generic[K, V]):
    """`config` holds settings under Kafka's names. Without deserializers, keys and values are bytes."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        assignors: Sequence[Assignor] = (),
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock | None = None,
        randomness: Random | None = None,
    ) -> None:
        self._loop = shared_loop()
        self._bridge = ThreadBridge(self._loop)
        self._unreturned: deque[ConsumerRecord[K, V]] = deque()
        self._is_woken = False
        self._unreturned_columns: pa.RecordBatch | None = None
        self._poll_task: asyncio.Task[Any] | None = None

        def make() -> AsyncConsumer[K, V]:
            return AsyncConsumer(
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                assignors=assignors,
                interceptors=interceptors,
                clock=clock,
                randomness=randomness,
            )

        self._consumer = self._loop.call(make)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Subscription and assignment.

    def subscribe(
        self, topics: Collection[TopicName] | TopicName | re.Pattern[str], listener: RebalanceListener | None = None
    ) -> None:
        """Share `topics` with the other members of the group; a pattern must match whole topic names."""
        bridged = None if listener is None else BridgedListener(listener, self._bridge)
        self._rewind_and_call(lambda: self._consumer.subscribe(topics, bridged))

    def assign(self, partitions: SomePartitions) -> None:
        """Read exactly `partitions`; those that were assigned before keep their positions."""
        self._rewind_and_call(lambda: self._consumer.assign(partitions))

    def unsubscribe(self) -> None:
        """Leave the group and drop the subscription or assignment."""
        self._rewind_and_run(self._consumer.unsubscribe)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._bridge.wait(_call(self._consumer.assignment))

    def subscription(self) -> frozenset[TopicName]:
        """Return the subscribed topics; for a pattern, the existing topics that match it."""
        return self._bridge.wait(_call(self._consumer.subscription))

    # Records.

    def poll(self, timeout_s: float = DEFAULT_POLL_S, *, max_records: int | None = None) -> ConsumerRecords[K, V]:
        """Return buffered records, up to max.poll.records; wait for the first of them up to the time-out."""
        if not self._unreturned or self._is_woken:
            self._is_woken = False
            self._bridge.wait(self._fetch(timeout_s, max_records))
        return self._take(max_records)

    def _take(self, count_max: int | None) -> ConsumerRecords[K, V]:
        """Return records of `_unreturned`. They are copied before they are removed: an interrupt loses none."""
        taken = ConsumerRecords(islice(self._unreturned, count_max))
        for _ in taken:
            self._unreturned.popleft()
        return taken

    async def _fetch(self, timeout_s: float, max_records: int | None) -> None:
        """Poll into `_unreturned`: the waiting thread may be interrupted at any time, and the records must not be
        lost."""
        await self._end_interrupted_poll()
        if self._unreturned_columns is not None:
            self._rewind()
        self._poll_task = asyncio.current_task()
        self._unreturned.extend(await self._consumer.poll(timeout_s, max_records=max_records))

    async def _end_interrupted_poll(self) -> None:
        """Wait for a poll that was interrupted and is still being cancelled."""
        if self._poll_task is not None and self._poll_task.cancelling():
            await asyncio.wait([self._poll_task])

    def poll_arrow(self, timeout_s: float = 1.0) -> "pa.RecordBatch":
        """Return all buffered records; wait for the first of them up to the time-out, then return no rows."""
        self._bridge.wait(self._fetch_columns(timeout_s))
        columns, self._unreturned_columns = self._unreturned_columns, None
        return columns

    async def _fetch_columns(self, timeout_s: float) -> None:
        await self._end_interrupted_poll()
        if self._unreturned:
            self._rewind()
        self._poll_task = asyncio.current_task()
        if self._unreturned_columns is None:
            self._unreturned_columns = await self._consumer.poll_arrow(timeout_s)

    def read_arrow(self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END) -> "pa.RecordBatch":
        """Return the records of a topic between two positions that exist now, in order within a partition.

        A mapping names the partitions to read. One RecordBatch holds at most about 2 GB of keys or values: use
        `iterate_arrow` to read more.
        """
        return self._bridge.wait(self._consumer.read_arrow(topic, start, end))

    def iterate_arrow(
        self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END
    ) -> "Iterator[pa.RecordBatch]":
        """Like `read_arrow`, but yield the records of one fetch at a time, in order within a partition."""
        batches: Any = self._consumer.iterate_arrow(topic, start, end)

        async def next_batch() -> "pa.RecordBatch | None":
            return await anext(batches, None)

        async def leave() -> None:
            await batches.aclose()

        try:
            while (batch := self._bridge.wait(next_batch())) is not None:
                yield batch
        finally:
            # A generator that was not exhausted may be closed when the program exits, after the loop has stopped.
            with suppress(ClientStateError):
                self._bridge.wait(leave())

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yield records one by one, without end."""
        while True:
            if not self._unreturned or self._is_woken:
                self._is_woken = False
                self._bridge.wait(self._fetch(DEFAULT_POLL_S, None))
            while self._unreturned and not self._is_woken:
                yield self._unreturned.popleft()

    def wakeup(self) -> None:
        """Make the running poll, or else the next one, raise WakeupError. May be called from any thread."""
        self._is_woken = True
        self._consumer.wakeup()

    # Positions.

    def seek(self, partition: OnePartition, offset: Offset | OffsetAndMetadata) -> None:
        """Continue at `offset`. If it carries a leader epoch, the position is validated with the leader first."""
        self._rewind_and_call(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: SomePartitions) -> None:
        """Continue at the first offset of `partitions`, or of all. The next poll looks that offset up."""
        self._rewind_and_call(lambda: self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: SomePartitions) -> None:
        self._rewind_and_call(lambda: self._consumer.seek_to_end(*partitions))

    def seek_to_timestamp(self, times_ms: Mapping[TopicPartition, TimestampMs] | TimestampMs) -> None:
        """Continue at the first record at or after a timestamp: one per partition, or one for all partitions."""
        self._rewind_and_run(lambda: self._consumer.seek_to_timestamp(times_ms))

    def position(self, partition: OnePartition, *, timeout_s: float | None = None) -> Offset:
        """Return the offset of the next record; look it up if it is not known yet."""
        return self._rewind_and_run(lambda: self._consumer.position(partition, timeout_s=timeout_s))

    def pause(self, *partitions: SomePartitions) -> None:
        """Return no records of `partitions` until `resume`; they stay assigned."""
        self._rewind_and_call(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: SomePartitions) -> None:
        self._rewind_and_call(lambda: self._consumer.resume(*partitions))

    def paused(self) -> frozenset[TopicPartition]:
        return self._bridge.wait(_call(self._consumer.paused))

    def lag(self, partition: OnePartition) -> int | None:
        """Return the offsets between the position and the end as of the last fetch; None before the first fetch."""
        return self._rewind_and_call(lambda: self._consumer.lag(partition))

    # The group.

    def commit(self, offsets: Offsets | None = None, *, timeout_s: float | None = None) -> None:
        """Commit `offsets`, or the positions of all partitions, and wait for the coordinator's reply."""

        async def commit() -> None:
            await self._consumer.commit(self._to_commit(offsets), timeout_s=timeout_s)

        self._bridge.wait(commit())

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting. Commits keep the order of the calls; `callback(offsets, error)` is called once."""
        self._bridge.wait(_call(lambda: self._consumer.commit_async(self._to_commit(offsets), callback)))

    def _to_commit(self, offsets: Offsets | None) -> Offsets | None:
        """Return the positions before `_unreturned`, which the asynchronous consumer's positions are after.

        Must be called on the loop.
        """
        if offsets is not None or not (self._unreturned or self._unreturned_columns):
            return offsets
        positions = self._consumer._subscription.positions_to_commit()
        return positions | {tp: OffsetAndMetadata(offset) for tp, offset in self._first_unreturned().items()}

    def committed(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        return self._bridge.wait(self._consumer.committed(partitions, timeout_s=timeout_s))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of this member in its group, for `send_offsets_to_transaction`."""
        return self._bridge.wait(_call(self._consumer.group_metadata))

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Request a rebalance of the group at the next poll."""
        self._bridge.wait(_call(lambda: self._consumer.enforce_rebalance(reason)))

    # Look-ups.

    def beginning_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition."""
        return self._bridge.wait(self._consumer.beginning_offsets(partitions, timeout_s=timeout_s))

    def end_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the offset after the last record; with read_committed, the last stable offset."""
        return self._bridge.wait(self._consumer.end_offsets(partitions, timeout_s=timeout_s))

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, TimestampMs], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each timestamp; None for partitions without such a record."""
        return self._bridge.wait(self._consumer.offsets_for_times(times_ms, timeout_s=timeout_s))

    def wait_for_records(self, positions: Mapping[TopicPartition, Offset], *, timeout_s: float) -> bool:
        """Return whether there is a record at or after any of `positions`; wait for one up to the time-out.

        One attempt: errors are not retried.
        """
        return self._bridge.wait(self._consumer.wait_for_records(positions, timeout_s=timeout_s))

    def measure(self, positions: Mapping[TopicPartition, Offset], *, size_max: int) -> dict[TopicPartition, StoredRun]:
        """Return the stored size and the number of offsets of the first batches from each position on.

        Each run is limited to about `size_max` bytes. Partitions without records at their position are left out. One
        attempt: errors are not retried.
        """
        return self._bridge.wait(self._consumer.measure(positions, size_max=size_max))

    def partitions_for(self, topic: TopicName, *, timeout_s: float | None = None) -> list[Partition]:
        """Return the partitions of a topic in the order of their indexes. Raises ApiError if it does not exist."""
        return self._bridge.wait(self._consumer.partitions_for(topic, timeout_s=timeout_s))

    def list_topics(self, *, timeout_s: float | None = None) -> dict[TopicName, list[Partition]]:
        """Return all topics with their partitions; internal ones only if exclude.internal.topics is false."""
        return self._bridge.wait(self._consumer.list_topics(timeout_s=timeout_s))

    def metrics(self) -> dict[MetricName, float]:
        """Return all metrics under Kafka's names; see `rookery.client.metrics`."""
        return self._loop.call(self._consumer.metrics)

    # Closing.

    def close(self, timeout_s: float = DEFAULT_CLOSE_S) -> None:
        """Commit if enable.auto.commit is true, leave the group, cancel all requests. Further calls do nothing."""
        self._rewind_and_run(lambda: self._consumer.close(timeout_s))

    def _rewind_and_call(self, work: Callable[[], Result]) -> Result:
        """Seek back to the unreturned records, then call `work` on the loop. For calls that use positions."""
        return self._rewind_and_run(lambda: _call(work))

    def _rewind_and_run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Like `_rewind_and_call`, for a coroutine function."""

        async def run() -> Result:
            await self._end_interrupted_poll()
            self._rewind()
            return await work()

        return self._bridge.wait(run())

    def _rewind(self) -> None:
        """Seek back to the unreturned records and drop them. Must be called on the loop."""
        firsts = self._first_unreturned()
        self._unreturned.clear()
        self._unreturned_columns = None
        for tp in firsts.keys() & self._consumer.assignment():
            self._consumer.seek(tp, firsts[tp])

    def _first_unreturned(self) -> dict[TopicPartition, Offset]:
        firsts: dict[TopicPartition, Offset] = {}
        for record in self._unreturned:
            firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        if self._unreturned_columns is not None:
            names = ("topic", "partition", "offset")
            topics, partitions, offsets = (self._unreturned_columns.column(name).to_pylist() for name in names)
            for topic, partition, offset in zip(topics, partitions, offsets, strict=True):
                firsts.setdefault(TopicPartition(topic, partition), offset)
        return firsts
