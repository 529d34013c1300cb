"""The checks of a produced batch's records: every bad one is found, whatever else is in the batch, in small steps."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rookery.base.bounds import RECORD_ERRORS_MAX, RECORDS_PER_SLICE
from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import Buffer
from rookery.records import inspection
from rookery.records.batch import Codec, check_batch, read_header, seal
from rookery.records.batch_reader import RecordColumns, unpack_pieces
from rookery.records.compression import DECOMPRESSED_SIZE_MAX, compress
from rookery.records.inspection import (
    Inspection,
    RecordCheck,
    finish,
    inspect,
    must_inspect,
)
from rookery.records.policy import ProducePolicy
from rookery.records.record import Record, build_batch, decode_records, encode_records
from tests.records.tiny import tiny_batch

NOW_MS = 1_700_000_000_000
PLAIN = ProducePolicy()
COMPACTED = replace(PLAIN, compacted=True)
TIMED = replace(PLAIN, timestamp_before_max_ms=1000)
BOTH = replace(COMPACTED, timestamp_before_max_ms=1000)

GOOD = Record(0, NOW_MS, b"k", b"v")
KEYLESS = GOOD._replace(key=None)
OLD = GOOD._replace(timestamp_ms=NOW_MS - 1001)
NEW = GOOD._replace(timestamp_ms=NOW_MS + 3_600_001)

NO_KEY = "Compacted topic cannot accept message without key in topic partition orders-0"


def inspection_of(batch: Buffer, policy: ProducePolicy, check: RecordCheck | None = None) -> Inspection:
    return inspect(
        batch, policy, partition="orders-0", now_ms=NOW_MS, size_max=policy.decompressed_size_max, check=check
    )


def numbered(*records: Record) -> list[Record]:
    return [record._replace(offset=index) for index, record in enumerate(records)]


def rejection_of(batch: Buffer, policy: ProducePolicy, check: RecordCheck | None = None) -> InvalidBatchError:
    with pytest.raises(InvalidBatchError) as caught:
        finish(inspection_of(batch, policy, check))
    return caught.value


def out_of_range(record: Record, index: int, policy: ProducePolicy) -> str:
    oldest_ms, newest_ms = NOW_MS - policy.timestamp_before_max_ms, NOW_MS + policy.timestamp_after_max_ms
    return (
        f"Timestamp {record.timestamp_ms} of message with offset {index} is out of range. "
        f"The timestamp should be within [{oldest_ms}, {newest_ms}]"
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("headers", [(), (("h", b"x"),)])
def test_every_bad_record_is_reported_once(codec: Codec, headers: tuple[tuple[str, bytes], ...]) -> None:
    records = numbered(GOOD, KEYLESS, OLD, GOOD, KEYLESS._replace(timestamp_ms=NOW_MS - 5000), NEW, GOOD)
    records = [record._replace(headers=headers) for record in records]
    error = rejection_of(build_batch(records, codec=codec), BOTH)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert str(error) == "One or more records have been rejected due to invalid timestamp"
    assert error.record_errors == (
        (1, NO_KEY),
        (2, out_of_range(OLD, 2, BOTH)),
        (4, NO_KEY),
        (5, out_of_range(NEW, 5, BOTH)),
    )


def test_only_records_without_keys_are_invalid_records_of_which_three_are_shown() -> None:
    error = rejection_of(build_batch(numbered(*[KEYLESS] * 4, GOOD)), COMPACTED)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == tuple((index, NO_KEY) for index in range(4))
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{NO_KEY}')" for index in range(3))
    assert str(error) == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


def test_a_record_check_runs_after_the_policy() -> None:
    def check(columns: RecordColumns) -> dict[int, str]:
        return dict.fromkeys(range(len(columns.values)), "no schema")

    records = numbered(KEYLESS, GOOD, OLD)
    error = rejection_of(build_batch(records), BOTH, check)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert error.record_errors == ((0, NO_KEY), (1, "no schema"), (2, out_of_range(OLD, 2, BOTH)))
    assert rejection_of(build_batch(records), PLAIN, check).code is ErrorCode.INVALID_RECORD


def test_records_without_timestamps_pass() -> None:
    batch = build_batch(numbered(GOOD._replace(timestamp_ms=-1), GOOD))
    assert finish(inspection_of(batch, TIMED)) is batch


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (PLAIN, False),
        (COMPACTED, True),
        (TIMED, True),
        (replace(PLAIN, has_record_check=True), True),
        (replace(PLAIN, codec=Codec.GZIP), True),
        (replace(PLAIN, codec=Codec.NONE), False),
        (replace(TIMED, log_append_time=True), False),
    ],
)
def test_most_batches_need_no_inspection(policy: ProducePolicy, expected: bool) -> None:
    assert must_inspect(read_header(build_batch([GOOD])), policy, NOW_MS) is expected
    if not policy.log_append_time:
        assert must_inspect(read_header(build_batch([NEW])), policy, NOW_MS)


def steps_of(batch: Buffer, policy: ProducePolicy) -> list[str]:
    """Return the steps of an inspection, also if the batch is rejected."""
    steps: list[str] = []
    running, result = inspection_of(batch, policy), None
    try:
        while True:
            work = running.send(result)
            steps.append("records" if work is None else "work")
            result = None if work is None else work()
    except (StopIteration, InvalidBatchError):
        return steps


def test_no_step_reads_more_than_a_few_thousand_records(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def spy(*arguments: Any) -> Iterator[RecordColumns]:
        for columns in unpack_pieces(*arguments):
            sizes.append(len(columns.keys))
            yield columns

    monkeypatch.setattr(inspection, "unpack_pieces", spy)
    batch = tiny_batch(10 * RECORDS_PER_SLICE + 1, NOW_MS, key=b"k")
    assert steps_of(batch, COMPACTED) == ["work"] + ["records"] * 11
    assert sizes == [RECORDS_PER_SLICE] * 10 + [1]
    assert steps_of(batch, replace(PLAIN, codec=Codec.LZ4)) == ["work"] + ["records"] * 11 + ["work"]


def test_bad_records_in_every_step_are_found() -> None:
    records = [KEYLESS if index % 1000 == 999 else GOOD for index in range(10_000)]
    error = rejection_of(build_batch(numbered(*records)), COMPACTED)
    assert [index for index, _ in error.record_errors] == list(range(999, 10_000, 1000))


def test_very_many_bad_records_are_all_counted_but_not_all_listed() -> None:
    error = rejection_of(tiny_batch(20_000, NOW_MS), COMPACTED)
    assert [index for index, _ in error.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert "due to 20000 record errors in total" in str(error)


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    def peak_bytes(count: int) -> int:
        batch = tiny_batch(count, NOW_MS, key=b"kk")
        tracemalloc.start()
        try:
            assert finish(inspection_of(batch, BOTH)) is batch
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Other threads of the process may allocate memory during a measurement, but hardly during each of them.
    one_step, five_steps = (
        min(peak_bytes(count) for _ in range(3)) for count in (RECORDS_PER_SLICE + 1, 5 * RECORDS_PER_SLICE)
    )
    assert five_steps < 2 * one_step


def test_headers_are_not_decoded() -> None:
    record = GOOD._replace(headers=tuple(("", None) for _ in range(100_000)))
    batch = build_batch([record])
    assert finish(inspection_of(batch, COMPACTED)) is batch


@pytest.mark.parametrize("damage", ["count", "cut", "order", "size"])
def test_records_that_cannot_be_decoded(damage: str) -> None:
    count = 3 * RECORDS_PER_SLICE
    records = numbered(*[GOOD] * count)
    if damage == "order":
        records[-1] = records[-1]._replace(offset=count + 5)
    payload = encode_records(records, base_offset=0, base_timestamp_ms=NOW_MS)
    if damage == "cut":
        del payload[-1]
    if damage == "size":
        payload[-len(encode_records(records[-1:], base_offset=0, base_timestamp_ms=NOW_MS))] |= 1
    header = read_header(build_batch([GOOD]))._replace(
        record_count=count - (damage == "count"), last_offset_delta=count - 1 - (damage == "count")
    )
    batch = seal(header, payload)
    check_batch(batch)
    error = rejection_of(batch, COMPACTED)
    assert (error.code, error.record_errors) == (ErrorCode.INVALID_RECORD, ())


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_another_codec(codec: Codec) -> None:
    records = numbered(*[GOOD] * (RECORDS_PER_SLICE + 1))
    inspected = finish(inspection_of(build_batch(records), replace(COMPACTED, codec=codec)))
    assert check_batch(inspected).codec_id == codec
    assert decode_records(inspected) == records


def test_a_bomb_is_rejected() -> None:
    header = read_header(build_batch([GOOD], codec=Codec.ZSTD))
    bomb = seal(header, compress(Codec.ZSTD, bytes(DECOMPRESSED_SIZE_MAX + 1)))
    assert rejection_of(bomb, COMPACTED).code is ErrorCode.CORRUPT_MESSAGE
