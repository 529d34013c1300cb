from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.client.embedded import read_assignment

# Version 1, one topic "ab" with the partitions 0 and 5, no user data.
ASSIGNMENT = bytes.fromhex("0001 00000001 0002 6162 00000002 00000000 00000005 ffffffff")


def test_topics_and_partitions_are_read() -> None:
    assert read_assignment(ASSIGNMENT) == [TopicPartition("ab", 0), TopicPartition("ab", 5)]
    assert read_assignment(b"") == []


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert isinstance(read_assignment(data), list)


@given(st.integers(1, len(ASSIGNMENT) - 5))
def test_half_an_assignment_is_none(cut: int) -> None:
    assert read_assignment(ASSIGNMENT[:cut]) == []
