"""Decide, append, replay, answer: the shell around the coordinators' cores.

A coordinator keeps its state in the partitions of an internal compacted topic. Each partition that this node leads is a
shard: the topic's log, replayed into a pure state machine. `write` runs a decision on the shard of a key:

1. `decide(shard, now_ms)` reads the shard and returns a `Decision`; it changes nothing.
2. Its records are appended as one batch, as a leader does. If that fails, the shard is as it was before. (Clearing up
   may need more than a batch can hold, and is `divisible`.)
3. They are replayed into the shard, volatile changes are installed, timers set; the next decision sees all of it.
4. The response, and the responses that the decision completed, leave when the high watermark has passed the records.
   Only then are the decision's effects handed on; they are forgotten with the shard, and its next leader has them anew.

On a single node all of this happens within the call, and the future that `write` returns is done already. A decision
without records waits as well until what it saw is committed. While a shard is loaded its requests are answered with
COORDINATOR_LOAD_IN_PROGRESS; what this node does not lead with NOT_COORDINATOR; and COORDINATOR_NOT_AVAILABLE before
the topic exists.

Records may be part of a producer's transaction, which `end_transaction` ends with a marker in the same log.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import structlog

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
from rookery.coordinators.result import CoordinatorResult as Decision
from rookery.coordinators.result import Parked, Producer, Timer, TimerKey, Token
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


# A timer's decision that could not be written is tried again.
_TIMER_RETRY_MS = 1000

# More than a record takes in a batch besides its key and value.
_RECORD_OVERHEAD_BYTES = 32

Encoded: TypeAlias = tuple[bytes, bytes | None]


class Shard(Protocol):
    """The pure state of one partition. `encode` and `decode` know the formats of its records."""

    def encode(self, record: Any) -> Encoded: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """The record, or None for one of a kind that is not known; CorruptionError if it is malformed."""
        ...

    def replay(self, record: Any) -> None: ...

    def replay_pending(self, record: Any, producer_id: ProducerId) -> None:
        """As `replay`, but it counts only if the producer's transaction is committed."""
        ...

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None: ...

    def install(self, change: Any) -> None: ...

    def on_loaded(self, now_ms: TimestampMs) -> Decision[None]:
        """Called once, when the log has been replayed."""
        ...

    def on_timer(self, key: TimerKey, now_ms: TimestampMs) -> Decision[None]: ...


class Replicas(Protocol):
    """What the runtime needs of the replica manager."""

    def find(self, partition: TopicPartition) -> Replica | ErrorCode: ...


ShardT = TypeVar("ShardT", bound=Shard)
ResponseT = TypeVar("ResponseT")


class _Hosted(Generic[ShardT]):
    """A shard at work, or one that is being loaded."""

    def __init__(self, shard: ShardT, replica: Replica, timers: Timers) -> None:
        self.shard = shard
        self.replica = replica
        # All records of the shard's state were read, or appended, in this epoch.
        self.leader_epoch = replica.state.leader_epoch
        self.timers = timers
        self.loading: asyncio.Task[None] | None = None
        self.is_active = False
        # The end of the newest records that are in the shard's state.
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
    ) -> None:
        """`on_committed` gets the effects of decisions, and the leader epoch under which they were committed."""
        self._topic = topic
        self._node_id = node_id
        self._make_shard = make_shard
        self._replicas = replicas
        self._pending = pending
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._load_bytes = load_bytes
        self._codec = codec
        self._on_committed = on_committed
        self._partition_count = 0
        self._hosted: dict[PartitionIndex, _Hosted[ShardT]] = {}
        self._tokens = count(1)
        # Fifty partitions may be loaded at once: one of them goes on per turn of the event loop.
        self._slices = Slices()

    def new_token(self) -> Token:
        """A name for a request that may have to wait."""
        return next(self._tokens)

    @property
    def partition_count(self) -> int:
        """0 while the topic does not exist."""
        return self._partition_count

    def partition_of(self, key: str) -> PartitionIndex:
        """Where Kafka puts a key too, so that its tools look in the right place."""
        return abs_hash(key) % self._partition_count

    def leads(self, key: str, leader_epoch: LeaderEpoch) -> bool:
        """Whether the shard of `key` is active here, in the leader epoch `leader_epoch`."""
        hosted = self._find(key)
        return not isinstance(hosted, ErrorCode) and hosted.leader_epoch == leader_epoch and hosted.still_leads

    def apply(self, image: ClusterImage) -> None:
        """Follow the image: load what this node leads now, let go of what it does not lead any more."""
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
        decide: Callable[[ShardT, TimestampMs], Decision[ResponseT]],
        *,
        token: Token | None = None,
    ) -> "asyncio.Future[ResponseT | ErrorCode]":
        """Run a decision on the shard of `key`; `token` is what the decision parks its request under."""
        found = self._find(key)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(found, ErrorCode):
            future.set_result(found)
        else:
            self._run(found, decide, future, token=token)
        return future

    def write_all(self, decide: Callable[[ShardT, TimestampMs], Decision[None]]) -> None:
        """Run a decision that nobody waits for on every shard."""
        for hosted in list(self._hosted.values()):
            if hosted.is_active:
                self._run(hosted, decide, None)

    def guard(self, key: str, producer_id: ProducerId) -> object | ErrorCode:
        """To be taken before a producer's transaction is verified, and given with its records.

        They are refused if the transaction ends in between.
        """
        hosted = self._find(key)
        return hosted if isinstance(hosted, ErrorCode) else hosted.replica.guard(producer_id)

    def end_transaction(self, index: PartitionIndex, marker: Marker) -> "asyncio.Future[ErrorCode]":
        """End a producer's transaction on one partition of the topic; answered when the marker is committed."""
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
        hosted.end_offset = appended.end_offset
        hosted.shard.end_transaction(marker.producer_id, committed=marker.committed)
        self._answer_when_committed(hosted, [(future, ErrorCode.NONE)])
        return future

    def read(self, key: str, query: Callable[[ShardT], ResponseT]) -> "asyncio.Future[ResponseT | ErrorCode]":
        return self.write(key, lambda shard, _: Decision(response=query(shard)))

    def read_all(self) -> ErrorCode | Iterator[ShardT]:
        """Every shard; or that some are being loaded."""
        if any(not hosted.is_active for hosted in self._hosted.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return (hosted.shard for hosted in self._hosted.values())

    def _find(self, key: str) -> _Hosted[ShardT] | ErrorCode:
        if not self._partition_count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._active(self.partition_of(key))

    def _active(self, index: PartitionIndex) -> _Hosted[ShardT] | ErrorCode:
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
        hosted = self._hosted[index] = _Hosted(self._make_shard(index), replica, timers)
        if replica.log.start_offset == replica.log.end_offset:
            self._activate(hosted, replica.log.end_offset)
        else:
            hosted.loading = asyncio.ensure_future(self._load(index, hosted))

    async def _load(self, index: PartitionIndex, hosted: _Hosted[ShardT]) -> None:
        try:
            end_offset = await load(hosted.shard, hosted.replica, self._load_bytes, self._slices)
        except (StorageError, CorruptionError, OSError) as error:
            logger.error("coordinator partition cannot be loaded", topic=self._topic, partition=index, error=str(error))
            self._unload(index)
            return
        except Exception:
            # Otherwise its clients would be told for ever that it is being loaded.
            self._unload(index)
            raise
        hosted.loading = None
        self._activate(hosted, end_offset)

    def _activate(self, hosted: _Hosted[ShardT], end_offset: Offset) -> None:
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
        # Those who wait for the high watermark look, and see that it does not matter any more.
        self._pending.wake(TopicPartition(self._topic, index))

    def _on_timer(self, index: PartitionIndex, key: TimerKey) -> None:
        # Timers end with their shard, so that the one that is there now is theirs.
        hosted = self._hosted[index]
        failure = self._run(hosted, lambda shard, now_ms: shard.on_timer(key, now_ms), None)
        if failure is not None:
            hosted.timers.set(Timer(key, _TIMER_RETRY_MS))

    def _run(
        self,
        hosted: _Hosted[ShardT],
        decide: Callable[[ShardT, TimestampMs], Decision[Any]],
        future: "asyncio.Future[Any] | None",
        *,
        token: Token | None = None,
    ) -> ErrorCode | None:
        """Why the decision was not carried out, if it was not."""
        if not hosted.still_leads:
            # The replica follows a newer image already, the shard does not yet: what it knows may be out of date.
            if future is not None:
                _resolve(future, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NOT_COORDINATOR
        now_ms = self._clock.now_ms()
        decision = decide(hosted.shard, now_ms)
        failure = self._write(hosted, decision, now_ms)
        if failure is not None:
            if future is not None:
                _resolve(future, failure)
            return failure
        if token is not None and future is not None and isinstance(decision.response, Parked):
            hosted.parked[token] = future
            future.add_done_callback(lambda _: hosted.parked.pop(token, None))
            future = None
        self._carry_out(hosted, decision)
        answers = [(hosted.parked.get(item.token), item.response) for item in decision.completions]
        answers.append((future, decision.response))
        self._answer_when_committed(hosted, answers)
        if decision.effects:
            self._effect_when_committed(hosted, hosted.end_offset, decision.effects)
        return None

    def _write(self, hosted: _Hosted[ShardT], decision: Decision[Any], now_ms: TimestampMs) -> ErrorCode | None:
        """Append the records and replay them."""
        encoded = [hosted.shard.encode(record) for record in decision.records]
        size_max = hosted.replica.policy.batch_size_max if decision.divisible else None
        for part in _batches(encoded, size_max):
            failure = self._append(hosted, encoded[part], decision.producer, now_ms)
            if failure is not None:
                return failure
            for record in decision.records[part]:
                if decision.producer is None:
                    hosted.shard.replay(record)
                else:
                    hosted.shard.replay_pending(record, decision.producer.producer_id)
        return None

    def _carry_out(self, hosted: _Hosted[ShardT], decision: Decision[Any]) -> None:
        for change in decision.volatile_changes:
            hosted.shard.install(change)
        for timer in decision.timers:
            hosted.timers.set(timer)

    def _append(
        self, hosted: _Hosted[ShardT], encoded: Sequence[Encoded], producer: Producer | None, now_ms: TimestampMs
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

    def _answer_when_committed(
        self, hosted: _Hosted[ShardT], answers: "Sequence[tuple[asyncio.Future[Any] | None, Any]]"
    ) -> None:
        waiting = [(future, response) for future, response in answers if future is not None]

        def done(code: ErrorCode) -> None:
            for future, response in waiting:
                _resolve(future, response if code is ErrorCode.NONE else _APPEND_ERRORS[code])

        if waiting:
            self._when_committed(hosted, hosted.end_offset, done)

    def _effect_when_committed(self, hosted: _Hosted[ShardT], end_offset: Offset, effects: Sequence[Any]) -> None:
        """However long that takes: nobody else would do it while this node leads."""
        carry_out = self._on_committed
        assert carry_out is not None, "effects, and nobody to carry them out"

        def done(code: ErrorCode) -> None:
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self._effect_when_committed(hosted, end_offset, effects)
            elif code is ErrorCode.NONE and hosted.is_active:
                for effect in effects:
                    carry_out(effect, hosted.leader_epoch)

        self._when_committed(hosted, end_offset, done)

    def _when_committed(self, hosted: _Hosted[ShardT], end_offset: Offset, done: Callable[[ErrorCode], None]) -> None:
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
    """Where to cut the records into batches; all are one without a limit."""
    start, size = 0, HEADER_SIZE
    for position, (key, value) in enumerate(encoded):
        record_size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if size_max is not None and size + record_size > size_max and position > start:
            yield slice(start, position)
            start, size = position, HEADER_SIZE
        size += record_size
    if encoded:
        yield slice(start, len(encoded))


def _resolve(future: "asyncio.Future[Any]", response: Any) -> None:
    # A connection that was lost has cancelled what it waited for.
    if not future.done():
        future.set_result(response)


def abs_hash(key: str) -> int:
    """The absolute value of Java's String.hashCode, with 0 for the one that has none."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)
