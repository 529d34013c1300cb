"""The accumulator with leaders that check sequence numbers as Kafka's do, and a network that loses responses.

In every case: no record is written twice, a partition's records are written in the order in which they were sent,
acknowledged records were written, every record has exactly one result, and all memory is released at the end.
"""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.client.produce.accumulator import Accumulator, AccumulatorLimits
from rookery.client.produce.batches import Batch
from rookery.client.produce.sequences import ProducerIdentity

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
IN_FLIGHT_MAX = 3
BUFFER_BYTES = 5_000
DELIVERY_TIMEOUT_S = 50.0
RECORD_BYTES = 100

WRITTEN, DUPLICATE, OUT_OF_ORDER, STALE_EPOCH = "written", "duplicate", "out of order", "stale epoch"


class Leader:
    """The log of one partition and its leader's state of the producer."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self._epoch = -1
        self._next = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=5)

    def write(self, batch: Batch[int]) -> str:
        epoch, base, count = batch.identity.producer_epoch, batch.base_sequence, batch.record_count
        if epoch < self._epoch:
            return STALE_EPOCH
        if epoch == self._epoch:
            if (base, count) in self._recent:
                return DUPLICATE
            if base != self._next:
                return OUT_OF_ORDER
        elif self._epoch >= 0 and base != 0:
            return OUT_OF_ORDER
        # A leader without state for the producer accepts any first number.
        if epoch > self._epoch:
            self._recent.clear()
        self._epoch, self._next = epoch, base + count
        self._recent.append((base, count))
        self.log += batch.tokens
        return WRITTEN


class World:
    def __init__(self, *, batch_bytes: int) -> None:
        self.now_s = 0.0
        self.accumulator: Accumulator[int] = Accumulator(
            AccumulatorLimits(
                batch_size_bytes=batch_bytes,
                buffer_size_bytes=BUFFER_BYTES,
                request_size_bytes_max=1_000,
                linger_s=1.0,
                delivery_timeout_s=DELIVERY_TIMEOUT_S,
                in_flight_max=IN_FLIGHT_MAX,
                idempotent=True,
            )
        )
        self.accumulator.set_identity(ProducerIdentity(1, 0))
        self.leaders = {partition: Leader() for partition in PARTITIONS}
        self.leading = dict.fromkeys(PARTITIONS, 0)
        self.wire: list[tuple[int, list[Batch[int]]]] = []
        self.sent: dict[TopicPartition, list[int]] = {partition: [] for partition in PARTITIONS}
        self.acknowledged: set[int] = set()
        self.failed: set[int] = set()

    def send(self, partition: TopicPartition) -> None:
        token = sum(map(len, self.sent.values()))
        batch = self.accumulator.grant(self.accumulator.queue(partition), RECORD_BYTES, self.now_s)
        if batch is not None:
            assert batch.append(0, None, b"", (), RECORD_BYTES, token)
            self.sent[partition].append(token)

    def drain(self) -> None:
        self._end(self.accumulator.expire(self.now_s))
        while requests := self.accumulator.drain(self.now_s, self.leading.__getitem__).requests:
            self.wire += requests
        for node in (0, 1):
            assert sum(1 for target, _ in self.wire if target == node) <= IN_FLIGHT_MAX

    def answer(self, position: int, outcome: str) -> None:
        """Answer one request with `outcome`; the requests of a node are answered in order."""
        if not self.wire:
            return
        node = self.wire[position % len(self.wire)][0]
        index = next(index for index, (target, _) in enumerate(self.wire) if target == node)
        _, batches = self.wire.pop(index)
        self.accumulator.end_request(node)
        for batch in batches:
            self._answer_batch(batch, outcome)

    def _answer_batch(self, batch: Batch[int], outcome: str) -> None:
        made, later_s = self.accumulator, self.now_s + 1.0
        if outcome == "lost before":
            self._retry(batch, later_s, may_be_written=True)
        elif outcome == "rejected":
            self._retry(batch, later_s, may_be_written=False)
        elif outcome == "too large" and not batch.is_settled and not batch.may_be_written:
            if batch.record_count > 1:
                made.split(batch)
            else:
                self._end([batch])
                made.fail(batch)
        else:
            self._written(batch, self.leaders[batch.partition].write(batch), is_lost=outcome == "lost after")

    def _written(self, batch: Batch[int], result: str, *, is_lost: bool) -> None:
        made, later_s = self.accumulator, self.now_s + 1.0
        if is_lost:
            self._retry(batch, later_s, may_be_written=True)
        elif result in (WRITTEN, DUPLICATE):
            if not batch.is_settled:
                assert not self.acknowledged & set(batch.tokens)
                self.acknowledged |= set(batch.tokens)
            made.complete(batch)
        elif batch.is_settled:
            made.fail(batch)
        else:
            was_written = set(batch.tokens) <= set(self.leaders[batch.partition].log)
            assert not (was_written and made.is_lowest(batch)), "the leader does not recognize it"
            made.retry_out_of_order(batch, at_s=later_s, now_s=self.now_s)

    def _retry(self, batch: Batch[int], at_s: float, *, may_be_written: bool) -> None:
        if batch.is_settled:
            self.accumulator.fail(batch)
        else:
            self.accumulator.retry(batch, at_s=at_s, may_be_written=may_be_written)

    def _end(self, batches: list[Batch[int]]) -> None:
        for batch in batches:
            assert not self.failed & set(batch.tokens)
            self.failed |= set(batch.tokens)

    def check(self) -> None:
        for partition, leader in self.leaders.items():
            assert leader.log == sorted(set(leader.log)), "a record was written twice, or out of order"
            assert set(leader.log) <= set(self.sent[partition])
        written = {token for leader in self.leaders.values() for token in leader.log}
        assert self.acknowledged <= written
        assert not self.acknowledged & self.failed
        made = self.accumulator
        reserved = sum(batch.reserved_bytes for queue in made._queues.values() for batch in queue.waiting)
        reserved += sum(batch.reserved_bytes for batch in made._on_wire.values())
        assert made.free_bytes + reserved == BUFFER_BYTES

    def heal(self) -> None:
        """Answer all requests. Waiting batches must not expire meanwhile: a stuck batch would count as settled."""
        for _ in range(40):
            self.drain()
            while self.wire:
                self.answer(0, "fine")
                self.drain()
            if self.accumulator.unsettled_count == 0:
                return
            self.now_s += 1.0
        raise AssertionError("batches stay unsettled")


ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 2), st.just("")),
    st.tuples(st.just("send"), st.just(0), st.just("")),
    st.tuples(st.just("drain"), st.just(0), st.just("")),
    st.tuples(st.just("pass"), st.sampled_from([1, 1, 2, 20, 49]), st.just("")),
    st.tuples(st.just("move"), st.integers(0, 2), st.just("")),
    st.tuples(
        st.just("answer"),
        st.integers(0, 5),
        st.sampled_from(["fine", "fine", "lost before", "lost after", "rejected", "too large"]),
    ),
)


@settings(max_examples=400)
@given(st.lists(ACTIONS, max_size=80), st.sampled_from([161, 361, 1_000]))
def test_order_and_exactly_once_in_every_case(actions: list[tuple[str, int, str]], batch_bytes: int) -> None:
    world = World(batch_bytes=batch_bytes)
    for action, number, outcome in actions:
        if action == "send":
            world.send(PARTITIONS[number])
        elif action == "drain":
            world.drain()
        elif action == "pass":
            world.now_s += number
        elif action == "move":
            world.leading[PARTITIONS[number]] ^= 1
        else:
            world.answer(number, outcome)
        world.check()
    world.heal()
    world.check()
    everything = {token for tokens in world.sent.values() for token in tokens}
    assert world.acknowledged | world.failed == everything
    assert world.accumulator.free_bytes == BUFFER_BYTES
