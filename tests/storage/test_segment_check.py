"""The pass after a crash, compared with a slow one that checks each batch by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError
from rookery.records.batch import compute_crc, read_header, stamp
from rookery.storage import segment_check
from rookery.storage.epochs import LeaderEpochs
from rookery.storage.producers import ProducerStates
from rookery.storage.segment import Segment
from rookery.storage.segment_check import CheckedWalk
from tests.faults.files import CrashFiles
from tests.storage.samples import START_MS, batch

BASE = 100
LIMIT = 1_000_000
PATH = Path("/00000000000000000100.log")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read pieces so small that headers and batches cross their ends."""
    monkeypatch.setattr(segment_check, "_HEADERS_SIZE", 100)
    monkeypatch.setattr(segment_check, "_BATCHES_SIZE", 250)


def segment_on(data: bytes) -> tuple[CrashFiles, Segment]:
    files = CrashFiles()
    files.write_file(PATH, data)
    return files, Segment(files, Path("/"), BASE, index_interval_bytes=150, created_ms=START_MS)


def stored(sizes: list[int], *, producer_id: int = -1) -> list[bytearray]:
    """Return batches as a leader has written them; the epoch of each is half its index."""
    offset, batches = BASE, []
    for place, size in enumerate(sizes):
        sequence = place if producer_id >= 0 else -1
        data = batch(
            START_MS + size,
            value=bytes(size),
            producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1,
            sequence=sequence,
        )
        stamp(data, offset, place // 2)
        offset += 1
        batches.append(data)
    return batches


def walk(segment: Segment, recovery_point: int = 0) -> tuple[CheckedWalk, LeaderEpochs, ProducerStates, str]:
    epochs, producers = LeaderEpochs(), ProducerStates()
    checked = CheckedWalk(segment, epochs, producers, recovery_point=recovery_point, limit=LIMIT)
    segment.reset_indexes()
    error = ""
    try:
        segment.index_batches(checked.batches())
    except CorruptionError as reason:
        error = str(reason)
    return checked, epochs, producers, error


def valid_batches(data: bytes, batches: list[bytearray]) -> Iterator[bytearray]:
    """Yield the batches that are unchanged in `data`."""
    position = 0
    for written in batches:
        if data[position : position + len(written)] != written:
            return
        position += len(written)
        yield written


@given(
    sizes=st.lists(st.integers(0, 600), max_size=12),
    cut=st.integers(0, 3000),
    producer_id=st.sampled_from([-1, 7]),
    recovery_point=st.integers(BASE, BASE + 12),
)
def test_valid_batches_are_indexed_and_noted(sizes: list[int], cut: int, producer_id: int, recovery_point: int) -> None:
    batches = stored(sizes, producer_id=producer_id)
    data = b"".join(batches)[:cut]
    good = list(valid_batches(data, batches))
    _, segment = segment_on(data)
    checked, epochs, producers, error = walk(segment, recovery_point)
    assert checked.valid_size == sum(map(len, good))
    assert checked.end_offset == BASE + len(good)
    assert bool(error) == (checked.valid_size < len(data))
    assert [entry.epoch for entry in epochs.entries()] == sorted({place // 2 for place in range(len(good))})
    state = producers.get(7)
    assert (state.last_sequence if state else None) == (len(good) - 1 if good and producer_id == 7 else None)
    _, other = segment_on(b"".join(good))
    other.rebuild_indexes()
    assert segment.offset_index.entries() == other.offset_index.entries()
    assert segment.time_index.entries() == other.time_index.entries()
    assert segment.max_timestamp_ms == other.max_timestamp_ms


@given(place=st.integers(0, 4), recovery_point=st.integers(BASE, BASE + 6))
def test_checksums_count_from_the_recovery_point_on(place: int, recovery_point: int) -> None:
    batches = stored([40] * 5)
    # The last byte of a value: the header and the offsets do not change.
    batches[place][-2] ^= 0xFF
    assert compute_crc(batches[place]) != read_header(batches[place]).crc
    _, segment = segment_on(b"".join(batches))
    checked, *_ = walk(segment, recovery_point)
    is_checked = BASE + place >= recovery_point
    assert checked.end_offset == BASE + (place if is_checked else 5)


@pytest.mark.parametrize("offset", [BASE - 1, BASE, LIMIT])
def test_offsets_must_increase_and_stay_below_the_next_segment(offset: int) -> None:
    batches = stored([1, 1])
    stamp(batches[1], offset, 0)
    _, segment = segment_on(b"".join(batches))
    checked, *_, error = walk(segment)
    assert checked.end_offset == BASE + 1
    assert "do not follow" in error


def test_a_segment_is_read_once_and_in_large_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_check, "_BATCHES_SIZE", 100_000)
    data = b"".join(stored([1000] * 1000))
    files, segment = segment_on(data)
    files.calls.clear()
    checked, *_ = walk(segment)
    assert checked.valid_size == len(data)
    reads = [call.name for call in files.calls].count("read_at")
    assert reads <= len(data) // 100_000 + 3
