"""A cluster of fake brokers whose partitions change their leaders, for tests that one real broker cannot do.

Each partition has one log, which all brokers share. A broker that no longer leads a partition, or does not know yet
that it leads, returns an error; a broker with an old view returns old metadata. Responses get lost at random. Appends
follow Kafka's rules for idempotent producers, fetches its rules for leader epochs (KIP-320).
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.batch import read_header
from rookery.records.record import Record, build_batch, decode_records
from tests.client.fake_broker import HANG_UP, FakeBroker, topic_id
from tests.client.produce.support import producer_ids

TOPIC = "t"
_REMEMBERED_BATCHES = 5
# The errors of a leader that is about to lose its partitions.
_TROUBLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Leader(NamedTuple):
    node: int
    epoch: int


@dataclass
class _Producer:
    epoch: int
    next_sequence: int
    # (base sequence, offset) of the last batches.
    batches: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class PartitionLog:
    """The records, each with the epoch of the leader that wrote it, and the state of producers."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self._producers: dict[int, _Producer] = {}

    @property
    def values(self) -> list[bytes]:
        return [value for _, value in self.records]

    def append(self, batch: bytes, epoch: int) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch == known.epoch:
            for base_sequence, offset in known.batches:
                if base_sequence == header.base_sequence:
                    return ErrorCode.NONE, offset
            if header.base_sequence != known.next_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif known is not None and header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        elif known is not None and header.base_sequence != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        else:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch, 0)
        offset = len(self.records)
        self.records += [(epoch, record.value or b"") for record in decode_records(batch)]
        known.next_sequence = header.base_sequence + header.record_count
        known.batches.append((header.base_sequence, offset))
        return ErrorCode.NONE, offset

    def write(self, epoch: int, values: Sequence[bytes]) -> None:
        self.records += [(epoch, value) for value in values]

    def read(self, offset: int, count_max: int) -> bytes:
        """Return one batch, which has records of one epoch."""
        some = self.records[offset : offset + count_max]
        same = [value for epoch, value in some if epoch == some[0][0]]
        if not same:
            return b""
        records = [Record(offset + index, 1_700_000_000_000, None, value) for index, value in enumerate(same)]
        return bytes(build_batch(records, base_offset=offset, leader_epoch=some[0][0]))

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch up to this one, and the offset after its last record."""
        known = [own for own, _ in self.records if own <= epoch]
        return (known[-1], len(known)) if known else (-1, -1)


class MovingCluster:
    """The cluster, as an async context manager. Its brokers are the nodes 0, 1, ...

    `has_hints`: errors name the leader (KIP-951).
    """

    def __init__(
        self,
        randomness: Random,
        *,
        nodes: int = 2,
        partitions: int = 3,
        has_hints: bool = True,
        trouble: float = 0.1,
        fetch_count_max: int = 5,
    ) -> None:
        self.logs = [PartitionLog() for _ in range(partitions)]
        self.leaders = [Leader(index % nodes, 0) for index in range(partitions)]
        self.rejected_count = 0
        # The probability of faults that are independent of a move.
        self.trouble = trouble
        self._randomness = randomness
        self._has_hints = has_hints
        self._fetch_count_max = fetch_count_max
        # The leaders as each node sees them.
        self._views = [list(self.leaders) for _ in range(nodes)]
        self.brokers = [FakeBroker(self._handlers(node)) for node in range(nodes)]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for broker in self.brokers:
            await self._stack.enter_async_context(broker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(broker.address) for broker in self.brokers)

    def move(self, partition: int, *, keep: int | None = None) -> None:
        """Make another node the leader; with `keep` it has only the first `keep` records, and the others are lost."""
        leader = self.leaders[partition]
        node = self._randomness.choice([node for node in range(len(self.brokers)) if node != leader.node])
        self.leaders[partition] = Leader(node, leader.epoch + 1)
        if keep is not None:
            del self.logs[partition].records[keep:]
        # Some of the other nodes learn of it now, the others later.
        for view in self._views:
            if self._randomness.random() < 0.5:
                view[partition] = self.leaders[partition]
        self._views[node][partition] = self.leaders[partition]

    async def keep_moving(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(self._randomness.random() * pause_s)
            self.move(self._randomness.randrange(len(self.leaders)))
            await asyncio.sleep(self._randomness.random() * pause_s / 10)
            self.update_views()

    def update_views(self) -> None:
        for view in self._views:
            view[:] = self.leaders

    def _handlers(self, node: int) -> dict[ApiKey, Any]:
        return {
            ApiKey.METADATA: lambda version, request: self._metadata(node, request),
            ApiKey.INIT_PRODUCER_ID: producer_ids(),
            ApiKey.PRODUCE: lambda version, request: self._produce(node, request),
            ApiKey.FETCH: lambda version, request: self._fetch(node, request),
            ApiKey.LIST_OFFSETS: lambda version, request: self._list_offsets(node, request),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda version, request: self._epoch_ends(node, request),
        }

    def _is_trouble(self) -> bool:
        return self._randomness.random() < self.trouble

    def _error_code(self, node: int, partition: int, epoch: int = -1) -> ErrorCode:
        """Return the error of this node for a client that assumes this leader epoch."""
        leader = self.leaders[partition]
        code = ErrorCode.NONE
        if leader.node != node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif 0 <= epoch < leader.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif epoch > leader.epoch:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        self.rejected_count += code is not ErrorCode.NONE
        return code

    def _hint(self, node: int, partition: int, code: ErrorCode) -> Message:
        seen = self._views[node][partition]
        if not self._has_hints or code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return Message(leader_id=-1, leader_epoch=-1)
        return Message(leader_id=seen.node, leader_epoch=seen.epoch)

    def _endpoints(self) -> list[Message]:
        return [
            Message(node_id=node, host=broker.address.host, port=broker.address.port, rack=None)
            for node, broker in enumerate(self.brokers)
        ]

    def _metadata(self, node: int, request: Message) -> Message:
        partitions = [
            Message(
                error_code=0,
                partition_index=index,
                leader_id=seen.node,
                leader_epoch=seen.epoch,
                replica_nodes=list(range(len(self.brokers))),
                isr_nodes=list(range(len(self.brokers))),
                offline_replicas=[],
            )
            for index, seen in enumerate(self._views[node])
        ]
        topic = Message(
            error_code=0,
            name=TOPIC,
            topic_id=topic_id(TOPIC),
            is_internal=False,
            partitions=partitions,
            topic_authorized_operations=-1,
        )
        return Message(
            throttle_time_ms=0,
            brokers=self._endpoints(),
            cluster_id="moving",
            controller_id=0,
            topics=[topic] if request.topics is None or request.topics else [],
            cluster_authorized_operations=-1,
            error_code=0,
        )

    def _produce(self, node: int, request: Message) -> Message:
        """Append to each partition; the response may get lost."""
        if self._is_trouble():
            return HANG_UP
        rows = [self._append(node, row) for topic in request.topic_data for row in topic.partition_data]
        if self._is_trouble():
            return HANG_UP
        topic = Message(name=TOPIC, topic_id=topic_id(TOPIC), partition_responses=rows)
        return Message(responses=[topic], throttle_time_ms=0, node_endpoints=self._endpoints())

    def _append(self, node: int, row: Message) -> Message:
        code, offset = self._error_code(node, row.index), -1
        if code is ErrorCode.NONE and self._is_trouble():
            code = self._randomness.choice(_TROUBLE)
        if code is ErrorCode.NONE:
            code, offset = self.logs[row.index].append(bytes(row.records), self.leaders[row.index].epoch)
        return Message(
            index=row.index,
            error_code=code,
            base_offset=offset,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[],
            error_message=None,
            current_leader=self._hint(node, row.index, code),
        )

    def _fetch(self, node: int, request: Message) -> Message:
        """Fetch without sessions and without waiting; the response may get lost."""
        if self._is_trouble():
            return HANG_UP
        rows = [self._read(node, row) for topic in request.topics for row in topic.partitions]
        topic = Message(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=rows)
        return Message(
            throttle_time_ms=0, error_code=0, session_id=0, responses=[topic], node_endpoints=self._endpoints()
        )

    def _read(self, node: int, row: Message) -> Message:
        log, offset = self.logs[row.partition], row.fetch_offset
        code = self._error_code(node, row.partition, row.current_leader_epoch)
        if code is ErrorCode.NONE and offset > len(log.records):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        is_good = code is ErrorCode.NONE
        return Message(
            partition_index=row.partition,
            error_code=code,
            high_watermark=len(log.records) if is_good else -1,
            last_stable_offset=len(log.records) if is_good else -1,
            log_start_offset=0 if is_good else -1,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=log.read(offset, self._randomness.randint(1, self._fetch_count_max)) if is_good else b"",
            current_leader=self._hint(node, row.partition, code),
        )

    def _list_offsets(self, node: int, request: Message) -> Message:
        def respond(row: Message) -> Message:
            log = self.logs[row.partition_index]
            code = self._error_code(node, row.partition_index, row.get("current_leader_epoch", -1))
            offset = 0 if row.timestamp == -2 else len(log.records)
            return Message(
                partition_index=row.partition_index,
                error_code=code,
                timestamp=-1,
                offset=offset if code is ErrorCode.NONE else -1,
                leader_epoch=log.records[0][0] if row.timestamp == -2 and log.records else -1,
            )

        return Message(throttle_time_ms=0, topics=[Message(name=TOPIC, partitions=list(map(respond, _rows(request))))])

    def _epoch_ends(self, node: int, request: Message) -> Message:
        def respond(row: Message) -> Message:
            code = self._error_code(node, row.partition, row.current_leader_epoch)
            epoch, end = self.logs[row.partition].end_of(row.leader_epoch) if code is ErrorCode.NONE else (-1, -1)
            return Message(error_code=code, partition=row.partition, leader_epoch=epoch, end_offset=end)

        return Message(throttle_time_ms=0, topics=[Message(topic=TOPIC, partitions=list(map(respond, _rows(request))))])


def _rows(request: Message) -> Iterator[Any]:
    return (row for topic in request.topics for row in topic.partitions)
