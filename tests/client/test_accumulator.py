from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.client.accumulator import (
    NO_IDENTITY,
    Accumulator,
    PendingBatch,
    ProducerIdentity,
    Sequences,
    estimated_size,
)
from rookery.records.batch import HEADER_SIZE
from rookery.records.record import Record, build_batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(value: bytes = b"v") -> Record:
    return Record(-1, 0, None, value, ())


def test_a_partition_with_a_batch_under_way_is_held() -> None:
    accumulator: Accumulator[int] = Accumulator(1000)
    accumulator.add(A, record(), 1)
    (first,) = accumulator.take_ready()
    accumulator.add(A, record(), 2)
    accumulator.add(A, record(), 3)
    accumulator.add(B, record(), 4)
    assert [batch.partition for batch in accumulator.take_ready()] == [B]
    accumulator.complete(first)
    (second,) = accumulator.take_ready()
    assert second.tokens == [2, 3]


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    accumulator: Accumulator[int] = Accumulator(100)
    accumulator.add(A, record(b"x" * 500), 1)
    accumulator.add(A, record(), 2)
    (first,) = accumulator.take_ready()
    assert first.tokens == [1]


def test_what_waits_can_be_dropped() -> None:
    accumulator: Accumulator[int] = Accumulator(1000)
    accumulator.add(A, record(), 1)
    (under_way,) = accumulator.take_ready()
    accumulator.add(A, record(), 2)
    accumulator.add(B, record(), 3)
    assert accumulator.drop_waiting() == [2, 3]
    assert accumulator.size_bytes == under_way.size_bytes
    accumulator.complete(under_way)
    assert accumulator.is_empty


def test_a_request_stays_below_what_brokers_accept() -> None:
    accumulator: Accumulator[int] = Accumulator(1024 * 1024)
    value = bytes(1024 * 1024)
    for index in range(100):
        accumulator.add(TopicPartition("t", index), record(value), index)
    sizes = []
    while batches := accumulator.take_ready():
        sizes.append(sum(batch.size_bytes for batch in batches))
    assert max(sizes) < 16 * 1024 * 1024
    assert sum(sizes) == accumulator.size_bytes


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.binary(max_size=200))), st.integers(100, 600))
def test_everything_comes_out_once_in_order_within_the_size(
    sent: list[tuple[TopicPartition, bytes]], batch_size_bytes: int
) -> None:
    accumulator: Accumulator[int] = Accumulator(batch_size_bytes)
    for token, (partition, value) in enumerate(sent):
        accumulator.add(partition, record(value), token)
    taken: dict[TopicPartition, list[int]] = {A: [], B: []}
    while batches := accumulator.take_ready():
        for batch in batches:
            assert len(batch.records) == 1 or batch.size_bytes + HEADER_SIZE <= batch_size_bytes
            taken[batch.partition] += batch.tokens
            accumulator.complete(batch)
    assert accumulator.is_empty
    assert accumulator.size_bytes == 0
    for partition in (A, B):
        assert taken[partition] == [token for token, (owner, _) in enumerate(sent) if owner == partition]


@given(st.binary(max_size=300), st.binary(max_size=50), st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9))))
def test_the_estimate_is_not_far_below_the_real_size(
    value: bytes, key: bytes, headers: list[tuple[str, bytes]]
) -> None:
    one = Record(0, 0, key, value, tuple(headers))
    real = len(build_batch([one])) - HEADER_SIZE
    assert estimated_size(one) >= real - sum(len(name.encode()) - len(name) for name, _ in headers)


def test_sequences_count_records_and_wrap() -> None:
    sequences = Sequences()
    batches = [PendingBatch(A, [record()] * 3, [0] * 3, 0), PendingBatch(B, [record()], [0], 0)]
    sequences.stamp(batches)
    assert [batch.identity for batch in batches] == [NO_IDENTITY, NO_IDENTITY]
    sequences.reset(ProducerIdentity(5, 1))
    sequences.stamp(batches)
    assert [(batch.identity.producer_id, batch.base_sequence) for batch in batches] == [(5, 0), (5, 0)]
    following = PendingBatch(A, [record()], [0], 0)
    sequences.stamp([following])
    assert following.base_sequence == 3
    sequences._next[A] = 0x7FFFFFFF
    last = PendingBatch(A, [record()] * 2, [0] * 2, 0)
    sequences.stamp([last])
    after = PendingBatch(A, [record()], [0], 0)
    sequences.stamp([after])
    assert (last.base_sequence, after.base_sequence) == (0x7FFFFFFF, 1)


def test_a_new_identity_starts_at_zero() -> None:
    sequences = Sequences()
    sequences.reset(ProducerIdentity(5, 0))
    sequences.stamp([PendingBatch(A, [record()], [0], 0)])
    sequences.reset(ProducerIdentity(6, 0))
    batch = PendingBatch(A, [record()], [0], 0)
    sequences.stamp([batch])
    assert (batch.identity.producer_id, batch.base_sequence) == (6, 0)
