"""The runtime of the coordinators: decide, append, replay, respond.

A coordinator stores its state in the partitions of an internal compacted topic. Each partition that this node leads is
a shard: a pure state machine into which the partition's log is replayed. `write` runs a decision on the shard of a key:

1. `decide(shard, now_ms)` reads the shard and returns a `CoordinatorResult`; it changes nothing.
2. The result's records are appended as one batch, as by a leader with acks=all. If that fails, the shard is unchanged.
   (Removing expired state may take more than a batch can hold; such a result is `divisible`.)
3. They are replayed into the shard, volatile changes are installed and timers set; the next decision sees all of it.
4. The response, and the responses of completed requests, are sent when the high watermark has passed the records. The
   effects run only then. If the shard is unloaded before, they are dropped; the next leader's `on_loaded` returns them.

On a single node all of this happens within the call, and the future that `write` returns is already done. A decision
without records also waits until the records that it has seen are committed. A request gets COORDINATOR_LOAD_IN_PROGRESS
while its shard is being loaded, NOT_COORDINATOR if this node does not lead the partition, and COORDINATOR_NOT_AVAILABLE
before the topic exists.

Records may be part of a producer's transaction, which `end_transaction` ends with a marker in the same log.

Invariant: a shard's state is that of the log up to `end_offset`, all of it read or appended in one leader epoch.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import structlog

from rookery.base.bounds import COORDINATOR_LOADS_AT_ONCE
from rookery.base.clock import Clock
from rookery.base.errors import CorruptionError, ErrorCode, StorageError
from rookery.base.slices import Slices
from rookery.base.types import (
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TimestampMs,
    TopicName,
    TopicPartition,
)
from rookery.coordinators.log_replay import load
from rookery.coordinators.result import CoordinatorResult, Parked, Producer, Timer, TimerKey, Token
from rookery.coordinators.timers import Timers
from rookery.metadata.image import ClusterImage
from rookery.records.batch import HEADER_SIZE, Codec
from rookery.records.control import Marker
from rookery.records.record import Record, build_batch
from rookery.replication.commitment import when_committed
from rookery.replication.pending import Pending
from rookery.replication.replica import Replica

logger = structlog.get_logger(__name__)

_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


# The delay before a timer whose decision could not be written fires again.
_TIMER_RETRY_MS = 1000

# An upper bound of a record's size in a batch, without its key and value.
_RECORD_OVERHEAD_BYTES = 32

Encoded: TypeAlias = tuple[bytes, bytes | None]


class Shard(Protocol):
    """The pure state of one partition. `encode` and `decode` implement the formats of its records."""

    def encode(self, record: Any) -> Encoded: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """Return the record, or None if its kind is unknown. Raises CorruptionError if it is malformed."""
        ...

    def replay(self, record: Any) -> None: ...

    def replay_pending(self, record: Any, producer_id: ProducerId) -> None:
        """Replay a record that takes effect only if the producer's transaction is committed."""
        ...

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None: ...

    def install(self, change: Any) -> None: ...

    def on_loaded(self, now_ms: TimestampMs) -> CoordinatorResult[None]:
        """Called once, after the log has been replayed."""
        ...

    def on_timer(self, key: TimerKey, now_ms: TimestampMs) -> CoordinatorResult[None]: ...


class Replicas(Protocol):
    """The part of the replica manager that the runtime uses."""

    def find(self, partition: TopicPartition) -> Replica | ErrorCode: ...


ShardT = TypeVar("ShardT", bound=Shard)
ResponseT = TypeVar("ResponseT")

# The response, or an error of the coordinator itself (see the module's docstring).
ResponseFuture: TypeAlias = asyncio.Future[ResponseT | ErrorCode]


class _HostedShard(Generic[ShardT]):
    """A shard that is active or being loaded, and its surroundings."""

    def __init__(self, shard: ShardT, replica: Replica, timers: Timers) -> None:
        self.shard = shard
        self.replica = replica
        # All records of the shard's state were read, or appended, in this epoch.
        self.leader_epoch = replica.state.leader_epoch
        self.timers = timers
        self.loading: asyncio.Task[None] | None = None
        self.is_active = False
        # The offset after the last record that is in the shard's state.
        self.end_offset: Offset = 0
        self.parked: dict[Token, asyncio.Future[Any]] = {}

    @property
    def still_leads(self) -> bool:
        return self.replica.state.still_leads(self.leader_epoch)


class Coordinator(Generic[ShardT]):
    """All shards of one internal topic that this node leads."""

    def __init__(
        self,
        topic: TopicName,
        *,
        node_id: NodeId,
        make_shard: Callable[[PartitionIndex], ShardT],
        replicas: Replicas,
        pending: Pending,
        clock: Clock,
        commit_timeout_ms: int,
        load_bytes: int,
        codec: Codec = Codec.NONE,
        on_committed: Callable[[Any, LeaderEpoch], None] | None = None,
        executor: Executor | None = None,
    ) -> None:
        """`on_committed` is called with each effect, and the leader epoch in which its records were committed.

        `executor` reads the log of a partition that is loaded; None is the event loop's own executor.
        """
        self._topic = topic
        self._node_id = node_id
        self._make_shard = make_shard
        self._replicas = replicas
        self._pending = pending
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._load_bytes = load_bytes
        self._executor = executor
        self._codec = codec
        self._on_committed = on_committed
        self._partition_count = 0
        self._hosted: dict[PartitionIndex, _HostedShard[ShardT]] = {}
        self._tokens = count(1)
        # One of the partitions that are being loaded continues per iteration of the event loop.
        self._slices = Slices()
        self._loads = asyncio.Semaphore(COORDINATOR_LOADS_AT_ONCE)

    def new_token(self) -> Token:
        """Return a token for a request that may be parked."""
        return next(self._tokens)

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic, 0 while it does not exist."""
        return self._partition_count

    def partition_of(self, key: str) -> PartitionIndex:
        """Return the partition of a key, the same as in Kafka, so that its tools find it."""
        return abs_hash(key) % self._partition_count

    def leads(self, key: str, leader_epoch: LeaderEpoch) -> bool:
        """Whether the shard of `key` is active here, in the leader epoch `leader_epoch`."""
        hosted = self._find(key)
        return not isinstance(hosted, ErrorCode) and hosted.leader_epoch == leader_epoch and hosted.still_leads

    def apply(self, image: ClusterImage) -> None:
        """Load the partitions that this node leads in `image`, and unload those that it no longer leads."""
        topic = image.topics.get(self._topic)
        partitions = {} if topic is None else topic.partitions
        self._partition_count = len(partitions)
        led = {index for index, partition in partitions.items() if partition.leader == self._node_id}
        for index in sorted(self._hosted.keys() - led):
            self._unload(index)
        for index in sorted(led):
            self._host(index)

    async def wait_until_loaded(self) -> None:
        tasks = [hosted.loading for hosted in self._hosted.values() if hosted.loading is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        tasks = [hosted.loading for hosted in self._hosted.values() if hosted.loading is not None]
        for index in list(self._hosted):
            self._unload(index)
        await asyncio.gather(*tasks, return_exceptions=True)

    def write(
        self,
        key: str,
        decide: Callable[[ShardT, TimestampMs], CoordinatorResult[ResponseT]],
        *,
        token: Token | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Run a decision on the shard of `key`; `token` is the one under which the decision may park the request."""
        found = self._find(key)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(found, ErrorCode):
            future.set_result(found)
        else:
            self._run(found, decide, future, token=token)
        return future

    async def write_all(self, steps: Callable[[ShardT], Iterator[CoordinatorResult[None]]]) -> None:
        """Run the steps of a decision on every active shard, one per turn of the loop, without waiting for commits."""
        for hosted in [hosted for hosted in self._hosted.values() if hosted.is_active]:
            for result in steps(hosted.shard):
                if not hosted.is_active or self._run(hosted, partial(_constant, result), None) is not None:
                    break
                await self._slices.pause()

    def guard(self, key: str, producer_id: ProducerId) -> object | ErrorCode:
        """Return a guard, to be taken before a producer's transaction is verified and passed with its records.

        If the transaction ends in between, the records are rejected: they would begin a transaction of which its
        coordinator has no partition, and which therefore never ends (KIP-890).
        """
        hosted = self._find(key)
        return hosted if isinstance(hosted, ErrorCode) else hosted.replica.guard(producer_id)

    def end_transaction(self, index: PartitionIndex, marker: Marker) -> "asyncio.Future[ErrorCode]":
        """End a producer's transaction on one partition of the topic; resolved when the marker is committed."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        hosted = self._active(index)
        if isinstance(hosted, ErrorCode):
            future.set_result(hosted)
            return future
        if not hosted.still_leads:
            future.set_result(ErrorCode.NOT_COORDINATOR)
            return future
        appended = hosted.replica.append_marker(marker, now_ms=self._clock.now_ms())
        if appended.error_code is not ErrorCode.NONE:
            future.set_result(appended.error_code)
            return future
        # The state changes together with the log: a decision that ran in between would see offsets as pending that are
        # committed in the log.
        hosted.end_offset = appended.end_offset
        hosted.shard.end_transaction(marker.producer_id, committed=marker.committed)
        self._respond_when_committed(hosted, [(future, ErrorCode.NONE)])
        return future

    def read(self, key: str, query: Callable[[ShardT], ResponseT]) -> ResponseFuture[ResponseT]:
        """Run a query on the shard of `key`; the result is returned once the records that it reflects are committed."""
        return self.write(key, lambda shard, _: CoordinatorResult(response=query(shard)))

    def read_all(self) -> ErrorCode | Iterator[ShardT]:
        """Return all shards, or COORDINATOR_LOAD_IN_PROGRESS if one of them is being loaded."""
        if any(not hosted.is_active for hosted in self._hosted.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return (hosted.shard for hosted in self._hosted.values())

    def _find(self, key: str) -> _HostedShard[ShardT] | ErrorCode:
        if not self._partition_count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._active(self.partition_of(key))

    def _active(self, index: PartitionIndex) -> _HostedShard[ShardT] | ErrorCode:
        hosted = self._hosted.get(index)
        if hosted is None:
            return ErrorCode.NOT_COORDINATOR
        return hosted if hosted.is_active else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _host(self, index: PartitionIndex) -> None:
        replica = self._replicas.find(TopicPartition(self._topic, index))
        hosted = self._hosted.get(index)
        # A shard does not outlive its leader epoch. If this node was deposed and elected again, its log may have been
        # truncated in between: a shard that stayed would answer from records that no replica has.
        if hosted is not None and hosted.replica is replica and hosted.still_leads:
            return
        if hosted is not None:
            self._unload(index)
        if isinstance(replica, ErrorCode):
            return
        timers = Timers(asyncio.get_running_loop(), lambda key: self._on_timer(index, key))
        hosted = self._hosted[index] = _HostedShard(self._make_shard(index), replica, timers)
        if replica.log.start_offset == replica.log.end_offset:
            self._activate(hosted, replica.log.end_offset)
        else:
            hosted.loading = asyncio.ensure_future(self._load(index, hosted))

    async def _load(self, index: PartitionIndex, hosted: _HostedShard[ShardT]) -> None:
        try:
            async with self._loads:
                end_offset = await load(
                    hosted.shard, hosted.replica, self._load_bytes, self._slices, executor=self._executor
                )
        except (StorageError, CorruptionError, OSError) as error:
            logger.error("coordinator partition cannot be loaded", topic=self._topic, partition=index, error=str(error))
            self._unload(index)
            return
        except Exception:
            # A shard that stayed in this state would return COORDINATOR_LOAD_IN_PROGRESS for ever.
            self._unload(index)
            raise
        hosted.loading = None
        self._activate(hosted, end_offset)

    def _activate(self, hosted: _HostedShard[ShardT], end_offset: Offset) -> None:
        hosted.end_offset = end_offset
        hosted.is_active = True
        self._run(hosted, lambda shard, now_ms: shard.on_loaded(now_ms), None)

    def _unload(self, index: PartitionIndex) -> None:
        hosted = self._hosted.pop(index)
        hosted.is_active = False
        hosted.timers.close()
        if hosted.loading is not None:
            hosted.loading.cancel()
        for future in hosted.parked.values():
            _resolve(future, ErrorCode.NOT_COORDINATOR)
        hosted.parked.clear()
        # The responses and effects that wait for the high watermark check `is_active`: the former fail with
        # NOT_COORDINATOR now instead of at their time-out, the latter are dropped.
        self._pending.wake(TopicPartition(self._topic, index))

    def _on_timer(self, index: PartitionIndex, key: TimerKey) -> None:
        # Timers are closed with their shard, so that the present one is theirs.
        hosted = self._hosted[index]
        failure = self._run(hosted, lambda shard, now_ms: shard.on_timer(key, now_ms), None)
        if failure is not None:
            # A timer fires once. If it were dropped, a dead member would keep its partitions, or a transaction that
            # has timed out would stay open, until the next fail-over.
            hosted.timers.set(Timer(key, _TIMER_RETRY_MS))

    def _run(
        self,
        hosted: _HostedShard[ShardT],
        decide: Callable[[ShardT, TimestampMs], CoordinatorResult[Any]],
        future: "asyncio.Future[Any] | None",
        *,
        token: Token | None = None,
    ) -> ErrorCode | None:
        """Run a decision and apply its result.

        Returns an error if the result was not applied (except for the first records of a divisible one), else None.
        """
        if not hosted.still_leads:
            # The replica has applied a newer image, and the shard has not yet: its state may be out of date.
            if future is not None:
                _resolve(future, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NOT_COORDINATOR
        now_ms = self._clock.now_ms()
        result = decide(hosted.shard, now_ms)
        failure = self._write(hosted, result, now_ms)
        if failure is not None:
            if future is not None:
                _resolve(future, failure)
            return failure
        # Before the completions: a decision may complete its own token.
        if token is not None and future is not None and isinstance(result.response, Parked):
            hosted.parked[token] = future
            future.add_done_callback(lambda _: hosted.parked.pop(token, None))
            future = None
        self._apply_volatile(hosted, result)
        responses = [(hosted.parked.get(item.token), item.response) for item in result.completions]
        responses.append((future, result.response))
        self._respond_when_committed(hosted, responses)
        if result.effects:
            self._run_effects_when_committed(hosted, hosted.end_offset, result.effects)
        return None

    def _write(
        self, hosted: _HostedShard[ShardT], result: CoordinatorResult[Any], now_ms: TimestampMs
    ) -> ErrorCode | None:
        """Append the records and replay them.

        The append comes first. A record that is in the state and not in the log would be lost with the next fail-over,
        together with everything that was decided because of it.
        """
        encoded = [hosted.shard.encode(record) for record in result.records]
        size_max = hosted.replica.policy.batch_size_max if result.divisible else None
        for part in _batches(encoded, size_max):
            failure = self._append(hosted, encoded[part], result.producer, now_ms)
            if failure is not None:
                return failure
            for record in result.records[part]:
                if result.producer is None:
                    hosted.shard.replay(record)
                else:
                    hosted.shard.replay_pending(record, result.producer.producer_id)
        return None

    def _apply_volatile(self, hosted: _HostedShard[ShardT], result: CoordinatorResult[Any]) -> None:
        for change in result.volatile_changes:
            hosted.shard.install(change)
        for timer in result.timers:
            hosted.timers.set(timer)

    def _append(
        self, hosted: _HostedShard[ShardT], encoded: Sequence[Encoded], producer: Producer | None, now_ms: TimestampMs
    ) -> ErrorCode | None:
        log_records = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(encoded)]
        if producer is None:
            batch, guard = build_batch(log_records, codec=self._codec), None
        else:
            producer_id, epoch, guard = producer
            batch = build_batch(
                log_records, codec=self._codec, transactional=True, producer_id=producer_id, producer_epoch=epoch
            )
        appended = hosted.replica.append_coordinated(batch, now_ms=now_ms, guard=guard)
        if appended.error_code is not ErrorCode.NONE:
            logger.warning("coordinator write failed", topic=self._topic, error=appended.error_code.name)
            return _APPEND_ERRORS.get(appended.error_code, appended.error_code)
        hosted.end_offset = appended.end_offset
        return None

    def _respond_when_committed(
        self, hosted: _HostedShard[ShardT], responses: "Sequence[tuple[asyncio.Future[Any] | None, Any]]"
    ) -> None:
        """Resolve each future with its response once the records up to `hosted.end_offset` are committed.

        Earlier, a fail-over could truncate the records: an offset whose commit was acknowledged would be lost, or a
        member would consume partitions of a generation that does not exist.
        """
        waiting = [(future, response) for future, response in responses if future is not None]

        def done(code: ErrorCode) -> None:
            for future, response in waiting:
                _resolve(future, response if code is ErrorCode.NONE else _APPEND_ERRORS[code])

        if waiting:
            self._when_committed(hosted, hosted.end_offset, done)

    def _run_effects_when_committed(
        self, hosted: _HostedShard[ShardT], end_offset: Offset, effects: Sequence[Any]
    ) -> None:
        """Run effects once the records up to `end_offset` are committed, however long that takes.

        Earlier, a fail-over could truncate the records after their effects: markers of a transaction would say that it
        is committed, while the next coordinator finds it ongoing and aborts it.
        """
        run_effect = self._on_committed
        assert run_effect is not None, "a decision has effects, but `on_committed` is None"

        def done(code: ErrorCode) -> None:
            if code is ErrorCode.REQUEST_TIMED_OUT:
                # Wait again: as long as this node leads, no other one runs the effects. A prepared transaction without
                # markers would block the readers of its partitions for ever.
                self._run_effects_when_committed(hosted, end_offset, effects)
            elif code is ErrorCode.NONE and hosted.is_active:
                for effect in effects:
                    run_effect(effect, hosted.leader_epoch)

        self._when_committed(hosted, end_offset, done)

    def _when_committed(
        self, hosted: _HostedShard[ShardT], end_offset: Offset, done: Callable[[ErrorCode], None]
    ) -> None:
        when_committed(
            self._pending,
            hosted.replica,
            end_offset,
            leader_epoch=hosted.leader_epoch,
            timeout_ms=self._commit_timeout_ms,
            is_wanted=lambda: hosted.is_active,
            done=done,
        )


def _batches(encoded: Sequence[Encoded], size_max: int | None) -> Iterator[slice]:
    """Yield the slices of the records that make up one batch each; one slice if `size_max` is None."""
    start, size = 0, HEADER_SIZE
    for position, (key, value) in enumerate(encoded):
        record_size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if size_max is not None and size + record_size > size_max and position > start:
            yield slice(start, position)
            start, size = position, HEADER_SIZE
        size += record_size
    if encoded:
        yield slice(start, len(encoded))


def _constant(result: CoordinatorResult[ResponseT], shard: object, now_ms: TimestampMs) -> CoordinatorResult[ResponseT]:
    return result


def _resolve(future: "asyncio.Future[Any]", response: Any) -> None:
    # The handler of a closed connection has cancelled the future.
    if not future.done():
        future.set_result(response)


def abs_hash(key: str) -> int:
    """Return the absolute value of Java's String.hashCode; 0 for the minimum, which has no positive counterpart."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)
