import pytest

from rookery.base.errors import InvalidBatchError
from rookery.base.types import Buffer
from rookery.records.batch import Codec, check_batch, read_header, seal
from rookery.records.control import ControlType, control_key
from rookery.records.record import Record, build_batch, decode_records
from rookery.storage.compaction.dedupe import (
    ENTRY_SIZE_BYTES,
    AbortedTransactions,
    BatchFilter,
    FilterSettings,
    LastRecord,
    OffsetMap,
)
from rookery.storage.config import FOREVER_MS

_NOW_MS = 1_700_000_000_000
_DAY_MS = 86_400_000


def _batch(
    base_offset: int,
    *pairs: tuple[bytes | None, bytes | None],
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    return build_batch(
        [Record(base_offset + index, _NOW_MS + index, *pair) for index, pair in enumerate(pairs)],
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=1 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def _in_transaction(base_offset: int, *pairs: tuple[bytes | None, bytes | None], base_sequence: int = 0) -> bytearray:
    return _batch(base_offset, *pairs, producer_id=7, base_sequence=base_sequence, transactional=True)


def _marker(offset: int, kind: ControlType, producer_id: int = 7) -> bytearray:
    record = Record(offset, _NOW_MS, control_key(kind), bytes(6))
    return build_batch(
        [record], base_offset=offset, producer_id=producer_id, producer_epoch=1, transactional=True, control=True
    )


class Cleaning:
    """One pass over batches in memory, like that of the cleaner over segments."""

    def __init__(
        self,
        *batches: Buffer,
        now_ms: int = _NOW_MS,
        last_records: dict[int, LastRecord] | None = None,
        end_offset: int = 10**6,
        batch_size_max: int = 10**6,
        delete_retention_ms: int = _DAY_MS,
        latest_offset: int | None = None,
    ) -> None:
        offsets, aborted = OffsetMap(1 << 20), AbortedTransactions()
        for batch in batches:
            header = read_header(batch)
            if header.is_control:
                kind = decode_records(batch)
                aborted.note_marker(header, kind[0].key[3] if kind and kind[0].key else None)
            else:
                aborted.note_data(header)
        for batch in batches:
            header = read_header(batch)
            if not header.is_control and not aborted.contains(header):
                offsets.add_batch(header, batch, size_max=1 << 20)
            offsets.latest_offset = header.last_offset
        if latest_offset is not None:
            offsets.latest_offset = latest_offset
        settings = FilterSettings(
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            batch_size_max=batch_size_max,
            end_offset=end_offset,
        )
        batch_filter = BatchFilter(offsets, settings, last_records=last_records or {}, aborted=aborted)
        self.left = [batch_filter.clean(read_header(batch), batch) for batch in batches]
        for left in self.left:
            if left is not None and read_header(left).record_count:
                header = read_header(left)
                assert seal(header, left[61:]) == left

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        records = [record for batch in self.left if batch is not None for record in decode_records(batch)]
        return [(record.offset, record.key, record.value) for record in records]


def test_only_the_latest_of_each_key_stays() -> None:
    cleaning = Cleaning(_batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")), _batch(3, (b"b", b"2"), (b"c", b"1")))
    assert cleaning.pairs() == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rewritten_batch_keeps_its_offsets_producer_and_timestamps(codec: Codec) -> None:
    batch = _batch(5, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=codec, producer_id=3, base_sequence=9)
    left = Cleaning(batch, _batch(8, (b"a", b"2"), (b"c", b"2"))).left[0]
    assert left is not None
    before, after = read_header(batch), read_header(left)
    assert after.codec_id == codec
    assert (after.base_offset, after.last_offset, after.last_sequence) == (5, 7, before.last_sequence)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (3, 1, 9)
    assert decode_records(left) == [Record(6, _NOW_MS + 1, b"b", b"1")]
    assert after.max_timestamp_ms == _NOW_MS + 1
    assert after.record_count == 1


def test_an_untouched_batch_is_the_same_object() -> None:
    batch = _batch(0, (b"a", b"1"), (b"b", b"1"), codec=Codec.GZIP)
    assert Cleaning(batch).left[0] is batch


def test_records_without_key_are_dropped() -> None:
    assert Cleaning(_batch(0, (None, b"1"), (b"a", b"1"), (None, None))).pairs() == [(1, b"a", b"1")]


def test_records_after_the_mapped_range_stay() -> None:
    first, second = _batch(0, (b"a", b"1"), (b"b", b"1")), _batch(2, (b"a", b"2"), (None, b"x"))
    cleaning = Cleaning(first, second, latest_offset=1)
    assert cleaning.pairs() == [(1, b"b", b"1"), (2, b"a", b"2"), (3, None, b"x")]
    assert cleaning.left[1] is second


def test_tombstone_gets_its_horizon_first_and_is_dropped_after_it() -> None:
    batch = _batch(0, (b"a", None), (b"b", b"1"))
    (first,) = Cleaning(batch).left
    assert first is not None
    header = check_batch(first)
    assert header.delete_horizon_ms == _NOW_MS + _DAY_MS
    assert decode_records(first) == decode_records(batch)
    assert header.max_timestamp_ms == read_header(batch).max_timestamp_ms
    assert Cleaning(first, now_ms=_NOW_MS + _DAY_MS - 1).left == [first]
    assert Cleaning(first, now_ms=_NOW_MS + _DAY_MS).pairs() == [(1, b"b", b"1")]


def test_horizon_is_not_moved_by_later_cleanings() -> None:
    (first,) = Cleaning(_batch(0, (b"a", None), (b"b", b"1"))).left
    assert first is not None
    second = Cleaning(first, _batch(2, (b"b", b"2")), now_ms=_NOW_MS + 5).left[0]
    assert second is not None
    assert read_header(second).delete_horizon_ms == _NOW_MS + _DAY_MS
    assert decode_records(second) == [Record(0, _NOW_MS, b"a", None)]


def test_endless_delete_retention() -> None:
    (left,) = Cleaning(_batch(0, (b"a", None)), delete_retention_ms=FOREVER_MS).left
    assert left is not None
    assert read_header(left).delete_horizon_ms == FOREVER_MS
    assert decode_records(left) == [Record(0, _NOW_MS, b"a", None)]


def test_horizon_does_not_make_a_batch_too_large() -> None:
    batch = _batch(0, *((b"%d" % index, None) for index in range(50)))
    assert Cleaning(batch, batch_size_max=len(batch)).left == [batch]
    superseding = _batch(50, (b"3", b"1"))
    left = Cleaning(batch, superseding, batch_size_max=len(batch)).left[0]
    assert left is not None
    assert read_header(left).delete_horizon_ms is None
    assert len(left) < len(batch)


def test_last_batch_of_a_producer_stays_as_a_header() -> None:
    batch = _batch(0, (b"a", b"1"), (b"a", b"2"), producer_id=3, base_sequence=4, codec=Codec.ZSTD)
    later = _batch(2, (b"a", b"3"))
    assert Cleaning(batch, later).left[0] is None
    left = Cleaning(batch, later, last_records={3: LastRecord(1, 1)}).left[0]
    assert left is not None
    header = read_header(left)
    assert (header.record_count, header.last_offset, header.last_sequence, header.codec_id) == (0, 1, 5, 0)
    assert decode_records(left) == []
    assert Cleaning(left, later, last_records={3: LastRecord(1, 1)}).left[0] == left
    assert Cleaning(left, later).left[0] is None


def test_last_batch_of_the_range_stays_as_a_header() -> None:
    batch = _batch(0, (None, b"x"), (None, b"y"))
    (left,) = Cleaning(batch, end_offset=2).left
    assert left is not None
    assert (read_header(left).record_count, read_header(left).last_offset) == (0, 1)
    assert Cleaning(left, end_offset=3).left == [None]


def test_log_append_time_is_kept() -> None:
    batch = build_batch(
        [Record(0, 5, b"a", b"1"), Record(1, 6, b"b", None), Record(2, 7, b"a", b"2")], log_append_time_ms=_NOW_MS
    )
    (left,) = Cleaning(batch).left
    assert left is not None
    assert decode_records(left) == [Record(1, _NOW_MS, b"b", None), Record(2, _NOW_MS, b"a", b"2")]


def test_aborted_data_is_dropped_and_its_marker_after_the_horizon() -> None:
    committed = _batch(0, (b"a", b"1"))
    aborted = _in_transaction(1, (b"a", b"2"), (b"b", b"2"))
    marker = _marker(3, ControlType.ABORT)
    first = Cleaning(committed, aborted, marker)
    # The aborted record does not supersede the committed one.
    assert first.left == [committed, None, marker]
    second = Cleaning(committed, marker).left[1]
    assert second is not None
    assert read_header(second).delete_horizon_ms == _NOW_MS + _DAY_MS
    assert Cleaning(committed, second, now_ms=_NOW_MS + _DAY_MS - 1).left[1] is second
    assert Cleaning(committed, second, now_ms=_NOW_MS + _DAY_MS).left[1] is None


def test_commit_marker_stays_as_long_as_its_data() -> None:
    data, marker = _in_transaction(0, (b"a", b"1")), _marker(1, ControlType.COMMIT)
    assert Cleaning(data, marker).left == [data, marker]
    superseded = Cleaning(data, marker, _batch(2, (b"a", b"2")))
    assert superseded.left[:2] == [None, marker]


def test_marker_that_is_all_that_is_left_of_a_producer_stays_as_a_header() -> None:
    marker = _marker(0, ControlType.COMMIT)
    (with_horizon,) = Cleaning(marker).left
    assert with_horizon is not None
    (left,) = Cleaning(with_horizon, now_ms=_NOW_MS + _DAY_MS, last_records={7: LastRecord(-1, 1)}).left
    assert left is not None
    assert read_header(left).record_count == 0
    assert read_header(left).is_control
    assert Cleaning(left).left == [None]


def test_two_transactions_of_one_producer_are_independent() -> None:
    first = _in_transaction(0, (b"a", b"1"), base_sequence=0)
    second = _in_transaction(2, (b"a", b"2"), base_sequence=1)
    third = _in_transaction(4, (b"b", b"3"), base_sequence=2)
    cleaning = Cleaning(
        first,
        _marker(1, ControlType.COMMIT),
        second,
        _marker(3, ControlType.ABORT),
        third,
        _marker(5, ControlType.COMMIT),
    )
    assert [left is None for left in cleaning.left] == [False, False, True, False, False, False]


def test_other_control_records_stay() -> None:
    record = Record(0, _NOW_MS, control_key(ControlType.LEADER_CHANGE), b"x")
    batch = build_batch([record], control=True)
    assert Cleaning(batch, now_ms=_NOW_MS * 2).left == [batch]


def test_map_is_bounded_but_accepts_at_least_one_batch() -> None:
    offsets = OffsetMap(10 * ENTRY_SIZE_BYTES, first_offset=25)
    assert not offsets.is_full
    batch = _batch(0, *((b"%d" % index, b"v") for index in range(30)))
    offsets.add_batch(read_header(batch), batch, size_max=1 << 20)
    assert len(offsets) == 5
    assert not offsets.is_full
    later = _batch(30, *((b"%d" % index, b"v") for index in range(30)))
    offsets.add_batch(read_header(later), later, size_max=1 << 20)
    assert offsets.is_full


def test_long_keys_are_distinguished_from_short_ones_and_each_other() -> None:
    keys = [b"k" * size for size in range(100)]
    batch = _batch(0, *((key, b"v") for key in keys))
    assert Cleaning(batch).left == [batch]
    later = _batch(100, *((key, b"v") for key in keys[::2]))
    assert [key for _, key, _ in Cleaning(batch, later).pairs()] == keys[1::2] + keys[::2]


def test_content_that_is_not_records_is_rejected() -> None:
    batch = _batch(0, (b"a", b"1"))
    with pytest.raises(InvalidBatchError):
        Cleaning(seal(read_header(batch), b"garbage"))
