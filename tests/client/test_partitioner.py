import random
from collections.abc import Callable

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from rookery.client.partitioner import Partitioner, murmur2, partition_for_key


@given(st.binary(max_size=64))
def test_murmur2_agrees_with_other_clients(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_gives_the_java_clients_known_values(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_key_has_one_partition_below_the_count(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count
    assert partition_for_key(memoryview(key), count) == partition_for_key(key, count)


def test_records_without_a_key_stick_until_their_batch_is_sent() -> None:
    partitioner = Partitioner(_scripted(3, 5, 1))
    assert [partitioner.partition("a", None, 8) for _ in range(3)] == [3, 3, 3]
    partitioner.on_batch_sent("a", 2)
    assert partitioner.partition("a", None, 8) == 3
    partitioner.on_batch_sent("a", 3)
    assert partitioner.partition("a", None, 8) == 5
    assert partitioner.partition("b", None, 8) == 1


def test_keys_do_not_move_the_sticky_partition() -> None:
    partitioner = Partitioner(random.Random(1).randrange)
    first = partitioner.partition("a", None, 100)
    assert partitioner.partition("a", b"key", 100) == partition_for_key(b"key", 100)
    assert partitioner.partition("a", None, 100) == first


def test_a_topic_that_shrank_by_recreation_is_chosen_anew() -> None:
    partitioner = Partitioner(_scripted(7, 0))
    assert partitioner.partition("a", None, 8) == 7
    assert partitioner.partition("a", None, 2) == 0


def _scripted(*choices: int) -> Callable[[int], int]:
    remaining = iter(choices)
    return lambda count: next(remaining)
