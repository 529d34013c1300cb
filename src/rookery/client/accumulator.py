"""Records that wait to be sent, grouped per partition, and the sequence numbers of an idempotent producer.

Pure: no socket, no clock. `producer` adds records, takes batches, and reports what became of them.

There is no linger: a partition is ready as soon as it has a record and no batch under way. While a batch is under
way the partition is held, later records gather, and the next batch is as full as they make it. One batch at a time
per partition keeps the order under retries and makes a sequence number final once it is given.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from rookery.base.types import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from rookery.records.batch import HEADER_SIZE, NO_SEQUENCE
from rookery.records.record import Record

Token = TypeVar("Token")

_SEQUENCE_MASK = 0x7FFFFFFF
# The varints around a record's key and value, at their usual size; batches need only be about as large as asked.
_RECORD_OVERHEAD_BYTES = 21
# Far below what brokers accept (socket.request.max.bytes, 100 MB), however many partitions are ready at once.
_REQUEST_SIZE_BYTES_MAX = 8 * 1024 * 1024


class ProducerIdentity(NamedTuple):
    """What InitProducerId gave us."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, -1)


def estimated_size(record: Record) -> int:
    """About how many bytes a record takes in a batch, before compression."""
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


@dataclass(slots=True)
class PendingBatch(Generic[Token]):
    """Records of one partition that travel together, each with its sender's token, and their sequence number."""

    partition: TopicPartition
    records: list[Record]
    tokens: list[Token]
    size_bytes: int
    identity: ProducerIdentity = NO_IDENTITY
    base_sequence: int = NO_SEQUENCE


@dataclass(slots=True)
class _Queue(Generic[Token]):
    waiting: deque[tuple[Record, Token, int]] = field(default_factory=deque)
    in_flight: bool = False


class Accumulator(Generic[Token]):
    """Invariant: `size_bytes` counts every record that was added and not yet completed."""

    def __init__(self, batch_size_bytes_max: int) -> None:
        self._batch_size_bytes_max = batch_size_bytes_max
        self._queues: dict[TopicPartition, _Queue[Token]] = {}
        self.size_bytes = 0

    def add(self, partition: TopicPartition, record: Record, token: Token) -> int:
        """About how many bytes the record takes."""
        size_bytes = estimated_size(record)
        self._queues.setdefault(partition, _Queue()).waiting.append((record, token, size_bytes))
        self.size_bytes += size_bytes
        return size_bytes

    def take_ready(self) -> list[PendingBatch[Token]]:
        """A request's worth of batches, one each of partitions that have records and no batch under way.

        These partitions are held from now. Nothing is ready when the list is empty.
        """
        batches: list[PendingBatch[Token]] = []
        size_bytes = 0
        for partition, queue in self._queues.items():
            if queue.waiting and not queue.in_flight and size_bytes < _REQUEST_SIZE_BYTES_MAX:
                batches.append(self._take(partition, queue))
                size_bytes += batches[-1].size_bytes
        return batches

    def complete(self, batch: PendingBatch[Token]) -> None:
        """The batch was acknowledged or given up; its partition may send again."""
        queue = self._queues[batch.partition]
        queue.in_flight = False
        self.size_bytes -= batch.size_bytes
        if not queue.waiting:
            del self._queues[batch.partition]

    def drop_waiting(self) -> list[Token]:
        """Forget the records that are not under way; their tokens."""
        dropped = [entry for queue in self._queues.values() for entry in queue.waiting]
        self.size_bytes -= sum(size_bytes for _, _, size_bytes in dropped)
        self._queues = {tp: _Queue(in_flight=True) for tp, queue in self._queues.items() if queue.in_flight}
        return [token for _, token, _ in dropped]

    @property
    def is_empty(self) -> bool:
        return not self._queues

    def _take(self, partition: TopicPartition, queue: _Queue[Token]) -> PendingBatch[Token]:
        batch: PendingBatch[Token] = PendingBatch(partition, [], [], 0)
        room_bytes = self._batch_size_bytes_max - HEADER_SIZE
        while queue.waiting and (not batch.records or batch.size_bytes + queue.waiting[0][2] <= room_bytes):
            record, token, size_bytes = queue.waiting.popleft()
            batch.records.append(record)
            batch.tokens.append(token)
            batch.size_bytes += size_bytes
        queue.in_flight = True
        return batch


class Sequences:
    """The next sequence number of each partition, under one producer identity.

    After a batch whose fate is unknown, numbers could repeat or leave a gap; `reset` then takes a new identity, under
    which every partition starts again at zero.
    """

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self._next: dict[TopicPartition, int] = {}

    def reset(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._next.clear()

    def stamp(self, batches: Iterable[PendingBatch[Token]]) -> None:
        if self.identity == NO_IDENTITY:
            return
        for batch in batches:
            sequence = self._next.get(batch.partition, 0)
            batch.identity, batch.base_sequence = self.identity, sequence
            self._next[batch.partition] = (sequence + len(batch.records)) & _SEQUENCE_MASK
