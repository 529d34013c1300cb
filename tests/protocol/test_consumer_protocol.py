"""The bytes of the consumer protocol, as the Java client writes them."""

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


def test_each_version_adds_fields() -> None:
    topics = frozenset({"orders"})
    assert consumer_protocol.read_subscription(with_version(0)) == Subscription(0, topics)
    assert consumer_protocol.read_subscription(with_version(1)) == Subscription(1, topics, OWNED)
    assert consumer_protocol.read_subscription(with_version(2)) == Subscription(2, topics, OWNED, None, 7)
    assert consumer_protocol.read_subscription(with_version(3)) == Subscription(3, topics, OWNED, "east1", 7)


def test_a_subscription_is_written_as_java_writes_it() -> None:
    assert (
        consumer_protocol.write_subscription(Subscription(3, frozenset({"orders"}), OWNED, "east1", 7)) == SUBSCRIPTION
    )


@given(
    version=st.integers(0, 3),
    topics=st.frozensets(st.text(max_size=5)),
    owned=st.sets(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 9))),
    rack_id=st.none() | st.text(min_size=1, max_size=3),
    generation=st.integers(-1, 2**31 - 1),
    user_data=st.none() | st.binary(max_size=5),
)
def test_a_subscription_is_read_as_it_was_written(
    version: int,
    topics: frozenset[str],
    owned: set[TopicPartition],
    rack_id: str | None,
    generation: int,
    user_data: bytes | None,
) -> None:
    expected = Subscription(version, topics, user_data=user_data)
    if version >= 1:
        expected = expected._replace(owned=tuple(sorted(owned)))
    if version >= 2:
        expected = expected._replace(generation=generation)
    if version >= 3:
        expected = expected._replace(rack_id=rack_id)
    full = Subscription(version, topics, tuple(sorted(owned)), rack_id, generation, user_data)
    assert consumer_protocol.read_subscription(consumer_protocol.write_subscription(full)) == expected


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    newer = consumer_protocol.read_subscription(with_version(9) + b"more")
    assert newer is not None
    assert newer.version == 3
    assert newer.owned == OWNED


def test_assignments_are_written_as_they_are_read() -> None:
    assert consumer_protocol.write_assignment(1, [("orders", [0, 2])]) == ASSIGNMENT
    assert consumer_protocol.read_assignment(ASSIGNMENT) == list(OWNED)


def test_empty_bytes_are_an_empty_assignment() -> None:
    assert consumer_protocol.read_assignment(b"") == []


def test_truncated_bytes_are_none() -> None:
    for end in range(len(SUBSCRIPTION)):
        assert consumer_protocol.read_subscription(SUBSCRIPTION[:end]) is None
    for end in range(1, len(ASSIGNMENT) - 4):
        assert consumer_protocol.read_assignment(ASSIGNMENT[:end]) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_none(data: bytes) -> None:
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
def test_malformed_subscriptions_are_none(metadata: bytes) -> None:
    assert consumer_protocol.read_topics(metadata) is None
