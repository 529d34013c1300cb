"""The consumer: Kafka's `KafkaConsumer` with Kafka's settings, as an asyncio class.

    async with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "billing"}) as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            ...

`poll` does what must happen between two sets of records: it joins and leaves the group, calls listeners, commits
automatically when due, and returns the records that have arrived. Fetching continues between polls, on the event loop.
One task polls; `wakeup` may be called from any thread. Positions follow the returned records: `poll` moves them past
all records that it returns, `async for` past each record in turn, so that a commit inside the loop covers the current
record and no later one.

`base` builds the parts of a consumer; `poll`, `lookups` and `columns` hold the other methods.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Generic, Self, TypeAlias

from rookery.base.clock import Clock
from rookery.base.errors import ApiError
from rookery.base.types import Offset, TimestampMs, TopicName, TopicPartition
from rookery.client.consume.columns import ColumnMethods
from rookery.client.consume.lookups import LookupMethods
from rookery.client.consume.positions import EARLIEST, LATEST
from rookery.client.consume.records import (
    ConsumerGroupMetadata,
    ConsumerInterceptor,
    ConsumerRecord,
    ConsumerRecords,
    Deserializer,
    OffsetAndMetadata,
    OnePartition,
    RebalanceListener,
    SomePartitions,
    check_listener,
    checked_offset,
    partition_of,
    partitions_of,
)
from rookery.client.consume.subscription import FetchPosition
from rookery.client.errors import ClientStateError
from rookery.client.generics import K, V
from rookery.client.membership.assignors.base import Assignor
from rookery.client.membership.committer import Committer
from rookery.client.membership.factory import make_manual_membership, make_membership
from rookery.client.membership.interfaces import CommitCallback
from rookery.client.metrics.names import MetricName
from rookery.client.settings.consumer import ConsumerSettings
from rookery.telemetry.library_logs import LibraryLogger

_log = LibraryLogger(__name__)


DEFAULT_POLL_S = 1.0
DEFAULT_CLOSE_S = 30.0

Offsets: TypeAlias = Mapping[TopicPartition, Offset | OffsetAndMetadata]


class Consumer(ColumnMethods, LookupMethods, Generic[K, V]):
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
        super().__init__(
            ConsumerSettings.parse(config),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            clock=clock,
            randomness=randomness,
        )
        self._assignors = tuple(assignors)
        if self._committer is not None:
            self._committer.on_auto_committed = lambda offsets: self._notify_interceptors(dict(offsets))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Subscription and assignment.

    def subscribe(
        self, topics: Collection[TopicName] | TopicName | re.Pattern[str], listener: RebalanceListener | None = None
    ) -> None:
        """Share `topics` with the other members of the group; a pattern must match whole topic names."""
        self._check_open()
        if self._committer is None:
            raise ClientStateError("subscribe() needs a group.id; assign() does not")
        if listener is not None:
            check_listener(listener)
        if isinstance(topics, re.Pattern):
            self._subscription.subscribe_pattern(topics)
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            if not names:
                raise ClientStateError("no topics to subscribe to: use unsubscribe()")
            self._subscription.subscribe(names)
        self._host.listener = listener
        self._needs_topics = True
        self._host.watch()
        if self._membership is None:
            self._membership = make_membership(
                self._settings,
                self._cluster,
                host=self._host,
                committer=self._committer,
                assignors=self._assignors,
                metrics=self._metrics,
                randomness=self._randomness,
            )
        else:
            self._membership.request_rejoin("the subscription changed")

    def assign(self, partitions: SomePartitions) -> None:
        """Read exactly `partitions`; those that were assigned before keep their positions."""
        self._check_open()
        wanted = partitions_of(partitions)
        if self._committer is not None and self._settings.enable_auto_commit and self._subscription.is_manual:
            self._committer.commit_async(self._subscription.positions_to_commit())
        self._subscription.choose_manually()
        self._host.replace_assignment(wanted)
        if self._committer is not None and self._membership is None:
            self._membership = make_manual_membership(self._settings, host=self._host, committer=self._committer)

    async def unsubscribe(self) -> None:
        """Leave the group and drop the subscription or assignment."""
        self._check_open()
        await self._leave(self._api_timeout_s)
        self._subscription.unsubscribe()
        self._host.forget_group()
        self._host.watch()

    async def _leave(self, timeout_s: float) -> None:
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.close(timeout_s=timeout_s)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._subscription.assigned()

    def subscription(self) -> frozenset[TopicName]:
        """Return the subscribed topics; for a pattern, the existing topics that match it."""
        return self._subscription.subscribed_topics()

    # Records.

    async def poll(self, timeout_s: float = DEFAULT_POLL_S, *, max_records: int | None = None) -> ConsumerRecords[K, V]:
        """Return buffered records, up to max.poll.records; wait for the first of them up to the time-out."""
        count_max = self._settings.max_poll_records if max_records is None else max_records
        if count_max < 1:
            raise ValueError(f"max_records is {max_records}: it must be positive")
        with self._exclusive_poll():
            deadline_s = asyncio.get_running_loop().time() + timeout_s
            while True:
                await self._prepare()
                taken = self._fetcher.take(count_max)
                self._fetcher.advance_if_drained()
                if taken:
                    return self._intercepted(ConsumerRecords(taken))
                if not await self._wait(deadline_s):
                    return ConsumerRecords()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yield records one by one, without end."""
        if self._interceptors:
            while True:
                for record in await self.poll(max_records=1):
                    yield record
        while True:
            with self._exclusive_poll():
                await self._prepare()
            is_idle = True
            for taken in self._fetcher.take_singly(self._settings.max_poll_records):
                is_idle = False
                yield taken
                if self._is_woken:
                    break
            self._fetcher.advance_if_drained()
            if is_idle:
                with self._exclusive_poll():
                    await self._wait(asyncio.get_running_loop().time() + DEFAULT_POLL_S)

    def _intercepted(self, records: ConsumerRecords[K, V]) -> ConsumerRecords[K, V]:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                _log.exception("an interceptor failed", interceptor=type(interceptor).__name__)
        return records

    # Positions.

    def seek(self, partition: OnePartition, offset: Offset | OffsetAndMetadata) -> None:
        """Continue at `offset`. If it carries a leader epoch, the position is validated with the leader first."""
        self._check_open()
        tp = partition_of(partition)
        to = _named_offset(tp, offset)
        self._subscription.seek(tp, FetchPosition(to.offset, to.leader_epoch))

    def seek_to_beginning(self, *partitions: SomePartitions) -> None:
        """Continue at the first offset of `partitions`, or of all. The next poll looks that offset up."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: SomePartitions) -> None:
        self._reset(partitions, LATEST)

    async def seek_to_timestamp(self, times_ms: Mapping[TopicPartition, TimestampMs] | TimestampMs) -> None:
        """Continue at the first record at or after a timestamp: one per partition, or one for all partitions."""
        self._check_open()
        if isinstance(times_ms, int):
            times_ms = dict.fromkeys(self._subscription.assigned(), times_ms)
        wanted = {partition_of(tp): time_ms for tp, time_ms in times_ms.items()}
        found = await self._queries.resolve(wanted, timeout_s=self._api_timeout_s)
        for tp, offset in found.items():
            # Even if another look-up, such as that of auto.offset.reset, has set a position meanwhile: the user's call
            # takes precedence.
            if tp in self._subscription.assigned():
                self._subscription.seek(tp, FetchPosition(offset))

    async def position(self, partition: OnePartition, *, timeout_s: float | None = None) -> Offset:
        """Return the offset of the next record; look it up if it is not known yet."""
        self._check_open()
        return await self._await_position(partition_of(partition), timeout_s=self._timeout_or_default(timeout_s))

    def pause(self, *partitions: SomePartitions) -> None:
        """Return no records of `partitions` until `resume`; they stay assigned."""
        for tp in partitions_of(partitions):
            self._subscription.pause(tp)

    def resume(self, *partitions: SomePartitions) -> None:
        for tp in partitions_of(partitions):
            self._subscription.resume(tp)

    def paused(self) -> frozenset[TopicPartition]:
        return self._subscription.paused()

    def lag(self, partition: OnePartition) -> int | None:
        """Return the offsets between the position and the end as of the last fetch; None before the first fetch."""
        return self._subscription.lag(partition_of(partition), read_committed=self._settings.read_committed)

    def _reset(self, partitions: Iterable[SomePartitions], to_ms: TimestampMs) -> None:
        self._check_open()
        for tp in partitions_of(partitions) or self._subscription.assigned():
            self._subscription.reset(tp, to_ms)

    # The group.

    async def commit(self, offsets: Offsets | None = None, *, timeout_s: float | None = None) -> None:
        """Commit `offsets`, or the positions of all partitions, and wait for the coordinator's reply."""
        committer, wanted = self._to_commit(offsets)
        started_s = asyncio.get_running_loop().time()
        try:
            await committer.commit(wanted, timeout_s=self._timeout_or_default(timeout_s))
        finally:
            self._metrics.commit_sync_time(asyncio.get_running_loop().time() - started_s)
        self._notify_interceptors(wanted)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting. Commits keep the order of the calls; `callback(offsets, error)` is called once."""
        committer, wanted = self._to_commit(offsets)

        def on_done(done: Mapping[TopicPartition, OffsetAndMetadata], error: ApiError | None) -> None:
            if error is None:
                self._notify_interceptors(dict(done))
            elif callback is None:
                _log.warning("commit failed", group=self._settings.group_id, error=str(error))
            if callback is not None:
                callback(done, error)

        committer.commit_async(wanted, on_done)

    async def committed(
        self, partitions: SomePartitions, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        wait_s = self._timeout_or_default(timeout_s)
        started_s = asyncio.get_running_loop().time()
        try:
            return await self._group_committer().committed(partitions_of(partitions), timeout_s=wait_s)
        finally:
            self._metrics.committed_time(asyncio.get_running_loop().time() - started_s)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of this member in its group, for `send_offsets_to_transaction`."""
        self._group_committer()
        if self._membership is None:
            return ConsumerGroupMetadata(self._settings.group_id or "", -1, "", self._settings.group_instance_id)
        return self._membership.group_metadata

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Request a rebalance of the group at the next poll."""
        self._check_open()
        if self._membership is None or not self._subscription.is_subscribed:
            raise ClientStateError("there is no group to rebalance: subscribe first")
        self._membership.request_rejoin(reason)

    def _to_commit(self, offsets: Offsets | None) -> tuple[Committer, dict[TopicPartition, OffsetAndMetadata]]:
        committer = self._group_committer()
        if offsets is None:
            return committer, self._subscription.positions_to_commit()
        wanted = ((partition_of(given), offset) for given, offset in offsets.items())
        return committer, {tp: _named_offset(tp, offset) for tp, offset in wanted}

    def _group_committer(self) -> Committer:
        self._check_open()
        if self._committer is None:
            raise ClientStateError("this consumer has no group.id")
        return self._committer

    def _notify_interceptors(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                _log.exception("an interceptor failed", interceptor=type(interceptor).__name__)

    def metrics(self) -> dict[MetricName, float]:
        """Return all metrics under Kafka's names; see `rookery.client.metrics`."""
        return self._metrics.metrics()

    # Closing.

    async def close(self, timeout_s: float = DEFAULT_CLOSE_S) -> None:
        """Commit if enable.auto.commit is true, leave the group, cancel all requests. Further calls do nothing."""
        if self._is_closing:
            return
        self._is_closing = True
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        # Wake a poll in another task: it raises.
        self._arrived.set()
        try:
            # `_is_closed` is still false: listeners may commit, seek and look up offsets.
            await self._leave(timeout_s)
            if self._committer is not None:
                await self._committer.flush(timeout_s=max(deadline_s - loop.time(), 0))
        finally:
            self._is_closed = True
            self._arrived.set()
            await self._positions.close()
            await self._fetcher.close(timeout_s=max(deadline_s - loop.time(), 0))
            await self._cluster.close()


def _named_offset(tp: TopicPartition, offset: Offset | OffsetAndMetadata) -> OffsetAndMetadata:
    """Return `offset` as an OffsetAndMetadata. Raises ValueError if it is not an offset."""
    if isinstance(offset, OffsetAndMetadata):
        checked_offset(tp, offset.offset)
        return offset
    return OffsetAndMetadata(checked_offset(tp, offset))
