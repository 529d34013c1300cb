"""Restores a batch in which a single byte was changed, by means of its checksum.

Most damage that is not a truncation is one flipped bit or byte. CRC-32C is linear: the XOR of the stored and the
computed checksum depends only on which bits changed and on their positions. A batch of one kilobyte allows about
250,000 single-byte changes, and there are about four billion checksums, so a match is very unlikely to be a
coincidence.
"""

import struct
from collections.abc import Iterator

from crc32c import crc32c

from rookery.base.errors import InvalidBatchError
from rookery.base.types import Offset
from rookery.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC_V2, compute_crc, read_header
from rookery.records.record import decode_records

# Larger batches take seconds to search, and among so many candidates one could match by coincidence.
_SIZE_MAX = 1 << 14
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CHECKED_AT = 8, 16, 17, 21


def repair_batch(damaged: bytes, expected: Offset, following: Offset | None) -> bytes | None:
    """Return the batch as it was before one byte of `damaged` changed; None if there is no such batch or several.

    The batch must start at or after `expected` and end before `following`, the base offset of the next batch.
    """
    if not HEADER_SIZE <= len(damaged) <= _SIZE_MAX:
        return None
    valid = [batch for batch in _candidates(damaged, expected, following) if _is_valid(batch, expected, following)]
    return valid[0] if len(set(valid)) == 1 else None


def _candidates(damaged: bytes, expected: Offset, following: Offset | None) -> Iterator[bytes]:
    """Yield batches that differ from the damaged one in at most one byte."""
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
        repaired = bytearray(whole)
        _CRC.pack_into(repaired, _CRC_AT, compute_crc(whole))
        if _differences(damaged, repaired) == 1:
            yield bytes(repaired)
        yield from _with_checked_byte(whole, difference)


def _with_base_offset(whole: bytearray, expected: Offset, following: Offset | None) -> Iterator[bytes]:
    """Yield the batch with each base offset that its neighbours allow; the checksum does not cover it."""
    bases = {expected}
    if following is not None:
        bases.add(following - 1 - read_header(whole).last_offset_delta)
    for base in bases:
        if base >= 0:
            repaired = bytearray(whole)
            _OFFSET.pack_into(repaired, 0, base)
            if _differences(whole, repaired) == 1:
                yield bytes(repaired)


def _with_checked_byte(whole: bytearray, difference: int) -> Iterator[bytes]:
    # The effect of flipping each bit of one byte on the checksum: first for the last byte, then for each byte before
    # it.
    effects = [crc32c(bytes([1 << bit])) ^ crc32c(b"\0") for bit in range(8)]
    for position in range(len(whole) - 1, _CHECKED_AT - 1, -1):
        bits = _solve(effects, difference)
        if bits:
            repaired = bytearray(whole)
            repaired[position] ^= bits
            yield bytes(repaired)
        effects = [_shift_effect(effect) for effect in effects]


def _solve(effects: list[int], difference: int) -> int:
    """Return the bits whose effects combine to `difference`, 0 if none do. Single-bit effects are independent."""
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


def _shift_effect(effect: int) -> int:
    """Return the effect of a bit after one more byte follows it."""
    return (effect >> 8) ^ _TABLE[effect & 0xFF]


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_table_entry(value) for value in range(256)]


def _is_valid(batch: bytes, expected: Offset, following: Offset | None) -> bool:
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
