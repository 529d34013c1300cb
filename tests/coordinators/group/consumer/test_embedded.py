"""The consumer protocol's bytes, as Java's client writes them."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.coordinators.group.consumer import embedded

SUBSCRIPTION = (
    b"\x00\x03"
    b"\x00\x00\x00\x01\x00\x06orders"
    b"\xff\xff\xff\xff"
    b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02"
    b"\x00\x00\x00\x07"
    b"\x00\x05east1"
)
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02\xff\xff\xff\xff"
OWNED = (("orders", 0), ("orders", 2))


def with_version(version: int, data: bytes = SUBSCRIPTION) -> bytes:
    return version.to_bytes(2, "big") + data[2:]


def test_each_version_tells_more() -> None:
    topics = frozenset({"orders"})
    assert embedded.read_subscription(with_version(0)) == embedded.Subscription(0, topics)
    assert embedded.read_subscription(with_version(1)) == embedded.Subscription(1, topics, OWNED)
    assert embedded.read_subscription(with_version(3)) == embedded.Subscription(3, topics, OWNED, "east1")


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    newer = embedded.read_subscription(with_version(9) + b"more")
    assert newer is not None
    assert newer.version == 3
    assert newer.owned == OWNED


def test_assignments_are_written_as_they_are_read() -> None:
    assert embedded.write_assignment(1, [("orders", [0, 2])]) == ASSIGNMENT
    assert embedded.read_assignment(ASSIGNMENT) == list(OWNED)


def test_no_assignment_is_no_partitions() -> None:
    assert embedded.read_assignment(b"") == []


def test_cut_off_bytes_are_nothing() -> None:
    for end in range(len(SUBSCRIPTION)):
        assert embedded.read_subscription(SUBSCRIPTION[:end]) is None
    for end in range(1, len(ASSIGNMENT) - 4):
        assert embedded.read_assignment(ASSIGNMENT[:end]) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_taken(data: bytes) -> None:
    embedded.read_subscription(data)
    embedded.read_assignment(data)
