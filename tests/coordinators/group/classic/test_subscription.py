import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.coordinators.group.classic.subscription import read_topics


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_topics_are_read_from_every_version(version: int) -> None:
    metadata = struct.pack(">hi", version, 2) + b"\0\1a" + b"\0\2bc" + b"whatever follows"
    assert read_topics(metadata) == frozenset(("a", "bc"))


def test_no_topics() -> None:
    assert read_topics(struct.pack(">hi", 0, 0)) == frozenset()


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\2\xff\xff"]
)
def test_what_is_not_a_subscription_is_none(metadata: bytes) -> None:
    assert read_topics(metadata) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_harmless(metadata: bytes) -> None:
    read_topics(metadata)
