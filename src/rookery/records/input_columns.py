"""The columns that a user sends, converted to the form that the kernels encode.

Any Arrow data is accepted: tables of many chunks, slices, strings for bytes, dictionaries, views. The types of the
columns are checked for the whole input before anything is encoded (`check_columns`), the values of the rows slice by
slice. Errors are `ColumnError` and name the column, and the row if there is one.

Called by `client.arrow` only. Needs numpy and pyarrow, like `columnar`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rookery.base.types import TimestampMs, TopicName
from rookery.records import columnar
from rookery.records.kernels import HeaderColumn, Int32s, Int64s

# The size of one slice: large enough to make calls cheap, small enough for the processor's caches.
_SLICE_SIZE_BYTES = 4 * 1024 * 1024
NO_PARTITION = -1

_EXPECTED = {
    "value": "binary or string",
    "key": "binary or string",
    "topic": "string",
    "partition": "int32",
    "timestamp": "timestamp, or int64 for milliseconds",
    "headers": "list<struct<key: string, value: binary>>, or map<string, binary>",
}
# Columns of consumed records that have no meaning when they are sent.
_IGNORED = ("offset", "timestampType")


class ColumnError(ValueError):
    """A column that is missing, of a wrong type, or has a value that cannot be sent."""


class InputRows(NamedTuple):
    """A slice of the input."""

    # The index of its first row in the whole input.
    start: int
    rows: columnar.Rows
    topics: list[TopicName]
    # For each row an index into `topics`.
    topic_codes: Int32s
    # For each row; NO_PARTITION if the input does not specify it.
    partitions: Int32s

    def __len__(self) -> int:
        return len(self.topic_codes)


def as_table(data: Any) -> pa.Table:
    """Convert Arrow data: a table, a record batch, or an object with Arrow's C interface (Polars, DuckDB, pandas)."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ColumnError(f"not a RecordBatch, Table or other Arrow data: {error}") from None


def check_columns(table: pa.Table) -> None:
    names = table.schema.names
    if "value" not in names:
        raise ColumnError(f"column value is missing (expected {_EXPECTED['value']}); there are: {', '.join(names)}")
    for name in names:
        if name in _IGNORED:
            continue
        if name not in _EXPECTED:
            raise ColumnError(f"column {name} is unknown; expected are {', '.join(_EXPECTED)}")
        if names.count(name) > 1:
            raise ColumnError(f"column {name} appears {names.count(name)} times")
        kind = table.schema.field(name).type
        if not pa.types.is_null(kind) and not _ACCEPTED[name](kind):
            raise ColumnError(f"column {name} has type {kind}; expected {_EXPECTED[name]}")


def topics_of(table: pa.Table, topic: TopicName | None) -> frozenset[TopicName]:
    """Return all topics that the rows go to: `topic` if it is given, else those in the column."""
    if topic is not None or "topic" not in table.schema.names:
        return frozenset(() if topic is None else (topic,))
    names = pc.unique(table.column("topic").cast(pa.string())).to_pylist()
    return frozenset(name for name in names if name is not None)


def slices(table: pa.Table, *, topic: TopicName | None, now_ms: TimestampMs) -> Iterator[InputRows]:
    """Yield the input in slices that are encoded one by one, in order; all rows go to `topic` if it is given."""
    count = table.num_rows
    step = max(1, count * _SLICE_SIZE_BYTES // max(table.nbytes, 1))
    for start in range(0, count, step):
        yield _read(table.slice(start, step), start, topic, now_ms)


def _read(table: pa.Table, start: int, topic: TopicName | None, now_ms: TimestampMs) -> InputRows:
    columns = {name: table.column(name) for name in table.schema.names}
    count = table.num_rows
    values = columnar.binary_column(_array(columns["value"], pa.large_binary()))
    keys = columnar.null_column(count)
    if "key" in columns:
        keys = columnar.binary_column(_array(columns["key"], pa.large_binary()))
    rows = columnar.Rows(
        _timestamps(columns, count, start, now_ms), keys, values, _headers(columns.get("headers"), start)
    )
    topics, codes = _topics(columns.get("topic"), count, start, topic)
    return InputRows(start, rows, topics, codes, _partitions(columns, count, start))


def _array(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    chunks = column.cast(kind).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], kind)


def _timestamps(columns: dict[str, pa.ChunkedArray], count: int, start: int, now_ms: TimestampMs) -> Int64s:
    if "timestamp" not in columns:
        return np.full(count, now_ms, np.int64)
    column = columns["timestamp"]
    if pa.types.is_timestamp(column.type):
        # Finer units are truncated to Kafka's milliseconds.
        column = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    array = _array(column, pa.int64()).fill_null(now_ms)
    timestamps: Int64s = array.to_numpy(zero_copy_only=False)
    if count and timestamps.min() < 0:
        row = int(np.argmin(timestamps))
        raise ColumnError(f"column timestamp, row {start + row}: {timestamps[row]} is negative")
    return timestamps


def _topics(
    column: pa.ChunkedArray | None, count: int, start: int, topic: TopicName | None
) -> tuple[list[TopicName], Int32s]:
    if topic is not None:
        return [topic], np.zeros(count, np.int32)
    if column is None:
        raise ColumnError("column topic is missing (expected string), and no topic is given")
    array = _array(column, pa.string())
    if array.null_count:
        row = pc.index(array.is_null(), value=True).as_py()
        raise ColumnError(f"column topic, row {start + row}: no topic, and none is given for all rows")
    encoded = array.dictionary_encode()
    codes = encoded.indices.cast(pa.int32()).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes


def _partitions(columns: dict[str, pa.ChunkedArray], count: int, start: int) -> Int32s:
    if "partition" not in columns:
        return np.full(count, NO_PARTITION, np.int32)
    try:
        array = _array(columns["partition"], pa.int32())
    except pa.ArrowInvalid as error:
        raise ColumnError(f"column partition: {error}") from None
    low = pc.min(array).as_py()
    if low is not None and low < 0:
        row = pc.index(array, low).as_py()
        raise ColumnError(f"column partition, row {start + row}: {low} is negative")
    partitions: Int32s = array.fill_null(NO_PARTITION).to_numpy(zero_copy_only=False)
    return partitions


def _headers(column: pa.ChunkedArray | None, start: int) -> HeaderColumn:
    if column is None or pa.types.is_null(column.type):
        return columnar.NO_HEADERS
    array = _array(column, pa.large_list(_header_struct(column.type)))
    pairs = array.flatten()
    if not len(pairs):
        return columnar.NO_HEADERS
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    list_offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=list_offsets[1:])
    keys, values = (pairs.field(name).cast(pa.large_binary()) for name in ("key", "value"))
    nulls = pc.or_(pairs.is_null(), keys.is_null())
    if pc.any(nulls).as_py():
        row = int(np.searchsorted(list_offsets, pc.index(nulls, value=True).as_py(), side="right")) - 1
        raise ColumnError(f"column headers, row {start + row}: a header without a key")
    return columnar.header_column(list_offsets, columnar.binary_column(keys), columnar.binary_column(values))


def _header_struct(kind: pa.DataType) -> pa.DataType:
    """Return the type of the pairs in a column of headers; a map is a list of them."""
    if pa.types.is_map(kind):
        return pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    return kind.value_type


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _is_text(kind) or any(
        accepts(kind)
        for accepts in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(accepts(kind) for accepts in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_bytes(kind.key_type) and (_is_bytes(kind.item_type) or pa.types.is_null(kind.item_type))
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    if not pa.types.is_struct(pair) or sorted(field.name for field in pair) != ["key", "value"]:
        return False
    return _is_bytes(pair.field("key").type) and (
        _is_bytes(pair.field("value").type) or pa.types.is_null(pair.field("value").type)
    )


_ACCEPTED = {
    "value": _is_bytes,
    "key": _is_bytes,
    "topic": _is_text,
    "partition": pa.types.is_integer,
    "timestamp": _is_time,
    "headers": _is_headers,
}
