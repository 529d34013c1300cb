"""The records that the conformance tests write and expect to read back, with any client."""

from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_123
TIMESTAMP_STEP_MS = 1_000


class Sample(NamedTuple):
    """A record with the fields that all clients have."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


def make_samples(count: int, *, value_size: int = 100, prefix: str = "") -> list[Sample]:
    """Return records with keys, headers and rising timestamps; each seventh key is null, each eleventh value empty."""
    return [_make_sample(index, value_size=value_size, prefix=prefix) for index in range(count)]


def _make_sample(index: int, *, value_size: int, prefix: str) -> Sample:
    key = None if index % 7 == 3 else f"{prefix}key-{index}".encode()
    value = b"" if index % 11 == 5 else f"{prefix}{index}:".encode().ljust(value_size, b"x")
    headers = (("index", str(index).encode()), ("unicode-ä", "ö".encode())) if index % 2 else ()
    return Sample(key, value, FIRST_TIMESTAMP_MS + index * TIMESTAMP_STEP_MS, headers)
