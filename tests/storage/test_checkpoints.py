from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError
from rookery.base.types import TopicPartition
from rookery.storage import checkpoints
from rookery.storage.checkpoints import EpochStart

OFFSETS = {TopicPartition("orders", 0): 12, TopicPartition("a.b-c_d", 31): 2**63 - 1}


def test_offsets_are_kafkas_text() -> None:
    data = checkpoints.encode_offsets(OFFSETS)
    assert data == b"0\n2\norders 0 12\na.b-c_d 31 9223372036854775807\n"
    assert checkpoints.decode_offsets(data) == OFFSETS
    assert checkpoints.decode_offsets(b"0\n0\n") == {}


def test_epochs_are_kafkas_text() -> None:
    entries = [EpochStart(0, 0), EpochStart(4, 17)]
    assert checkpoints.encode_epochs(entries) == b"0\n2\n0 0\n4 17\n"
    assert checkpoints.decode_epochs(b"0\n2\n0 0\n4 17\n") == entries


def test_partition_metadata_is_kafkas_text() -> None:
    topic_id = UUID("00112233-4455-6677-8899-aabbccddeeff")
    data = checkpoints.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"
    assert checkpoints.decode_partition_metadata(data + b"\n") == topic_id


def test_clean_shutdown_is_kafkas_json() -> None:
    assert checkpoints.encode_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'
    assert checkpoints.decode_clean_shutdown(b'{"version":0,"brokerEpoch":42}') == 42
    assert checkpoints.decode_clean_shutdown(b"") == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na 0 1_0\n",
        b"0\n1\na 4294967296 1\n",
        b"0\n1\na 0 " + b"9" * 30 + b"\n",
        b"0\n1\n\xff 0 1\n",
        "0\n1\na 0 ٣\n".encode(),
    ],
)
def test_bad_offsets(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        checkpoints.decode_offsets(data)


@pytest.mark.parametrize("data", [b"0\n2\n1 0\n1 5\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n-1 0\n"])
def test_bad_epochs(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        checkpoints.decode_epochs(data)


MUTATED = st.builds(
    lambda data, position, piece: data[: position % len(data)] + piece + data[position % len(data) + len(piece) :],
    st.sampled_from(
        [
            checkpoints.encode_offsets(OFFSETS),
            checkpoints.encode_epochs([EpochStart(1, 2), EpochStart(3, 4)]),
            checkpoints.encode_partition_metadata(UUID(int=5)),
            checkpoints.encode_clean_shutdown(7),
        ]
    ),
    st.integers(0, 100),
    st.binary(max_size=4),
)


@given(st.binary(max_size=80) | MUTATED)
def test_any_bytes(data: bytes) -> None:
    for decode in (
        checkpoints.decode_offsets,
        checkpoints.decode_epochs,
        checkpoints.decode_partition_metadata,
        checkpoints.decode_clean_shutdown,
    ):
        with suppress(CorruptionError):
            decode(data)
