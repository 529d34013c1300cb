"""A single changed byte of a batch is found by the checksum."""

from random import Random

import pytest

from rookery.records.batch import Codec
from rookery.records.record import Record, build_batch
from rookery.storage.byte_repair import repair_batch


def build(size: int = 20, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(10 + index, 1_700_000_000_000 + index, b"k", b"v" * size) for index in range(3)]
    return bytes(build_batch(records, base_offset=10, leader_epoch=3, codec=codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("bits", [0x01, 0x80, 0x5A, 0xFF])
def test_every_changed_byte_is_restored(codec: Codec, bits: int) -> None:
    good = build(codec=codec)
    for position in range(len(good)):
        # The checksum does not cover the leader epoch: a change there cannot be noticed.
        if not 12 <= position < 16:
            damaged = bytearray(good)
            damaged[position] ^= bits
            assert repair_batch(bytes(damaged), 10, 13) == good, position


def test_two_changed_bytes_are_not_restored() -> None:
    good, random = build(200), Random(1)
    for _ in range(20):
        damaged = bytearray(good)
        for position in random.sample(range(21, len(good)), 2):
            damaged[position] ^= random.randrange(1, 256)
        assert repair_batch(bytes(damaged), 10, 13) is None


def test_bytes_that_are_not_a_batch_are_not_restored() -> None:
    assert repair_batch(b"", 0, None) is None
    assert repair_batch(bytes(200), 0, None) is None
    assert repair_batch(b"\xff" * 200, 0, None) is None
