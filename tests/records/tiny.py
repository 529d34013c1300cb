"""Batches of very many very small records, built quickly, that fit into a megabyte once they are compressed."""

from typing import Any

from rookery.records.batch import BatchHeader, Codec, read_header, seal
from rookery.records.compression import compress
from rookery.records.record import Record, build_batch


def tiny_batch(
    count: int, timestamp_ms: int, *, codec: Codec = Codec.ZSTD, key: bytes | None = None, **fields: Any
) -> bytearray:
    """Build a batch of `count` records with one timestamp, without values."""
    start, end = bytes(2), (b"\x01" if key is None else bytes([2 * len(key)]) + key) + b"\x01\x00"
    parts: list[bytes] = []
    for index in range(count):
        body = start + _varint(2 * index) + end
        parts += (_varint(2 * len(body)), body)
    header: BatchHeader = read_header(build_batch([Record(0, timestamp_ms, key, None)], codec=codec, **fields))
    counted = header._replace(record_count=count, last_offset_delta=count - 1)
    return seal(counted, compress(codec, b"".join(parts)))


def _varint(raw: int) -> bytes:
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
