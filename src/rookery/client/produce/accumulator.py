"""The producer's buffer: records that wait, batches on the wire, their memory, and the order in which they are sent.

Theory of operation. Every partition has a queue. Records are appended to its last batch while that is open. A batch is
*ready* when it is full, when linger has passed since its first record, or when the accumulator is urgent: a flush or a
close waits, or senders wait for memory. `drain` takes ready batches, at most one of a partition per request, and counts
the requests in flight of each node. A drained batch is on the wire until one of these calls reports its result:

    complete   it was written
    retry      another attempt, later; it returns to the front of its queue
    split      it was too large: two halves replace it
    fail       it was rejected, or its time-out has expired

Order. Without idempotence, a partition keeps its order with one request in flight, and may lose it with more: Kafka's
rule. With idempotence, sequence numbers (`sequences`) keep the order:
- A batch with numbers returns to its position by number, and only the lowest unsettled one is sent again. As long as
  that one is not settled, no more than five batches from it on, including the written ones, have numbers: the leader
  remembers five, and would not recognize an older one that is repeated.
- A batch that the leader rejects as out of order although it is the lowest one, and that was not written, proves a gap:
  the queue restarts. If an attempt of it may have been written, it fails, because it cannot be found out.
- A batch that is rejected for good leaves a gap: the queue restarts.
- A leader without state for a producer accepts any first number, so the first batch under new numbers is sent alone.
- A batch that is dropped although it may have been written leaves a doubt: no new batch gets numbers until the batches
  after it are settled. If one of them is written, there was no gap. If one is out of order, or there are none, the
  queue restarts.
A restart waits until no batch of the queue is on the wire. The batches that have numbers are then known to be unwritten
and get new ones. A transaction does not restart: a gap fails the transaction, and its next epoch starts at zero.

Invariant: `free_bytes` plus the reservations of all batches that are waiting or on the wire is the size of the buffer.

Pure: times are arguments. `producer` adds records and waits for memory, `sender` drains and reports results.
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Generic, NamedTuple

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.client.packed_batches import PackedBatch
from rookery.client.produce.batches import Batch, BatchGroup, Token
from rookery.client.produce.sequences import (
    NO_IDENTITY,
    NUMBERED_BATCHES_MAX,
    SEQUENCE_MASK,
    PartitionSequence,
    ProducerIdentity,
)
from rookery.records.batch import HEADER_SIZE, NO_SEQUENCE

# Memory is granted to an open batch in steps of this size. `producer` yields to other tasks at each step, so it is also
# the number of bytes that one task may append without yielding.
GRANT_BYTES = 16 * 1024
_HALF_OF_SEQUENCES = 1 << 30


@value_class(kw_only=True)
class AccumulatorLimits:
    batch_size_bytes: int
    buffer_size_bytes: int
    request_size_bytes_max: int
    linger_s: float
    delivery_timeout_s: float
    in_flight_max: int
    idempotent: bool
    transactional: bool = False


class PartitionQueue(Generic[Token]):
    """The batches of one partition.

    `waiting` is in the order of sending; `numbered` holds the unsettled batches with sequence numbers, in their order.
    `in_doubt`: a dropped batch may have been written. `must_restart`: the numbers have a gap.
    """

    __slots__ = (
        "appended_bytes",
        "generation",
        "in_doubt",
        "is_established",
        "must_restart",
        "numbered",
        "on_wire_count",
        "open_batch",
        "partition",
        "sequence",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch[Token]] = deque()
        self.open_batch: Batch[Token] | None = None
        self.numbered: list[Batch[Token]] = []
        self.on_wire_count = 0
        self.sequence = PartitionSequence()
        self.generation = 0
        self.must_restart = False
        self.in_doubt = False
        # The leader has written a batch under the current numbers.
        self.is_established = False
        # The bytes of closed batches, for partitioners that count bytes.
        self.appended_bytes = 0

    @property
    def total_bytes(self) -> int:
        """The number of bytes that were appended since the queue was created."""
        return self.appended_bytes + (0 if self.open_batch is None else self.open_batch.used_bytes)

    @property
    def numbered_span(self) -> int:
        """The number of batches from the lowest unsettled one on that have numbers, including the written ones."""
        return sum([1 + batch.written_after for batch in self.numbered])

    def settle_numbers(self, batch: Batch[Token], *, is_written: bool) -> None:
        """Remove a batch from `numbered`. A written one still counts for the unsettled batch before it.

        The leader remembers only five batches: without the count, a sixth would be sent after an unsettled one, and
        that one, sent again, would not be recognized as a duplicate.
        """
        position = self.numbered.index(batch)
        del self.numbered[position]
        if position:
            self.numbered[position - 1].written_after += batch.written_after + is_written


class Drained(NamedTuple, Generic[Token]):
    """The requests to send now, and the time of the next `drain`.

    `next_s` is infinite if only a call can make a batch ready. `has_more` says that another call may return more now.
    """

    requests: list[tuple[NodeId, list[Batch[Token]]]]
    leaderless: set[TopicName]
    next_s: float
    has_more: bool


class Accumulator(Generic[Token]):
    def __init__(self, limits: AccumulatorLimits) -> None:
        self._limits = limits
        self._queues: dict[TopicPartition, PartitionQueue[Token]] = {}
        # The queues with waiting batches; the first ones are drained first.
        self._active: dict[TopicPartition, PartitionQueue[Token]] = {}
        self._on_wire: dict[int, Batch[Token]] = {}
        self._in_flight: dict[NodeId, int] = {}
        self._throttled_until_s: dict[NodeId, float] = {}
        self._identity = NO_IDENTITY
        self._generation = 0
        self._next_expiry_s = inf
        self.free_bytes = limits.buffer_size_bytes
        self.in_flight_count = 0
        self.unsettled_count = 0
        self.last_ordinal = 0
        # A flush, a close or a sender without memory waits: batches do not linger.
        self.is_urgent = False

    # Adding.

    def queue(self, partition: TopicPartition) -> PartitionQueue[Token]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def grant(self, queue: PartitionQueue[Token], size_bytes: int, now_s: float) -> Batch[Token] | None:
        """Return an open batch with memory for a record of `size_bytes`, or None if the buffer is full."""
        batch, batch_max = queue.open_batch, self._limits.batch_size_bytes - HEADER_SIZE
        if batch is not None:
            needed_bytes = size_bytes - batch.free_bytes
            if needed_bytes <= 0:
                return batch
            left_bytes = batch_max - batch.reserved_bytes
            if needed_bytes <= left_bytes:
                if needed_bytes > self.free_bytes:
                    return None
                step_bytes = min(self.free_bytes, left_bytes, max(needed_bytes, GRANT_BYTES))
                self.free_bytes -= step_bytes
                batch.reserved_bytes += step_bytes
                batch.free_bytes += step_bytes
                return batch
            self._close(queue)
        if size_bytes > self.free_bytes:
            return None
        return self._open(queue, min(self.free_bytes, max(size_bytes, min(batch_max, GRANT_BYTES))), now_s)

    def add_packed(
        self, partition: TopicPartition, packed: PackedBatch, group: BatchGroup, *, now_s: float
    ) -> Batch[Token] | None:
        """Queue a packed batch after the records that were appended before it. Return None if the buffer is full."""
        size_bytes = len(packed.payload)
        if size_bytes > self.free_bytes:
            return None
        queue = self.queue(partition)
        self._close(queue)
        batch = self._open(queue, size_bytes, now_s)
        batch.set_packed(packed, group)
        queue.appended_bytes += size_bytes
        queue.open_batch = None
        return batch

    def _open(self, queue: PartitionQueue[Token], reserved_bytes: int, now_s: float) -> Batch[Token]:
        self.free_bytes -= reserved_bytes
        self.last_ordinal += 1
        batch: Batch[Token] = Batch(queue.partition, self.last_ordinal, now_s, reserved_bytes)
        queue.waiting.append(batch)
        queue.open_batch = batch
        self._active[queue.partition] = queue
        self.unsettled_count += 1
        if self._next_expiry_s == inf:
            self._next_expiry_s = now_s + self._limits.delivery_timeout_s
        return batch

    def _close(self, queue: PartitionQueue[Token]) -> None:
        batch = queue.open_batch
        if batch is not None:
            self.free_bytes += batch.close()
            queue.appended_bytes += batch.size_bytes
            queue.open_batch = None

    # Identity.

    @property
    def needs_identity(self) -> bool:
        return self._limits.idempotent and not self._identity.is_known

    @property
    def has_waiting(self) -> bool:
        return bool(self._active)

    def set_identity(self, identity: ProducerIdentity) -> None:
        """Set a new identity. A partition uses it, from sequence number zero, once none of its batches has old numbers.

        A batch keeps its identity while it may have been written: under a new one, the leader would not recognize a
        repeated batch, and would write it twice.
        """
        self._identity = identity
        self._generation += 1

    # Draining.

    def drain(self, now_s: float, leader_of: Callable[[TopicPartition], NodeId | None]) -> Drained[Token]:
        """Take ready batches for at most one request per node, with at most one batch per partition."""
        requests: dict[NodeId, list[Batch[Token]]] = {}
        sizes: dict[NodeId, int] = {}
        leaderless: set[TopicName] = set()
        next_s, has_more = self._next_expiry_s, False
        for queue in list(self._active.values()):
            ready_s = self._ready_s(queue)
            if ready_s > now_s:
                next_s = min(next_s, ready_s)
                continue
            if not self._may_send(queue):
                continue
            node = leader_of(queue.partition)
            if node is None:
                leaderless.add(queue.partition.topic)
                continue
            if self._in_flight.get(node, 0) >= self._limits.in_flight_max:
                continue
            size_bytes = sizes.get(node, 0) + queue.waiting[0].wire_bytes
            if node in requests and size_bytes > self._limits.request_size_bytes_max:
                has_more = True
                continue
            throttled_s = self._throttled_until_s.get(node, -inf)
            if throttled_s > now_s:
                next_s = min(next_s, throttled_s)
                continue
            sizes[node] = size_bytes
            requests.setdefault(node, []).append(self._take(queue))
            if queue.waiting:
                ready_s = self._ready_s(queue)
                if ready_s <= now_s:
                    has_more = True
                else:
                    next_s = min(next_s, ready_s)
        for node in requests:
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            self.in_flight_count += 1
        return Drained(list(requests.items()), leaderless, next_s, has_more)

    def _ready_s(self, queue: PartitionQueue[Token]) -> float:
        first = queue.waiting[0]
        if first.attempts:
            return first.retry_at_s
        if self.is_urgent or len(queue.waiting) > 1 or not first.is_open:
            return -inf
        return first.created_s + self._limits.linger_s

    def _may_send(self, queue: PartitionQueue[Token]) -> bool:
        """Whether the first waiting batch may be sent without endangering the order of the partition."""
        # The limit of requests is per node: after a change of leader, a second batch could overtake the first.
        if self._limits.in_flight_max == 1 and queue.on_wire_count:
            return False
        if not self._limits.idempotent:
            return True
        if queue.generation != self._generation and not queue.numbered:
            self._start_identity(queue, self._identity)
        if queue.must_restart and not self._restart(queue):
            return False
        first = queue.waiting[0]
        if first.is_numbered:
            # A retry must wait for the unsettled batches before it: the leader would reject it as out of order.
            return queue.numbered[0] is first
        # New numbers wait while a doubt is open, because the next number that the leader expects is not known; while
        # the leader could forget an unsettled batch; and until the leader has written the first batch: without state it
        # accepts any number, so that it would write the second batch if the first one is lost.
        if queue.in_doubt or queue.numbered_span >= (NUMBERED_BATCHES_MAX if queue.is_established else 1):
            return False
        return queue.generation == self._generation and queue.sequence.identity.is_known

    def _take(self, queue: PartitionQueue[Token]) -> Batch[Token]:
        batch = queue.waiting[0]
        if batch is queue.open_batch:
            self._close(queue)
        queue.waiting.popleft()
        if self._limits.idempotent and not batch.is_numbered:
            batch.number(queue.sequence.identity, queue.sequence.take(batch.record_count))
            queue.numbered.append(batch)
        batch.is_on_wire = True
        queue.on_wire_count += 1
        self._on_wire[id(batch)] = batch
        # Move the queue to the end: in the next request, the other partitions come first.
        del self._active[queue.partition]
        if queue.waiting:
            self._active[queue.partition] = queue
        return batch

    def is_settled_up_to(self, ordinal: int) -> bool:
        """Whether all batches up to `ordinal` are settled: a flush waits for this."""
        return self.unsettled_count == 0 or all(batch.ordinal > ordinal for batch in self._unsettled())

    # Results.

    def end_request(self, node: NodeId) -> None:
        self._in_flight[node] -= 1
        self.in_flight_count -= 1

    def throttle(self, node: NodeId, until_s: float) -> None:
        """Send no request to the node before `until_s`, because its quota is exceeded."""
        self._throttled_until_s[node] = until_s

    def is_lowest(self, batch: Batch[Token]) -> bool:
        """Whether no batch before it is unsettled, so that numbers that its leader misses will never be written."""
        return self._queues[batch.partition].numbered[0] is batch

    def complete(self, batch: Batch[Token]) -> None:
        """Settle a batch that was written."""
        queue = self._take_off_wire(batch)
        if batch.is_numbered:
            queue.settle_numbers(batch, is_written=True)
            # A leader writes numbers without gaps: if a batch was dropped before this one, it was written, too.
            queue.in_doubt, queue.is_established = False, True
        self._release(batch)

    def retry(self, batch: Batch[Token], *, at_s: float, may_be_written: bool) -> None:
        """Return a batch to its queue for another attempt at `at_s`.

        `may_be_written`: the last attempt may have been written, because its response was lost.
        """
        queue = self._take_off_wire(batch)
        batch.attempts += 1
        batch.retry_at_s = at_s
        batch.copy_payload()
        batch.may_be_written |= may_be_written
        self._put_back(queue, [batch])

    def retry_out_of_order(self, batch: Batch[Token], *, at_s: float, now_s: float) -> None:
        """Retry a batch that the leader rejected as out of order.

        An unsettled batch before it is sent first. If there is none, the numbers have a gap, and the queue restarts.
        """
        queue, is_lowest = self._queues[batch.partition], self.is_lowest(batch)
        if is_lowest:
            queue.must_restart, queue.in_doubt = True, False
        self.retry(batch, at_s=at_s if is_lowest else now_s, may_be_written=False)

    def retry_renumbered(self, batch: Batch[Token], *, at_s: float) -> None:
        """Retry a batch under new numbers, because its leader has no state for this producer."""
        self._queues[batch.partition].must_restart = True
        self.retry(batch, at_s=at_s, may_be_written=False)

    def split(self, batch: Batch[Token]) -> None:
        """Replace a batch that is too large for the broker by its halves, which keep its position and numbers."""
        queue = self._take_off_wire(batch)
        parts = batch.split()
        for part in parts:
            part.attempts += 1
        if batch.is_numbered:
            position = queue.numbered.index(batch)
            queue.numbered[position : position + 1] = parts
        batch.is_settled = True
        self.unsettled_count += 1
        self._put_back(queue, parts)

    def fail(self, batch: Batch[Token]) -> None:
        """Settle a batch that is not sent again. It was not written, unless a lost attempt was."""
        was_settled = batch.is_settled
        queue = self._take_off_wire(batch)
        if batch.is_numbered:
            queue.settle_numbers(batch, is_written=False)
            # A batch that was certainly not written leaves a gap: without a restart, the leader would reject all that
            # follow. If it may have been written, a restart would write the batches after it twice in case they were
            # written too: their results decide. Without such batches there is nothing to write twice.
            if not (batch.may_be_written or was_settled):
                queue.must_restart = True
            elif queue.numbered:
                queue.in_doubt = True
            else:
                queue.must_restart = True
        self._release(batch)

    def expire(self, now_s: float) -> list[Batch[Token]]:
        """Settle the batches whose delivery time-out has expired, and return them.

        A batch on the wire keeps its position until its response arrives, which shows whether there is a gap.
        """
        if now_s < self._next_expiry_s:
            return []
        timeout_s = self._limits.delivery_timeout_s
        expired = [each for each in self._unsettled() if each.created_s + timeout_s <= now_s]
        for batch in expired:
            if batch.is_on_wire:
                self._settle(batch)
            else:
                self._remove_waiting(batch)
        self._next_expiry_s = min((each.created_s + timeout_s for each in self._unsettled()), default=inf)
        return expired

    def drop_waiting(self, *, with_numbers: bool) -> list[Batch[Token]]:
        """Drop the batches that are not on the wire and return them.

        A batch with numbers may have been written, and is only dropped if `with_numbers` is set.
        """
        dropped = [
            batch for queue in self._active.values() for batch in queue.waiting if with_numbers or not batch.is_numbered
        ]
        for batch in dropped:
            self._remove_waiting(batch)
        return dropped

    def drop_all(self) -> list[Batch[Token]]:
        """Drop all batches and return them. The producer is closed and ignores responses from now on."""
        dropped = list(self._unsettled())
        for batch in dropped:
            if batch.is_on_wire:
                self._settle(batch)
            else:
                self._remove_waiting(batch)
        return dropped

    def _unsettled(self) -> Iterator[Batch[Token]]:
        """Yield the unsettled batches; within a partition, those on the wire first."""
        yield from [batch for batch in self._on_wire.values() if not batch.is_settled]
        yield from [batch for queue in self._active.values() for batch in queue.waiting]

    def _take_off_wire(self, batch: Batch[Token]) -> PartitionQueue[Token]:
        assert batch.is_on_wire, "only a drained batch has a result"
        batch.is_on_wire = False
        del self._on_wire[id(batch)]
        queue = self._queues[batch.partition]
        queue.on_wire_count -= 1
        return queue

    def _put_back(self, queue: PartitionQueue[Token], batches: list[Batch[Token]]) -> None:
        waiting, position = queue.waiting, 0
        if batches[0].is_numbered:
            base = batches[0].base_sequence
            while position < len(waiting) and _is_before(waiting[position].base_sequence, base):
                position += 1
        for offset, batch in enumerate(batches):
            waiting.insert(position + offset, batch)
        self._active[queue.partition] = queue

    def _remove_waiting(self, batch: Batch[Token]) -> None:
        queue = self._queues[batch.partition]
        if batch is queue.open_batch:
            self._close(queue)
        queue.waiting.remove(batch)
        if not queue.waiting:
            del self._active[queue.partition]
        if batch.is_numbered:
            queue.settle_numbers(batch, is_written=False)
            # As in `fail`: a gap if no attempt can have been written, else a doubt if there are batches after it.
            if batch.may_be_written and queue.numbered:
                queue.in_doubt = True
            else:
                queue.must_restart = True
        self._release(batch)

    def _release(self, batch: Batch[Token]) -> None:
        self.free_bytes += batch.reserved_bytes
        batch.release_shared_buffer()
        self._settle(batch)

    def _settle(self, batch: Batch[Token]) -> None:
        if not batch.is_settled:
            batch.is_settled = True
            self.unsettled_count -= 1

    def _restart(self, queue: PartitionQueue[Token]) -> bool:
        """Give the queue's batches new numbers under the next epoch; return False if that must wait."""
        # A batch on the wire may still be written under its old numbers: with new ones it would be written twice. The
        # epoch of a transactional producer belongs to its coordinator.
        if queue.on_wire_count or self._limits.transactional:
            return False
        identity = queue.sequence.identity.bumped()
        if not identity.is_known:
            if self._identity.producer_id == queue.sequence.identity.producer_id:
                # The epochs of this producer id are used up: the sender obtains another id.
                self._identity = NO_IDENTITY
            if not self._identity.is_known:
                return False
            identity = self._identity
        self._start_identity(queue, identity)
        return True

    def _start_identity(self, queue: PartitionQueue[Token], identity: ProducerIdentity) -> None:
        queue.generation = self._generation
        is_next_epoch = queue.sequence.identity.producer_id == identity.producer_id
        # A leader with state for the producer accepts only zero as the first number of the next epoch. A transaction in
        # its own epoch therefore need not send its first batch alone. After a restart, the leader may have no state.
        queue.is_established &= is_next_epoch and self._limits.transactional
        queue.sequence.restart(identity)
        for batch in queue.numbered:
            # None of them was written: a leader rejects all numbers after a gap.
            batch.number(identity, queue.sequence.take(batch.record_count))
            batch.may_be_written, batch.written_after = False, 0
        queue.must_restart = queue.in_doubt = False


def _is_before(sequence: int, other: int) -> bool:
    """Whether a waiting batch with `sequence` is sent before `other`. Batches without numbers are sent after it."""
    return sequence != NO_SEQUENCE and (other - sequence) & SEQUENCE_MASK < _HALF_OF_SEQUENCES
