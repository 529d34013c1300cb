from collections.abc import Callable

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from rookery.client.produce.partitioners import (
    KeyHashes,
    RoundRobinPartitioner,
    StickyPartition,
    murmur2,
    partition_for_key,
)


@given(st.binary(max_size=200))
def test_murmur2_agrees_with_other_clients(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_returns_the_java_clients_values(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_key_has_one_partition_below_the_count(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count
    assert partition_for_key(memoryview(key), count) == partition_for_key(key, count)
    hashes = KeyHashes()
    assert hashes[key] % count == hashes[key] % count == partition_for_key(key, count)


def test_the_cache_of_keys_is_bounded() -> None:
    hashes = KeyHashes()
    for number in range(20_000):
        assert hashes[b"%d" % number] >= 0
    assert len(hashes) < 16_385
    before = len(hashes)
    assert hashes[bytes(100)] >= 0
    assert len(hashes) == before


def test_a_sticky_partition_stays_for_a_batchs_worth_of_bytes() -> None:
    sticky = StickyPartition(_scripted(3, 1), 100)
    assert sticky.switch(range(8), 8) == 3
    sticky.start(1000)
    assert not sticky.is_due(1099, range(8))
    assert sticky.is_due(1100, range(8))


def test_a_sticky_partition_is_left_when_it_loses_its_leader() -> None:
    sticky = StickyPartition(_scripted(0, 1, 2), 100)
    assert sticky.switch((4, 6), 8) == 4
    sticky.start(0)
    assert sticky.is_due(0, (6,))
    assert sticky.switch((4, 6), 8) == 6
    sticky.start(0)
    assert not sticky.is_due(0, ()), "no partition has a leader: no reason to switch"
    assert sticky.switch((), 8) == 2


def test_round_robin_counts_by_topic_and_skips_partitions_without_a_leader() -> None:
    partitioner = RoundRobinPartitioner()

    def choose(topic: str, available: tuple[int, ...] = (0, 1, 2)) -> int:
        return partitioner.partition(topic, None, None, 3, available=available)

    assert [choose("a"), choose("a"), choose("b"), choose("a"), choose("a")] == [0, 1, 0, 2, 0]
    assert [choose("c", (1,)), choose("c", (1,)), choose("c", ())] == [1, 1, 2]


def _scripted(*choices: int) -> Callable[[int], int]:
    remaining = iter(choices)
    return lambda count: next(remaining)
