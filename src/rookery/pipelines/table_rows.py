"""A partition as a table: the latest record of each key, and the range of offsets that it covers. Pure.

`tables.latest_per_key` later selects the latest record of each decoded key of a topic. A table must not drop a record
that counts there:

- two keys are equal here if their bytes are equal. Different bytes may decode to the same key, and a key may be in two
  partitions: the table keeps the latest record of each, and the last of them is selected later;
- records without a value are kept, since they may delete a key of another partition;
- for each key, the table keeps the latest record that could be decoded and the latest that could not, since it is not
  known here whether the latter counts.

No Python code runs per row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rookery.base.types import Offset
from rookery.base.values import value_class

# An additional column: a record replaces an earlier one with the same identity.
IDENTITY: Final = "rookery.identity"


def identities(keys: pa.Array, failed: pa.Array) -> pa.Array:
    """Return bytes that are equal if keys and outcomes of decoding are equal; a null key differs from an empty one."""
    with_key = pc.if_else(failed, pa.scalar(b"1"), pa.scalar(b"0"))
    without_key = pc.if_else(failed, pa.scalar(b"3"), pa.scalar(b"2"))
    marks = pc.if_else(pc.is_null(keys), without_key, with_key)
    return pc.binary_join_element_wise(pc.fill_null(keys, b""), marks, b"")


@value_class
class KeyTable:
    """The table of the records from `start` to before `end`. Rows are in offset order and have an IDENTITY."""

    start: Offset
    end: Offset
    rows: pa.Table

    @classmethod
    def empty(cls, start: Offset, schema: pa.Schema) -> "KeyTable":
        return cls(start, start, schema.append(pa.field(IDENTITY, pa.binary())).empty_table())

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def can_extend_to(self, start: Offset, end: Offset) -> bool:
        """Return whether the table of these offsets can be made from this one and the records after it."""
        return self.start <= start and self.end <= end

    def since(self, start: Offset) -> "KeyTable":
        """Return the table without the records before `start`, as after their deletion from the topic."""
        if start == self.start:
            return self
        rows = self.rows.filter(pc.greater_equal(self.rows.column("offset"), start))
        return KeyTable(start, max(self.end, start), rows)

    def up_to(self, end: Offset) -> "KeyTable":
        """Return the table with a later `end`; there are no further records before it."""
        return replace(self, end=end)

    def with_records(self, records: Sequence[pa.RecordBatch]) -> "KeyTable":
        """Return the table with the records that follow it, in offset order."""
        if not records:
            return self
        new = _latest(pa.Table.from_batches(records))
        is_replaced = pc.is_in(self.rows.column(IDENTITY), value_set=new.column(IDENTITY))
        # Combine the chunks: a table that grows for hours would consist of thousands.
        rows = pa.concat_tables([self.rows.filter(pc.invert(is_replaced)), new]).combine_chunks()
        return KeyTable(self.start, records[-1].column("offset")[-1].as_py() + 1, rows)


def _latest(rows: pa.Table) -> pa.Table:
    """Return the latest row of each identity; offsets are unique within a partition."""
    found = rows.group_by(IDENTITY, use_threads=False).aggregate([("offset", "max")])
    return rows.filter(pc.is_in(rows.column("offset"), value_set=found.column("offset_max")))
