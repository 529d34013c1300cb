"""A digest of the rows of a task, which shows whether a replay has written the same rows.

It has a checksum of each column's values and of their lengths over all record batches; the division of the rows into
batches does not matter, their order does. The digest detects plans that are not deterministic, not attacks. CRC-32C
runs at about 20 GB/s, so the cost is negligible.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

_NULL_LENGTH = -1
_NULL_NUMBER = -(2**62)
# The large types occur with spark.sql.execution.arrow.useLargeVarTypes. The digest does not depend on the type.
_OFFSETS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}


class RowDigest:
    def __init__(self) -> None:
        self.row_count = 0
        self._sums: dict[str, int] = {}

    def update(self, rows: pa.RecordBatch) -> None:
        self.row_count += rows.num_rows
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            self._add(name, column)

    def text(self) -> str:
        return ",".join(f"{name}:{self._sums[name]:08x}" for name in sorted(self._sums))

    def _add(self, name: str, column: pa.Array) -> None:
        kind = column.type
        if kind in _OFFSETS:
            self._sum_lengths(name, pc.binary_length(column))
            self._sum(name, _bytes_of(column))
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._sum_lengths(name, pc.list_value_length(column))
            self._add(f"{name}.item", column.flatten())
        elif pa.types.is_struct(kind):
            for index, field in enumerate(kind):
                self._add(f"{name}.{field.name}", column.flatten()[index])
        else:
            numbers = column.cast(pa.int64()) if not pa.types.is_null(kind) else pa.nulls(len(column), pa.int64())
            self._sum(name, pc.fill_null(numbers, _NULL_NUMBER).to_numpy())

    def _sum_lengths(self, name: str, lengths: pa.Array) -> None:
        self._sum(f"{name}.length", pc.fill_null(lengths.cast(pa.int32()), _NULL_LENGTH).to_numpy())

    def _sum(self, name: str, data: Any) -> None:
        self._sums[name] = crc32c(np.ascontiguousarray(data).view(np.uint8).data, self._sums.get(name, 0))


def _bytes_of(column: pa.Array) -> Any:
    """Return the bytes of the values, concatenated. Bytes in null slots do not belong to a value and are dropped."""
    if column.null_count:
        column = column.drop_null()
    _, offsets, data = column.buffers()
    if data is None or len(column) == 0:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, _OFFSETS[column.type])[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
