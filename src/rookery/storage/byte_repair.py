"""Finds the one byte of a batch that was changed, by its checksum.

Most damage that is not a cut is a single flipped bit or byte. The checksum is linear: the difference between the stored
and the computed one is that of the changed byte at its place. For a batch of a kilobyte about 250,000 changes are
possible, of four thousand million checksums: a match is the right one.
"""

import struct
from collections.abc import Iterator

from crc32c import crc32c

from rookery.base.errors import InvalidBatchError
from rookery.base.types import Offset
from rookery.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC_V2, compute_crc, read_header
from rookery.records.record import decode_records

# Larger ones take seconds to search, and a match could be one by chance.
_SIZE_MAX = 1 << 14
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CHECKED_AT = 8, 16, 17, 21


def mend_batch(damaged: bytes, expected: Offset, following: Offset | None) -> bytes | None:
    """The batch that these bytes were before one of them was changed; None if there is none or it is not certain.

    It holds offsets from `expected` on and ends before `following`, the base offset of the next batch.
    """
    if not HEADER_SIZE <= len(damaged) <= _SIZE_MAX:
        return None
    good = [batch for batch in _candidates(damaged, expected, following) if _is_good(batch, expected, following)]
    return good[0] if len(set(good)) == 1 else None


def _candidates(damaged: bytes, expected: Offset, following: Offset | None) -> Iterator[bytes]:
    """Batches that differ from the damaged one in one byte at most."""
    whole = bytearray(damaged)
    _LENGTH.pack_into(whole, _LENGTH_AT, len(damaged) - LENGTH_PREFIX_SIZE)
    whole[_MAGIC_AT] = MAGIC_V2
    changed = _differences(damaged, whole)
    if changed > 1:
        return
    difference = compute_crc(whole) ^ read_header(whole).crc
    if not difference:
        yield from _with_base_offset(whole, expected, following) if not changed else [bytes(whole)]
    elif not changed:
        mended = bytearray(whole)
        _CRC.pack_into(mended, _CRC_AT, compute_crc(whole))
        if _differences(damaged, mended) == 1:
            yield bytes(mended)
        yield from _with_checked_byte(whole, difference)


def _with_base_offset(whole: bytearray, expected: Offset, following: Offset | None) -> Iterator[bytes]:
    """The checksum does not cover the base offset: it follows from the neighbours."""
    bases = {expected}
    if following is not None:
        bases.add(following - 1 - read_header(whole).last_offset_delta)
    for base in bases:
        if base >= 0:
            mended = bytearray(whole)
            _OFFSET.pack_into(mended, 0, base)
            if _differences(whole, mended) == 1:
                yield bytes(mended)


def _with_checked_byte(whole: bytearray, difference: int) -> Iterator[bytes]:
    # What flipping each bit of one byte does to the checksum, for the last byte and then for those before it.
    effects = [crc32c(bytes([1 << bit])) ^ crc32c(b"\0") for bit in range(8)]
    for position in range(len(whole) - 1, _CHECKED_AT - 1, -1):
        bits = _solve(effects, difference)
        if bits:
            mended = bytearray(whole)
            mended[position] ^= bits
            yield bytes(mended)
        effects = [_behind_zero(effect) for effect in effects]


def _solve(effects: list[int], difference: int) -> int:
    """Which bits together have this effect, 0 if none do. Effects of single bits are independent."""
    pairs: list[tuple[int, int]] = []
    for bit, effect in enumerate(effects):
        value, bits = effect, 1 << bit
        for known, known_bits in pairs:
            if value ^ known < value:
                value, bits = value ^ known, bits ^ known_bits
        if value:
            pairs.append((value, bits))
            pairs.sort(reverse=True)
    found = 0
    for value, bits in pairs:
        if difference ^ value < difference:
            difference, found = difference ^ value, found ^ bits
    return found if not difference else 0


def _behind_zero(effect: int) -> int:
    """What an effect becomes when one more byte follows."""
    return (effect >> 8) ^ _TABLE[effect & 0xFF]


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_table_entry(value) for value in range(256)]


def _is_good(batch: bytes, expected: Offset, following: Offset | None) -> bool:
    header = read_header(batch)
    if header.size_bytes != len(batch) or header.magic != MAGIC_V2 or compute_crc(batch) != header.crc:
        return False
    if header.base_offset < expected or (following is not None and header.last_offset >= following):
        return False
    try:
        decode_records(batch)
    except InvalidBatchError:
        return False
    return True


def _differences(one: bytes | bytearray, other: bytes | bytearray) -> int:
    return sum(left != right for left, right in zip(one, other, strict=True))
