"""What compaction leaves of random batches, compared with a reference that decodes every record without shortcuts."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.base.types import Buffer
from rookery.records.batch import Codec, check_batch, read_header
from rookery.records.record import Record, build_batch, decode_records
from rookery.storage.compaction.dedupe import AbortedTransactions, BatchFilter, FilterSettings, OffsetMap

_NOW_MS = 1_700_000_000_000
_RETENTION_MS = 1000
_SIZE_MAX = 1 << 20

_KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"d", b"k" * 47, b"k" * 48, b"l" * 90])
_VALUES = st.none() | st.sampled_from([b"", b"1", b"v" * 70, b"w" * 9000])
_HEADERS = st.sampled_from([(), (("h", b"1"),), (("x", None), ("y", b"z" * 100))])
# (step of the offset, step of the timestamp, key, value, headers)
_RECORD = st.tuples(st.integers(1, 3), st.integers(-70, 200), _KEYS, _VALUES, _HEADERS)
_RecordParts = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The plan of a batch; `is_dense` gives every offset a record, as in batches before their first cleaning."""

    records: list[_RecordParts]
    codec: Codec
    is_dense: bool
    is_log_append_time: bool


_SHAPES = st.lists(
    st.builds(_Shape, st.lists(_RECORD, min_size=1, max_size=6), st.sampled_from(Codec), st.booleans(), st.booleans()),
    min_size=1,
    max_size=5,
)


def _build(shapes: list[_Shape]) -> list[bytearray]:
    batches, offset, timestamp_ms = [], 0, _NOW_MS
    for shape in shapes:
        base_offset, records = offset, []
        for offset_step, time_step, key, value, headers in shape.records:
            timestamp_ms += time_step
            records.append(Record(offset, timestamp_ms, key, value, headers))
            offset += 1 if shape.is_dense else offset_step
        log_append_time_ms = timestamp_ms if shape.is_log_append_time else None
        batches.append(
            build_batch(records, base_offset=base_offset, codec=shape.codec, log_append_time_ms=log_append_time_ms)
        )
    return batches


def _clean(batches: Sequence[Buffer], *, first_dirty: int, now_ms: int) -> list[Buffer | None]:
    offsets = OffsetMap(1 << 20, first_offset=first_dirty)
    for batch in batches:
        header = read_header(batch)
        if header.last_offset >= first_dirty:
            offsets.add_batch(header, batch, size_max=_SIZE_MAX)
            offsets.latest_offset = header.last_offset
    filter_settings = FilterSettings(
        now_ms=now_ms, delete_retention_ms=_RETENTION_MS, batch_size_max=_SIZE_MAX, end_offset=-1
    )
    batch_filter = BatchFilter(offsets, filter_settings, last_records={}, aborted=AbortedTransactions())
    return [batch_filter.clean(read_header(batch), batch) for batch in batches]


def _expect(batches: Sequence[Buffer], *, first_dirty: int, now_ms: int) -> list[list[Record]]:
    everything = [record for batch in batches for record in decode_records(batch)]
    latest = {record.key: record.offset for record in everything if record.offset >= first_dirty}
    kept = []
    for batch in batches:
        horizon_ms = read_header(batch).delete_horizon_ms
        is_expired = horizon_ms is not None and horizon_ms <= now_ms
        kept.append(
            [
                record
                for record in decode_records(batch)
                if record.key is not None
                and latest.get(record.key, -1) <= record.offset
                and not (record.value is None and is_expired)
            ]
        )
    return kept


def _check(batch: Buffer, left: Buffer | None, expected: list[Record], *, now_ms: int) -> None:
    if left is None:
        assert not expected
        return
    before, after = read_header(batch), read_header(left)
    assert decode_records(left) == expected
    has_tombstones = any(record.value is None for record in expected)
    gets_horizon = has_tombstones and before.delete_horizon_ms is None
    horizon_ms = now_ms + _RETENTION_MS if gets_horizon else before.delete_horizon_ms
    assert after.delete_horizon_ms == horizon_ms
    assert (left is batch) == (len(expected) == before.record_count and not gets_horizon)
    assert after.record_count == len(expected)
    assert (after.base_offset, after.last_offset, after.codec_id) == (
        before.base_offset,
        before.last_offset,
        before.codec_id,
    )
    assert after.is_log_append_time == before.is_log_append_time
    assert after.max_timestamp_ms == max(record.timestamp_ms for record in expected)
    if after.record_count == after.last_offset_delta + 1:
        check_batch(left)


@given(shapes=_SHAPES, first_dirty=st.integers(0, 12), wait_ms=st.sampled_from([1, _RETENTION_MS]))
@settings(max_examples=300, deadline=None)
def test_what_is_left(shapes: list[_Shape], first_dirty: int, wait_ms: int) -> None:
    """Clean twice: the second cleaning finds sparse batches and delete horizons, expired or not."""
    batches: list[Buffer] = list(_build(shapes))
    now_ms = _NOW_MS
    for dirty in (first_dirty, 0):
        expected = _expect(batches, first_dirty=dirty, now_ms=now_ms)
        left = _clean(batches, first_dirty=dirty, now_ms=now_ms)
        for batch, rest, records in zip(batches, left, expected, strict=True):
            _check(batch, rest, records, now_ms=now_ms)
        batches = [rest for rest in left if rest is not None]
        now_ms += wait_ms
