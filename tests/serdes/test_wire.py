from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.serdes.errors import WireFormatError
from rookery.serdes.wire import encode_indexes, encode_prefix, read_indexes, read_prefix


@pytest.mark.parametrize(("schema_id", "data"), [(1, "0000000001"), (2**31 - 1, "007fffffff")])
def test_the_prefix_is_a_zero_and_four_bytes(schema_id: int, data: str) -> None:
    assert encode_prefix(schema_id).hex() == data
    assert read_prefix(bytes.fromhex(data) + b"payload") == (schema_id, b"payload")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are too few"),
        (b"\0\0\0\1", "4 bytes are too few"),
        (b"\1\0\0\0\1rest", "the first byte is 1 instead of 0"),
        (b'{"a": 5}', "the first byte is 123 instead of 0"),
        (b"\0\xff\xff\xff\xff", "4294967295 cannot be the id"),
    ],
)
def test_other_bytes_are_rejected(data: bytes, message: str) -> None:
    with pytest.raises(WireFormatError, match=message):
        read_prefix(data)


@pytest.mark.parametrize(
    ("indexes", "data"),
    [((0,), "00"), ((1,), "0202"), ((1, 0), "040200"), ((0, 0), "040000"), ((2, 1, 3), "06040206"), ((64,), "028001")],
)
def test_message_indexes_are_zigzag(indexes: tuple[int, ...], data: str) -> None:
    assert encode_indexes(indexes).hex() == data
    assert read_indexes(bytes.fromhex(data) + b"message") == (indexes, b"message")


def test_the_first_message_in_its_long_form() -> None:
    assert read_indexes(b"\2\0message") == ((0,), b"message")


@pytest.mark.parametrize("data", [b"", b"\2", b"\1", b"\2\1", b"\x80" * 20, b"\xfe\xff\xff\xff\x0f"])
def test_other_indexes_are_rejected(data: bytes) -> None:
    with pytest.raises(WireFormatError, match="indexes"):
        read_indexes(data)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8), st.binary())
def test_indexes_survive_a_round_trip(indexes: list[int], rest: bytes) -> None:
    assert read_indexes(encode_indexes(tuple(indexes)) + rest) == (tuple(indexes), rest)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    for read in (read_prefix, read_indexes):
        with suppress(WireFormatError):
            read(data)
