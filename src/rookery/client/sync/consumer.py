"""`Consumer` without `await`: the same methods as `rookery.client.Consumer`, which wait for their results.

One thread at a time may use a consumer; `wakeup` and `metrics` are for all. Listeners run in the thread that polls and
may call the consumer. Deserializers, interceptors and commit callbacks run on the clients' own thread.

Records that left the asynchronous consumer and are not in the user's hands wait in `_upcoming`: the rest of what an
iteration fetched, and what a poll had when it was interrupted. They come first in the next poll. To the user they were
not read: `commit` stops before them, and whatever else has to do with positions goes back to them first.
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
from rookery.client.sync.listener_calls import Conversation, HandedListener
from rookery.client.sync.loop import shared_loop

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")


async def _do(work: Callable[[], Result]) -> Result:
    return work()


class Consumer(Generic[K, V]):
    """`config` has Kafka's keys. Without deserializers, keys and values are bytes."""

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
        self._conversation = Conversation(self._loop)
        self._upcoming: deque[ConsumerRecord[K, V]] = deque()
        self._is_woken = False
        self._upcoming_columns: pa.RecordBatch | None = None
        self._fetching: asyncio.Task[Any] | None = None

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

    # What to read.

    def subscribe(
        self, topics: Collection[TopicName] | TopicName | re.Pattern[str], listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics together with the other members of the group; a pattern must match a whole name."""
        handed = None if listener is None else HandedListener(listener, self._conversation)
        self._tell(lambda: self._consumer.subscribe(topics, handed))

    def assign(self, partitions: SomePartitions) -> None:
        """Read these partitions, and no others; those that were assigned before keep their positions."""
        self._tell(lambda: self._consumer.assign(partitions))

    def unsubscribe(self) -> None:
        """Read nothing any more; leave the group."""
        self._ask(self._consumer.unsubscribe)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._conversation.wait(_do(self._consumer.assignment))

    def subscription(self) -> frozenset[TopicName]:
        """The topics that are subscribed to; of a pattern, those that match it today."""
        return self._conversation.wait(_do(self._consumer.subscription))

    # Reading.

    def poll(self, timeout_s: float = DEFAULT_POLL_S, *, max_records: int | None = None) -> ConsumerRecords[K, V]:
        """The records that are there, up to max.poll.records; waits for the first of them up to the time-out."""
        if not self._upcoming or self._is_woken:
            self._is_woken = False
            self._conversation.wait(self._fetch(timeout_s, max_records))
        return self._take(max_records)

    def _take(self, count_max: int | None) -> ConsumerRecords[K, V]:
        """First they are in two places, then in one: an interrupt in between loses nothing."""
        taken = ConsumerRecords(islice(self._upcoming, count_max))
        for _ in taken:
            self._upcoming.popleft()
        return taken

    async def _fetch(self, timeout_s: float, max_records: int | None) -> None:
        """Whoever waits may be interrupted at any time, so records are put where they are found again."""
        await self._settle()
        if self._upcoming_columns is not None:
            self._go_back()
        self._fetching = asyncio.current_task()
        self._upcoming.extend(await self._consumer.poll(timeout_s, max_records=max_records))

    async def _settle(self) -> None:
        """A poll that was interrupted may take a moment to end."""
        if self._fetching is not None and self._fetching.cancelling():
            await asyncio.wait([self._fetching])

    def poll_arrow(self, timeout_s: float = 1.0) -> "pa.RecordBatch":
        """All records that are there; waits for the first of them up to the time-out, and then gives no rows."""
        self._conversation.wait(self._fetch_columns(timeout_s))
        columns, self._upcoming_columns = self._upcoming_columns, None
        return columns

    async def _fetch_columns(self, timeout_s: float) -> None:
        await self._settle()
        if self._upcoming:
            self._go_back()
        self._fetching = asyncio.current_task()
        if self._upcoming_columns is None:
            self._upcoming_columns = await self._consumer.poll_arrow(timeout_s)

    def read_arrow(self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END) -> "pa.RecordBatch":
        """The records of a topic between two positions, as far as they exist now; in order within a partition.

        A mapping names the partitions to read. One RecordBatch has room for about 2 GB of keys or values: read more
        with `iterate_arrow`.
        """
        return self._conversation.wait(self._consumer.read_arrow(topic, start, end))

    def iterate_arrow(
        self, topic: TopicName, start: Positions = BEGINNING, end: Positions = END
    ) -> "Iterator[pa.RecordBatch]":
        """As `read_arrow`, a fetch at a time: in the order of offsets within a partition."""
        batches: Any = self._consumer.iterate_arrow(topic, start, end)

        async def upcoming() -> "pa.RecordBatch | None":
            return await anext(batches, None)

        async def leave() -> None:
            await batches.aclose()

        try:
            while (batch := self._conversation.wait(upcoming())) is not None:
                yield batch
        finally:
            # Who leaves early may do so at the very end of the program.
            with suppress(ClientStateError):
                self._conversation.wait(leave())

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Records one by one, without end."""
        while True:
            if not self._upcoming or self._is_woken:
                self._is_woken = False
                self._conversation.wait(self._fetch(DEFAULT_POLL_S, None))
            while self._upcoming and not self._is_woken:
                yield self._upcoming.popleft()

    def wakeup(self) -> None:
        """From any thread: the poll that runs, or the next one, raises WakeupError."""
        self._is_woken = True
        self._consumer.wakeup()

    # Positions.

    def seek(self, partition: OnePartition, offset: Offset | OffsetAndMetadata) -> None:
        """Go on from here; the offset's leader epoch, if given, is compared with the leader's first."""
        self._tell(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: SomePartitions) -> None:
        """Go on from the first offset of these partitions, or of all; which that is, is found out by the next poll."""
        self._tell(lambda: self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: SomePartitions) -> None:
        self._tell(lambda: self._consumer.seek_to_end(*partitions))

    def seek_to_timestamp(self, times_ms: Mapping[TopicPartition, TimestampMs] | TimestampMs) -> None:
        """Go on from the first record with this time or a later one: of each partition, or one time for all."""
        self._ask(lambda: self._consumer.seek_to_timestamp(times_ms))

    def position(self, partition: OnePartition, *, timeout_s: float | None = None) -> Offset:
        """The offset of the next record; looked up if it is not known yet."""
        return self._ask(lambda: self._consumer.position(partition, timeout_s=timeout_s))

    def pause(self, *partitions: SomePartitions) -> None:
        """Hand out nothing of these partitions until `resume`; they stay assigned."""
        self._tell(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: SomePartitions) -> None:
        self._tell(lambda: self._consumer.resume(*partitions))

    def paused(self) -> frozenset[TopicPartition]:
        return self._conversation.wait(_do(self._consumer.paused))

    def lag(self, partition: OnePartition) -> int | None:
        """How many offsets lie before the position, as the last fetch told; None before it."""
        return self._tell(lambda: self._consumer.lag(partition))

    # The group.

    def commit(self, offsets: Offsets | None = None, *, timeout_s: float | None = None) -> None:
        """Commit these offsets, or the positions of all partitions; returns when that is done."""

        async def commit() -> None:
            await self._consumer.commit(self._to_commit(offsets), timeout_s=timeout_s)

        self._conversation.wait(commit())

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting, in the order of the calls; `callback(offsets, error or None)` is called once."""
        self._conversation.wait(_do(lambda: self._consumer.commit_async(self._to_commit(offsets), callback)))

    def _to_commit(self, offsets: Offsets | None) -> Offsets | None:
        """On the loop. Positions lie behind what is upcoming, which nobody has read yet."""
        if offsets is not None or not (self._upcoming or self._upcoming_columns):
            return offsets
        positions = self._consumer._subscription.positions_to_commit()
        return positions | {tp: OffsetAndMetadata(offset) for tp, offset in self._first_upcoming().items()}

    def committed(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group committed; partitions without are left out."""
        return self._conversation.wait(self._consumer.committed(partitions, timeout_s=timeout_s))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who we are in the group: for `send_offsets_to_transaction`."""
        return self._conversation.wait(_do(self._consumer.group_metadata))

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Ask the group for a rebalance, at the next poll."""
        self._conversation.wait(_do(lambda: self._consumer.enforce_rebalance(reason)))

    # Questions about the cluster.

    def beginning_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The first offset of each partition."""
        return self._conversation.wait(self._consumer.beginning_offsets(partitions, timeout_s=timeout_s))

    def end_offsets(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offset behind the last record; with read_committed, behind the last that is decided."""
        return self._conversation.wait(self._consumer.end_offsets(partitions, timeout_s=timeout_s))

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, TimestampMs], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record with each time or a later one; None where no record is so late."""
        return self._conversation.wait(self._consumer.offsets_for_times(times_ms, timeout_s=timeout_s))

    def wait_for_records(self, positions: Mapping[TopicPartition, Offset], *, timeout_s: float) -> bool:
        """Whether there is a record at or behind any of these positions; waits for the first up to the time-out.

        Not tried again where it fails.
        """
        return self._conversation.wait(self._consumer.wait_for_records(positions, timeout_s=timeout_s))

    def measure(self, positions: Mapping[TopicPartition, Offset], *, size_max: int) -> dict[TopicPartition, StoredRun]:
        """What the first offsets from each position on take where they are stored, up to about `size_max` bytes.

        Partitions with nothing there are left out. Not tried again where it fails.
        """
        return self._conversation.wait(self._consumer.measure(positions, size_max=size_max))

    def partitions_for(self, topic: TopicName, *, timeout_s: float | None = None) -> list[Partition]:
        """The partitions of a topic, by index. Raises ApiError if it does not exist."""
        return self._conversation.wait(self._consumer.partitions_for(topic, timeout_s=timeout_s))

    def list_topics(self, *, timeout_s: float | None = None) -> dict[TopicName, list[Partition]]:
        """All topics with their partitions, without internal ones unless exclude.internal.topics is false."""
        return self._conversation.wait(self._consumer.list_topics(timeout_s=timeout_s))

    def metrics(self) -> dict[MetricName, float]:
        """Kafka's names; see `rookery.client.metrics`."""
        return self._loop.call(self._consumer.metrics)

    # The end.

    def close(self, timeout_s: float = DEFAULT_CLOSE_S) -> None:
        """Commit if that is automatic, leave the group, end all requests. More than once is no error."""
        self._ask(lambda: self._consumer.close(timeout_s))

    def _tell(self, work: Callable[[], Result]) -> Result:
        """Something that has to do with positions, on the loop."""
        return self._ask(lambda: _do(work))

    def _ask(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Something that has to do with positions and takes its time."""

        async def ask() -> Result:
            await self._settle()
            self._go_back()
            return await work()

        return self._conversation.wait(ask())

    def _go_back(self) -> None:
        """On the loop: return to before what is upcoming."""
        firsts = self._first_upcoming()
        self._upcoming.clear()
        self._upcoming_columns = None
        for tp in firsts.keys() & self._consumer.assignment():
            self._consumer.seek(tp, firsts[tp])

    def _first_upcoming(self) -> dict[TopicPartition, Offset]:
        firsts: dict[TopicPartition, Offset] = {}
        for record in self._upcoming:
            firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        if self._upcoming_columns is not None:
            names = ("topic", "partition", "offset")
            topics, partitions, offsets = (self._upcoming_columns.column(name).to_pylist() for name in names)
            for topic, partition, offset in zip(topics, partitions, offsets, strict=True):
                firsts.setdefault(TopicPartition(topic, partition), offset)
        return firsts
