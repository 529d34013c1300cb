"""Converts batches of records to and from Arrow columns, by the compiled passes of `kernels`.

Decoding: the caller (`client.arrow`) has found the batches, checked and decompressed them, and passes for each the
position of its records and the range of offsets to keep. One pass over the bytes writes every column; a second one
writes the headers, if there are any. Memory is allocated before, for the most that the bytes can hold: a record takes
at least 7 of them, and no key or value is longer than its batch. Pages that are never written use no physical memory.

Encoding: one pass over the rows appends each to the open batch of its partition, and opens another one when the batch
is full. All batches lie in one buffer, which is divided afterwards.

Needs numpy, pyarrow and numba (the extra `columns`), and is therefore imported only when columns are used. The schema
is that of Spark's Kafka source, with times in milliseconds.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.base.types import Buffer, Offset, TimestampMs, TopicPartition
from rookery.records import kernels
from rookery.records.kernels import BinaryColumn, Bytes, HeaderColumn, Int32s, Int64s

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)
# Arrow's offsets into a column's bytes have 32 bits.
CHUNKS_SIZE_MAX = 2**31 - 1
_SMALLEST_RECORD_SIZE = 7


def _frozen(array: np.ndarray[tuple[int], np.dtype[Any]]) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """Return a read-only view: kernels are compiled for read-only inputs."""
    view = array.view()
    view.flags.writeable = False
    return view


_NO_BYTES: Bytes = _frozen(np.empty(0, np.uint8))
_NO_INT64S: Int64s = _frozen(np.empty(0, np.int64))
NO_BINARY: BinaryColumn = (_frozen(np.zeros(1, np.int64)), _NO_BYTES, _NO_BYTES)
NO_HEADERS: HeaderColumn = (_NO_INT64S, NO_BINARY, NO_BINARY)


class BatchRange(NamedTuple):
    """One batch to decode; the fields are the columns of the kernel's table."""

    # The range of its records in the chunk's data.
    start: int
    end: int
    record_count: int
    # Not negative, and with the delta within 64 bits.
    base_offset: Offset
    last_offset_delta: int
    base_timestamp_ms: TimestampMs
    # 0 if the producer set the records' timestamps, 1 if the broker set all of them to `append_timestamp_ms`.
    timestamp_type: int
    append_timestamp_ms: TimestampMs
    # The range of offsets to keep, without `end_offset`.
    first_offset: Offset
    end_offset: Offset


class Chunk(NamedTuple):
    """Batches of one partition whose records lie, decompressed, in one buffer."""

    partition: TopicPartition
    data: Buffer
    batches: list[BatchRange]


class _Rows(NamedTuple):
    """`kernels.RowArrays` with named fields."""

    offsets: Int64s
    timestamps: Int64s
    timestamp_types: Int32s
    key_offsets: Int32s
    key_data: Bytes
    key_valid: Bytes
    value_offsets: Int32s
    value_data: Bytes
    value_valid: Bytes


class EncodedBatch(NamedTuple):
    group: int
    # A view of the buffer that all batches of a pass share: not copied on its way to the socket.
    payload: memoryview
    record_count: int
    base_timestamp_ms: TimestampMs
    max_timestamp_ms: TimestampMs
    record_size_max: int


class Decoded(NamedTuple):
    records: pa.RecordBatch
    # For each chunk, the index of the first malformed batch, or None. That batch is left out, and so is everything
    # after it in its partition: for later chunks of that partition the index is 0.
    malformed: list[int | None]


def decode_columns(chunks: Sequence[Chunk]) -> Decoded:
    """Decode all records of these chunks, which have at most `CHUNKS_SIZE_MAX` bytes of records in total."""
    run = kernels.load_kernels()
    tables = [np.array(chunk.batches, np.int64).reshape(-1, kernels.DECODE_COLUMNS) for chunk in chunks]
    arrays = [np.frombuffer(chunk.data, np.uint8) for chunk in chunks]
    rows = _allocate_rows(tables)
    state = np.zeros(kernels.STATE_SIZE, np.int64)
    malformed: list[int | None] = []
    stopped: set[TopicPartition] = set()
    counts = []
    for chunk, data, table in zip(chunks, arrays, tables, strict=True):
        before = int(state[kernels.ROWS])
        failed = 0 if chunk.partition in stopped else run.decode(data, table, rows[:], state)
        if failed != kernels.OK:
            stopped.add(chunk.partition)
        malformed.append(None if failed == kernels.OK else failed)
        counts.append(int(state[kernels.ROWS]) - before)
    headers = _no_headers(int(state[kernels.ROWS]))
    if state[kernels.HEADERS]:
        good = [table[:failed] for table, failed in zip(tables, malformed, strict=True)]
        headers = _decode_headers(run, list(zip(arrays, good, strict=True)), state)
    partitions = [chunk.partition for chunk in chunks]
    return Decoded(_record_batch(rows, state, headers, partitions, counts), malformed)


def _allocate_rows(tables: Sequence[kernels.Table]) -> _Rows:
    size = sum(int((table[:, kernels.END] - table[:, kernels.START]).sum()) for table in tables)
    count = sum(int(np.clip(table[:, kernels.RECORD_COUNT], 0, None).sum()) for table in tables)
    count = min(count, size // _SMALLEST_RECORD_SIZE)
    return _Rows(
        offsets=_allocate(count, np.int64),
        timestamps=_allocate(count, np.int64),
        timestamp_types=_allocate(count, np.int32),
        key_offsets=_offsets(count),
        key_data=_allocate(size, np.uint8),
        key_valid=_allocate(count, np.uint8),
        value_offsets=_offsets(count),
        value_data=_allocate(size, np.uint8),
        value_valid=_allocate(count, np.uint8),
    )


def _allocate(count: int, kind: type[Any]) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """Allocate from Arrow's pool, which reuses memory: page faults of new memory would take as long as decoding."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(pa.allocate_buffer(max(size, 8)), kind)[:count]


def _offsets(count: int) -> Int32s:
    offsets = _allocate(count + 1, np.int32)
    offsets[0] = 0
    return offsets


def _record_batch(
    rows: _Rows, state: Int64s, headers: pa.Array, partitions: Sequence[TopicPartition], counts: Sequence[int]
) -> pa.RecordBatch:
    count = int(state[kernels.ROWS])
    keys, values = _used(rows.key_data, state[kernels.KEY_BYTES]), _used(rows.value_data, state[kernels.VALUE_BYTES])
    key_valid = rows.key_valid[:count] if state[kernels.NULL_KEYS] else None
    value_valid = rows.value_valid[:count] if state[kernels.NULL_VALUES] else None
    numbers = np.repeat(np.array([tp.partition for tp in partitions], np.int32), counts)
    columns = [
        _binary(rows.key_offsets[: count + 1], keys, key_valid),
        _binary(rows.value_offsets[: count + 1], values, value_valid),
        _topics([tp.topic for tp in partitions], counts),
        _fixed(pa.int32(), numbers),
        _fixed(pa.int64(), rows.offsets[:count]),
        _fixed(SCHEMA.field("timestamp").type, rows.timestamps[:count]),
        _fixed(pa.int32(), rows.timestamp_types[:count]),
        headers,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _used(data: Bytes, size: int) -> Bytes:
    """Return the first bytes of an array, as a copy if they are less than half of it: the columns may live long."""
    return data[:size].copy() if 2 * size < len(data) else data[:size]


def _fixed(kind: pa.DataType, values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _binary(offsets: Int32s, data: Bytes, valid: Bytes | None, kind: pa.DataType | None = None) -> pa.Array:
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(offsets) - 1, buffers)


def _topics(topics: Sequence[str], counts: Sequence[int]) -> pa.Array:
    """Return each topic once per row; a cast from a dictionary would take twice as long."""
    names = [topic.encode() for topic in topics]
    data = b"".join([name * count for name, count in zip(names, counts, strict=True)])
    offsets = _offsets(sum(counts))
    np.cumsum(np.repeat(np.array([len(name) for name in names], np.int32), counts), out=offsets[1:])
    return _binary(offsets, np.frombuffer(data, np.uint8), None, pa.string())


def _no_headers(count: int) -> pa.Array:
    """Return empty lists instead of nulls: Spark takes ten times as long with a column of nulls."""
    offsets = pa.py_buffer(np.zeros(count + 1, np.int32))
    return pa.Array.from_buffers(
        pa.list_(HEADER_TYPE), count, [None, offsets], children=[pa.array([], type=HEADER_TYPE)]
    )


def _decode_headers(run: kernels.Kernels, parts: list[tuple[Bytes, kernels.Table]], state: Int64s) -> pa.Array:
    count, rows = int(state[kernels.HEADERS]), int(state[kernels.ROWS])
    list_offsets, key_offsets, value_offsets = _offsets(rows), _offsets(count), _offsets(count)
    key_data = _allocate(int(state[kernels.HEADER_KEY_BYTES]), np.uint8)
    value_data = _allocate(int(state[kernels.HEADER_VALUE_BYTES]), np.uint8)
    valid = _allocate(count, np.uint8)
    headers = (list_offsets, key_offsets, key_data, value_offsets, value_data, valid)
    progress = np.zeros(kernels.STATE_SIZE, np.int64)
    for data, table in parts:
        run.decode_headers(data, table, headers, progress)
    keys = _utf8(_binary(key_offsets, key_data, None))
    values = _binary(value_offsets, value_data, valid)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    return pa.Array.from_buffers(pa.list_(HEADER_TYPE), rows, [None, pa.py_buffer(list_offsets)], children=[pairs])


def _utf8(keys: pa.Array) -> pa.Array:
    """Return header keys as text; bytes that are not UTF-8 are replaced, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def binary_column(array: pa.Array) -> BinaryColumn:
    """Return an Arrow array of type large_binary as a kernel's input, without copying its bytes."""
    count, start = len(array), array.offset
    bitmap, offsets, data = array.buffers()
    valid = _NO_BYTES
    if array.null_count:
        bits = np.frombuffer(bitmap, np.uint8)[start // 8 : (start + count + 7) // 8]
        valid = np.unpackbits(bits, bitorder="little")[start % 8 :][:count]
    if not count:
        return NO_BINARY
    numbers = np.frombuffer(offsets, np.int64)[start : start + count + 1]
    content = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    return _frozen(numbers), _frozen(content), _frozen(np.ascontiguousarray(valid))


def null_column(count: int) -> BinaryColumn:
    """Return a column of `count` nulls."""
    return _frozen(np.zeros(count + 1, np.int64)), _NO_BYTES, _frozen(np.zeros(count, np.uint8))


def header_column(list_offsets: Int64s, keys: BinaryColumn, values: BinaryColumn) -> HeaderColumn:
    return _frozen(list_offsets), keys, values


class Rows(NamedTuple):
    """Columns to encode, of equal length."""

    timestamps_ms: Int64s
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumn = NO_HEADERS


def hash_keys(keys: BinaryColumn, count: int) -> Int32s:
    """Return the positive murmur2 hash of each key, -1 for null."""
    hashes = np.empty(count, np.int32)
    kernels.load_kernels().hash_keys(keys, hashes)
    return hashes


def row_sizes(rows: Rows) -> Int64s:
    """Return an upper bound of the size of each row in a batch."""
    (key_offsets, _, _), (value_offsets, _, _) = rows.keys, rows.values
    sizes: Int64s = np.diff(key_offsets) + np.diff(value_offsets) + kernels.RECORD_OVERHEAD_MAX
    list_offsets, (header_key_offsets, _, _), (header_value_offsets, _, _) = rows.headers
    if len(list_offsets):
        sizes += np.diff(header_key_offsets[list_offsets]) + np.diff(header_value_offsets[list_offsets])
        sizes += kernels.HEADER_OVERHEAD_MAX * np.diff(list_offsets)
    return sizes


def largest_row_size(rows: Rows) -> int:
    """Return the largest of `row_sizes` without storing them."""
    no_groups: Int32s = np.empty(0, np.int32)
    return kernels.load_kernels().measure(no_groups, rows.keys, rows.values, rows.headers, np.zeros(1, np.int64))


def encode_columns(rows: Rows, groups: Int32s, *, group_count: int, batch_size_max: int) -> Iterator[EncodedBatch]:
    """Encode the rows of each group into batches, in the order of their first rows.

    `groups` has a number below `group_count` for each row. A batch has at most `batch_size_max` bytes of records,
    uncompressed, or a single record.
    """
    count = len(groups)
    if not count:
        return
    run = kernels.load_kernels()
    # An upper bound for each group; pages that are never written use no physical memory.
    sizes = np.zeros(group_count, np.int64)
    run.measure(groups, rows.keys, rows.values, rows.headers, sizes)
    ends = np.cumsum(sizes)
    cursors, size = ends - sizes, int(ends[-1])
    out = _allocate(size, np.uint8)
    # Two consecutive batches of a group have more than `batch_size_max` bytes in total.
    batch_count_max = min(count, group_count + 2 * size // max(batch_size_max, 1))
    batches = np.empty((batch_count_max, kernels.ENCODE_COLUMNS), np.int64)
    columns = (rows.timestamps_ms, rows.keys, rows.values, rows.headers)
    written = run.encode(groups, *columns, batch_size_max, cursors, out, batches)
    view = out.data
    for group, start, end, *numbers in batches[:written].tolist():
        yield EncodedBatch(group, view[start:end], *numbers)
