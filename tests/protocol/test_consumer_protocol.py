"""The consumer protocol's bytes, as Java's client writes them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.protocol import consumer_protocol
from rookery.protocol.consumer_protocol import Subscription

SUBSCRIPTION = (
    b"\x00\x03"
    b"\x00\x00\x00\x01\x00\x06orders"
    b"\xff\xff\xff\xff"
    b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02"
    b"\x00\x00\x00\x07"
    b"\x00\x05east1"
)
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02\xff\xff\xff\xff"
OWNED = (TopicPartition("orders", 0), TopicPartition("orders", 2))


def with_version(version: int, data: bytes = SUBSCRIPTION) -> bytes:
    return version.to_bytes(2, "big") + data[2:]


def test_each_version_tells_more() -> None:
    topics = frozenset({"orders"})
    assert consumer_protocol.read_subscription(with_version(0)) == Subscription(0, topics)
    assert consumer_protocol.read_subscription(with_version(1)) == Subscription(1, topics, OWNED)
    assert consumer_protocol.read_subscription(with_version(3)) == Subscription(3, topics, OWNED, "east1")


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    newer = consumer_protocol.read_subscription(with_version(9) + b"more")
    assert newer is not None
    assert newer.version == 3
    assert newer.owned == OWNED


def test_assignments_are_written_as_they_are_read() -> None:
    assert consumer_protocol.write_assignment(1, [("orders", [0, 2])]) == ASSIGNMENT
    assert consumer_protocol.read_assignment(ASSIGNMENT) == list(OWNED)


def test_no_assignment_is_no_partitions() -> None:
    assert consumer_protocol.read_assignment(b"") == []


def test_cut_off_bytes_are_nothing() -> None:
    for end in range(len(SUBSCRIPTION)):
        assert consumer_protocol.read_subscription(SUBSCRIPTION[:end]) is None
    for end in range(1, len(ASSIGNMENT) - 4):
        assert consumer_protocol.read_assignment(ASSIGNMENT[:end]) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_taken(data: bytes) -> None:
    consumer_protocol.read_subscription(data)
    consumer_protocol.read_assignment(data)
    consumer_protocol.read_topics(data)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_topics_are_read_from_every_version(version: int) -> None:
    metadata = struct.pack(">hi", version, 2) + b"\0\1a" + b"\0\2bc" + b"whatever follows"
    assert consumer_protocol.read_topics(metadata) == frozenset(("a", "bc"))


def test_a_subscription_without_topics() -> None:
    assert consumer_protocol.read_topics(struct.pack(">hi", 0, 0)) == frozenset()


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\2\xff\xff"]
)
def test_what_is_not_a_subscription_is_none(metadata: bytes) -> None:
    assert consumer_protocol.read_topics(metadata) is None
