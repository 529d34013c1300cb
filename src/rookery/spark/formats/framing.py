"""Reads the prefixes of all rows of a column: a zero byte and the id of the schema (`serdes.wire` has the format)."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.serdes.errors import WireFormatError
from rookery.serdes.wire import read_prefix
from rookery.spark.formats.columns import Array, RowError

PREFIX_SIZE: Final = 5
NO_ID: Final = -1


class Frames(NamedTuple):
    """The payloads of a column: from `starts` to `ends` in `data`. Rows without an id are null or have an error."""

    data: Any
    starts: Any
    ends: Any
    ids: Any
    errors: list[RowError]

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)

    def payloads(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield row, id and payload of the rows that have an id."""
        view = memoryview(self.data)
        spans = zip(self.ids.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)
        for row, (schema_id, start, end) in enumerate(spans):
            if schema_id != NO_ID:
                yield row, schema_id, view[start:end].tobytes()

    def schema_ids(self) -> Array:
        return pa.array(self.ids.astype(np.int32), mask=self.ids == NO_ID)


def read_frames(column: Array) -> Frames:
    data, starts, ends = spans_of(column)
    valid = valid_of(column)
    has_prefix = valid & (ends - starts >= PREFIX_SIZE)
    ids = np.full(len(column), NO_ID, np.int64)
    prefixes = data[np.where(has_prefix, starts, 0)[:, None] + np.arange(PREFIX_SIZE)] if has_prefix.any() else None
    if prefixes is not None:
        read = prefixes[:, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        is_framed = has_prefix & (prefixes[:, 0] == 0) & (read < 1 << 31)
        ids[is_framed] = read[is_framed]
    wrong = np.flatnonzero(valid & (ids == NO_ID))
    errors = [_explain(int(row), bytes(data[starts[row] : min(ends[row], starts[row] + PREFIX_SIZE)])) for row in wrong]
    return Frames(data, np.where(ids == NO_ID, starts, starts + PREFIX_SIZE), ends, ids, errors)


def _explain(row: int, data: bytes) -> RowError:
    try:
        read_prefix(data)
    except WireFormatError as error:
        return RowError(row, "WireFormatError", str(error))
    raise AssertionError("the prefix is valid")


def spans_of(column: Array) -> tuple[Any, Any, Any]:
    """Return the bytes of a column, and where each row starts and ends in them."""
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    _, offsets, data = column.buffers()
    kind = np.int64 if is_large else np.int32
    bounds = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1] if len(column) else [0]
    numbers = np.asarray(bounds, np.int64)
    spans = np.zeros(1, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)
    return spans, numbers[:-1], numbers[1:]


def valid_of(column: Array) -> Any:
    if not column.null_count:
        return np.ones(len(column), bool)
    return column.is_valid().to_numpy(zero_copy_only=False)
