"""Checks the single records of a produced batch against the topic's rules, and compresses them in another codec.

`inspect` is a generator, because the work can be long: a megabyte holds a million records, or expands to the limit of
`records.compression`. It never processes more than `RECORDS_PER_SLICE` records between two yields, and yields a
function where the work is done outside of Python (decompress, compress): the caller runs that where it blocks nothing,
and sends the result back. `finish` does all of it in one call, for batches that are known to be small. Pure; used by
`broker.inspections`.

Every bad record is reported, as in Kafka: the client fails those, and may send the others again. At most
`RECORD_ERRORS_MAX` of them are listed, so that the response is not a hundred times as large as the batch.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TypeAlias

from rookery.base.bounds import RECORD_ERRORS_MAX, RECORDS_PER_SLICE
from rookery.base.errors import ErrorCode, InvalidBatchError
from rookery.base.types import NO_TIMESTAMP, Buffer, TimestampMs
from rookery.records.batch import BatchHeader, Codec, read_header, seal
from rookery.records.batch_reader import RecordColumns, unpack_pieces
from rookery.records.compression import compress
from rookery.records.dense import unpack_dense
from rookery.records.policy import FOREVER_MS, ProducePolicy
from rookery.records.record import open_records

_SHOWN_ERRORS = 3
_CODEC_MASK = 0x07

# Returns what is wrong with records, by their index in the columns.
RecordCheck: TypeAlias = Callable[[RecordColumns], Mapping[int, str]]
Work: TypeAlias = Callable[[], bytes]
# Yields work, or None between two steps; receives the result of the work by `send`; returns the batch to append.
Inspection: TypeAlias = Generator[Work | None, bytes | None, Buffer]


def must_inspect(header: BatchHeader, policy: ProducePolicy, now_ms: TimestampMs) -> bool:
    """Return whether the header is not enough to check the policy, or the newest record seems to be too new."""
    if policy.compacted or policy.has_record_check or (policy.codec is not None and policy.codec != header.codec_id):
        return True
    if policy.log_append_time:
        return False
    is_too_new = header.max_timestamp_ms - now_ms > policy.timestamp_after_max_ms
    return is_too_new or policy.timestamp_before_max_ms != FOREVER_MS


def inspect(
    batch: Buffer,
    policy: ProducePolicy,
    *,
    partition: str,
    now_ms: TimestampMs,
    size_max: int,
    check: RecordCheck | None = None,
) -> Inspection:
    """Check each record of a batch whose header and checksum are valid; InvalidBatchError lists all bad ones.

    `partition` is for the messages, `size_max` limits the decompressed records, `check` finds bad records beyond the
    policy.
    """
    header = read_header(batch)
    payload = yield lambda: open_records(header, batch, size_max=size_max)
    assert payload is not None
    findings = _Findings(header, policy, partition, now_ms)
    for columns in _read_columns(header, payload):
        findings.add(columns, {} if check is None else check(columns))
        yield None
    findings.raise_if_bad()
    if policy.codec is None or policy.codec == header.codec_id:
        return batch
    codec = policy.codec
    compressed = yield lambda: compress(codec, payload, policy.level)
    assert compressed is not None
    return in_codec(header, codec, compressed)


def finish(inspection: Inspection, result: bytes | None = None) -> Buffer:
    """Run the rest in one call; `result` is that of the work that was yielded last."""
    try:
        while True:
            work = inspection.send(result)
            result = None if work is None else work()
    except StopIteration as end:
        batch: Buffer = end.value
        return batch


def in_codec(header: BatchHeader, codec: Codec, compressed: bytes) -> bytearray:
    """Return the same batch in another codec: only the attributes, the length and the CRC differ around the records."""
    return seal(header._replace(attributes=header.attributes & ~_CODEC_MASK | codec), compressed)


def _read_columns(header: BatchHeader, payload: bytes) -> Iterator[RecordColumns]:
    dense = unpack_dense(header, payload) if header.record_count <= RECORDS_PER_SLICE else None
    if dense is not None:
        yield dense
    else:
        yield from unpack_pieces(header, payload, RECORDS_PER_SLICE)


class _Findings:
    """Collects the bad records of a batch."""

    def __init__(self, header: BatchHeader, policy: ProducePolicy, partition: str, now_ms: TimestampMs) -> None:
        self._policy = policy
        self._partition = partition
        self._oldest_ms = now_ms - policy.timestamp_before_max_ms
        self._newest_ms = now_ms + policy.timestamp_after_max_ms
        self._max_timestamp_ms = header.max_timestamp_ms
        self._errors: list[tuple[int, str]] = []
        self._count = 0
        self._is_about_time = False

    def add(self, columns: RecordColumns, rejected: Mapping[int, str]) -> None:
        keyless = self._find_keyless(columns)
        out_of_range = self._find_out_of_range(columns) - keyless
        self._is_about_time |= bool(out_of_range)
        bad = sorted(keyless | out_of_range | rejected.keys())
        self._count += len(bad)
        for index in bad[: RECORD_ERRORS_MAX - len(self._errors)]:
            offset = columns.offsets[index]
            if index in keyless:
                message = f"Compacted topic cannot accept message without key in topic partition {self._partition}"
            elif index in out_of_range:
                message = (
                    f"Timestamp {columns.timestamps_ms[index]} of message with offset {offset} is out of range. "
                    f"The timestamp should be within [{self._oldest_ms}, {self._newest_ms}]"
                )
            else:
                message = rejected[index]
            # The base offset of a produced batch is 0.
            self._errors.append((offset, message))

    def _find_keyless(self, columns: RecordColumns) -> set[int]:
        if not self._policy.compacted or None not in columns.keys:
            return set()
        return {index for index, key in enumerate(columns.keys) if key is None}

    def _find_out_of_range(self, columns: RecordColumns) -> set[int]:
        stamps_ms, oldest_ms, newest_ms = columns.timestamps_ms, self._oldest_ms, self._newest_ms
        if self._policy.log_append_time or (oldest_ms <= min(stamps_ms) and max(stamps_ms) <= newest_ms):
            return set()
        return {
            index
            for index, stamp_ms in enumerate(stamps_ms)
            if not oldest_ms <= stamp_ms <= newest_ms and stamp_ms != NO_TIMESTAMP
        }

    def raise_if_bad(self) -> None:
        if self._errors:
            raise self._error()
        if not self._policy.log_append_time and self._max_timestamp_ms > self._newest_ms:
            raise InvalidBatchError(
                ErrorCode.INVALID_TIMESTAMP, f"the batch's max timestamp {self._max_timestamp_ms} is not a record's"
            )

    def _error(self) -> InvalidBatchError:
        errors = tuple(self._errors)
        if self._is_about_time:
            message = "One or more records have been rejected due to invalid timestamp"
            return InvalidBatchError(ErrorCode.INVALID_TIMESTAMP, message, record_errors=errors)
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_SHOWN_ERRORS]
        )
        message = (
            f"One or more records have been rejected due to {self._count} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
        return InvalidBatchError(ErrorCode.INVALID_RECORD, message, record_errors=errors)
