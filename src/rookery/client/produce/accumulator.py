"""Records that wait, batches that are under way, and the memory of both. Who may be sent next, and in which order.

Theory of operation. Every partition has a queue. Records are appended to its last batch while that is open. A batch is
*ready* when it is full, when linger has passed since its first record, or when somebody cannot wait: a flush, a close,
senders without room. `drain` takes ready batches, at most one of a partition into one request, and counts requests in
flight by node. A batch that was drained is on the wire until one of these tells what became of it:

    complete   it was written
    retry      another attempt, later; it returns to the front of its queue
    split      it was too large: two halves take its place
    fail       it was refused, or its time is over

Order. Without idempotence a queue with one request at a time keeps its order, and with more it may not: Kafka's rule.
With idempotence order always holds, by sequence numbers (`sequences`):
- batches with numbers return to their place by number; only the lowest unsettled one is sent again, and as long as it
  is under way, nothing that would make the leader forget it: five batches, the written ones among them, are the most;
- a batch that the leader calls out of order although it is the lowest, and that was not written, proves a gap: the
  queue restarts. If an attempt of it may have been written, it fails: whether it was, nobody can tell;
- a batch refused for good leaves a gap: the queue restarts;
- a leader that knows nothing of a producer takes any first number, so the first batch under new numbers goes alone;
- a batch given up with its fate unknown leaves a doubt: nothing new is numbered until what is behind it is settled.
  If that is written, there was no gap. If it is called out of order, or there is nothing, the queue restarts.
A restart waits until nothing of the queue is on the wire. Then whatever still has numbers is known to be unwritten and
gets new ones. In a transaction there is no restart: a gap is the transaction's end, and its next epoch starts at zero.

Invariant: `free_bytes` plus the reservations of all batches that are not settled, or on the wire, is the buffer's size.

Pure: times are arguments. `producer` adds and waits for room, `sender` drains and reports.
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Generic, NamedTuple

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.client.packed_batches import SealedBatch
from rookery.client.produce.batches import Batch, BatchGroup, Token
from rookery.client.produce.sequences import (
    NO_IDENTITY,
    NUMBERED_BATCHES_MAX,
    SEQUENCE_MASK,
    PartitionSequence,
    ProducerIdentity,
)
from rookery.records.batch import HEADER_SIZE, NO_SEQUENCE

# Memory is granted to an open batch in steps of this. `producer` lets others run at each, so it is also how many bytes
# one caller may append in one go.
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
    """`waiting` is in the order of sending; `numbered` holds what has numbers and is not settled, in their order."""

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
        # The leader has written something under the present numbers.
        self.is_established = False
        # Of closed batches, for partitioners that count bytes.
        self.appended_bytes = 0

    @property
    def total_bytes(self) -> int:
        """How many bytes were ever appended here."""
        return self.appended_bytes + (0 if self.open_batch is None else self.open_batch.used_bytes)

    @property
    def numbered_span(self) -> int:
        """How many batches have numbers from the lowest unsettled one on, those between that are written included."""
        return sum([1 + batch.written_behind for batch in self.numbered])

    def settle_numbers(self, batch: Batch[Token], *, is_written: bool) -> None:
        position = self.numbered.index(batch)
        del self.numbered[position]
        if position:
            self.numbered[position - 1].written_behind += batch.written_behind + is_written


class Drained(NamedTuple, Generic[Token]):
    """Requests to send now, and when to look again; `next_s` is infinite if only an event can change anything.

    `has_more` says that another round may find more at once.
    """

    requests: list[tuple[NodeId, list[Batch[Token]]]]
    leaderless: set[TopicName]
    next_s: float
    has_more: bool


class Accumulator(Generic[Token]):
    def __init__(self, limits: AccumulatorLimits) -> None:
        self._limits = limits
        self._queues: dict[TopicPartition, PartitionQueue[Token]] = {}
        # Queues with something waiting, in the order of their turns.
        self._active: dict[TopicPartition, PartitionQueue[Token]] = {}
        self._on_wire: dict[int, Batch[Token]] = {}
        self._in_flight: dict[NodeId, int] = {}
        self._held_until_s: dict[NodeId, float] = {}
        self._identity = NO_IDENTITY
        self._generation = 0
        self._next_expiry_s = inf
        self.free_bytes = limits.buffer_size_bytes
        self.in_flight_count = 0
        self.unsettled_count = 0
        self.last_ordinal = 0
        # Somebody waits for room, for a flush, or for the end: batches do not linger.
        self.is_urgent = False

    # Adding.

    def queue(self, partition: TopicPartition) -> PartitionQueue[Token]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def grant(self, queue: PartitionQueue[Token], size_bytes: int, now_s: float) -> Batch[Token] | None:
        """An open batch with room for a record of that size, or None if the buffer has none."""
        batch, batch_max = queue.open_batch, self._limits.batch_size_bytes - HEADER_SIZE
        if batch is not None:
            needed_bytes = size_bytes - batch.room_bytes
            if needed_bytes <= 0:
                return batch
            left_bytes = batch_max - batch.reserved_bytes
            if needed_bytes <= left_bytes:
                if needed_bytes > self.free_bytes:
                    return None
                step_bytes = min(self.free_bytes, left_bytes, max(needed_bytes, GRANT_BYTES))
                self.free_bytes -= step_bytes
                batch.reserved_bytes += step_bytes
                batch.room_bytes += step_bytes
                return batch
            self._close(queue)
        if size_bytes > self.free_bytes:
            return None
        return self._open(queue, min(self.free_bytes, max(size_bytes, min(batch_max, GRANT_BYTES))), now_s)

    def add_sealed(
        self, partition: TopicPartition, sealed: SealedBatch, group: BatchGroup, *, now_s: float
    ) -> Batch[Token] | None:
        """Queue a batch that came packed, behind what was appended before it. None if the buffer has no room."""
        size_bytes = len(sealed.payload)
        if size_bytes > self.free_bytes:
            return None
        queue = self.queue(partition)
        self._close(queue)
        batch = self._open(queue, size_bytes, now_s)
        batch.seal_with(sealed, group)
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
        """A new identity: partitions start at zero under it as soon as nothing of theirs has older numbers."""
        self._identity = identity
        self._generation += 1

    # Draining.

    def drain(self, now_s: float, leader_of: Callable[[TopicPartition], NodeId | None]) -> Drained[Token]:
        """One round: at most one request for each node, and one batch of each partition."""
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
            held_s = self._held_until_s.get(node, -inf)
            if held_s > now_s:
                next_s = min(next_s, held_s)
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
        if self._limits.in_flight_max == 1 and queue.on_wire_count:
            return False
        if not self._limits.idempotent:
            return True
        if queue.generation != self._generation and not queue.numbered:
            self._adopt(queue, self._identity)
        if queue.must_restart and not self._restart(queue):
            return False
        first = queue.waiting[0]
        if first.is_numbered:
            return queue.numbered[0] is first
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
        # Its turn is over: others come first next time.
        del self._active[queue.partition]
        if queue.waiting:
            self._active[queue.partition] = queue
        return batch

    def is_settled_up_to(self, ordinal: int) -> bool:
        """Whether all batches that were opened up to then have met their end: what a flush waits for."""
        return self.unsettled_count == 0 or all(batch.ordinal > ordinal for batch in self._unsettled())

    # What became of a batch.

    def end_request(self, node: NodeId) -> None:
        self._in_flight[node] -= 1
        self.in_flight_count -= 1

    def hold(self, node: NodeId, until_s: float) -> None:
        """The node's quota is exceeded: it wants nothing until then."""
        self._held_until_s[node] = until_s

    def is_lowest(self, batch: Batch[Token]) -> bool:
        """Whether nothing before it is open, so that a leader who misses something misses it for good."""
        return self._queues[batch.partition].numbered[0] is batch

    def complete(self, batch: Batch[Token]) -> None:
        """It was written."""
        queue = self._off_wire(batch)
        if batch.is_numbered:
            queue.settle_numbers(batch, is_written=True)
            # Whatever was in doubt before it must have been written, too.
            queue.in_doubt, queue.is_established = False, True
        self._release(batch)

    def retry(self, batch: Batch[Token], *, at_s: float, fate_is_unknown: bool) -> None:
        """Back to the queue for another attempt at `at_s`."""
        queue = self._off_wire(batch)
        batch.attempts += 1
        batch.retry_at_s = at_s
        batch.move_out()
        batch.fate_is_unknown |= fate_is_unknown
        self._put_back(queue, [batch])

    def retry_out_of_order(self, batch: Batch[Token], *, at_s: float, now_s: float) -> None:
        """The leader misses what comes before it: that goes first, or, if there is nothing, is a gap."""
        queue, is_lowest = self._queues[batch.partition], self.is_lowest(batch)
        if is_lowest:
            queue.must_restart, queue.in_doubt = True, False
        self.retry(batch, at_s=at_s if is_lowest else now_s, fate_is_unknown=False)

    def retry_renumbered(self, batch: Batch[Token], *, at_s: float) -> None:
        """The leader has forgotten this producer: start again under new numbers."""
        self._queues[batch.partition].must_restart = True
        self.retry(batch, at_s=at_s, fate_is_unknown=False)

    def split(self, batch: Batch[Token]) -> None:
        """It is too large for the broker: its halves take its place and its numbers."""
        queue = self._off_wire(batch)
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
        """It will not be written, as far as we know."""
        was_settled = batch.is_settled
        queue = self._off_wire(batch)
        if batch.is_numbered:
            queue.settle_numbers(batch, is_written=False)
            if not (batch.fate_is_unknown or was_settled):
                queue.must_restart = True
            elif queue.numbered:
                queue.in_doubt = True
            else:
                queue.must_restart = True
        self._release(batch)

    def expire(self, now_s: float) -> list[Batch[Token]]:
        """Batches whose time is over: their senders are to be told.

        One that is on the wire keeps its place until its answer comes, since that says whether there is a gap.
        """
        if now_s < self._next_expiry_s:
            return []
        timeout_s = self._limits.delivery_timeout_s
        expired = [each for each in self._unsettled() if each.created_s + timeout_s <= now_s]
        for batch in expired:
            if batch.is_on_wire:
                self._settle(batch)
            else:
                self._forget_waiting(batch)
        self._next_expiry_s = min((each.created_s + timeout_s for each in self._unsettled()), default=inf)
        return expired

    def drop_waiting(self, *, with_numbers: bool) -> list[Batch[Token]]:
        """Forget what is not on the wire; what has numbers may have been written and is only dropped if asked to."""
        dropped = [
            batch for queue in self._active.values() for batch in queue.waiting if with_numbers or not batch.is_numbered
        ]
        for batch in dropped:
            self._forget_waiting(batch)
        return dropped

    def drop_all(self) -> list[Batch[Token]]:
        """Forget everything: the producer is closed, and no answer will be looked at."""
        dropped = list(self._unsettled())
        for batch in dropped:
            if batch.is_on_wire:
                self._settle(batch)
            else:
                self._forget_waiting(batch)
        return dropped

    def _unsettled(self) -> Iterator[Batch[Token]]:
        """The oldest attempts first within a queue."""
        yield from [batch for batch in self._on_wire.values() if not batch.is_settled]
        yield from [batch for queue in self._active.values() for batch in queue.waiting]

    def _off_wire(self, batch: Batch[Token]) -> PartitionQueue[Token]:
        assert batch.is_on_wire, "only what was drained has an outcome"
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

    def _forget_waiting(self, batch: Batch[Token]) -> None:
        queue = self._queues[batch.partition]
        if batch is queue.open_batch:
            self._close(queue)
        queue.waiting.remove(batch)
        if not queue.waiting:
            del self._active[queue.partition]
        if batch.is_numbered:
            queue.settle_numbers(batch, is_written=False)
            # If none of its attempts can have been written, that leaves a gap, else a doubt.
            if batch.fate_is_unknown and queue.numbered:
                queue.in_doubt = True
            else:
                queue.must_restart = True
        self._release(batch)

    def _release(self, batch: Batch[Token]) -> None:
        self.free_bytes += batch.reserved_bytes
        batch.leave_slab()
        self._settle(batch)

    def _settle(self, batch: Batch[Token]) -> None:
        if not batch.is_settled:
            batch.is_settled = True
            self.unsettled_count -= 1

    def _restart(self, queue: PartitionQueue[Token]) -> bool:
        """Number the queue anew under the next epoch; False if that must wait."""
        if queue.on_wire_count or self._limits.transactional:
            return False
        identity = queue.sequence.identity.bumped()
        if not identity.is_known:
            if self._identity.producer_id == queue.sequence.identity.producer_id:
                # Its epochs are used up: the shell gets another.
                self._identity = NO_IDENTITY
            if not self._identity.is_known:
                return False
            identity = self._identity
        self._adopt(queue, identity)
        return True

    def _adopt(self, queue: PartitionQueue[Token], identity: ProducerIdentity) -> None:
        queue.generation = self._generation
        is_next_epoch = queue.sequence.identity.producer_id == identity.producer_id
        # Of a producer that it knows, a leader takes nothing but zero under the next epoch: every transaction has one.
        queue.is_established &= is_next_epoch and self._limits.transactional
        queue.sequence.restart(identity)
        for batch in queue.numbered:
            batch.number(identity, queue.sequence.take(batch.record_count))
            batch.fate_is_unknown, batch.written_behind = False, 0
        queue.must_restart = queue.in_doubt = False


def _is_before(sequence: int, other: int) -> bool:
    """Whether a waiting batch goes before the numbers of `other`; those without numbers go behind."""
    return sequence != NO_SEQUENCE and (other - sequence) & SEQUENCE_MASK < _HALF_OF_SEQUENCES
