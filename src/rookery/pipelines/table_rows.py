"""A partition as a table: the latest record of each key, and the offsets that it was made of. Pure.

Whoever reads a table takes the latest record of each decoded key of a topic (`tables.latest_per_key`). What is left out
here must not count there, and so:

- keys are the same here if their bytes are. Different bytes may mean the same key to whoever decodes them, and a key
  may be in two partitions: the latest of each stay, and the last of them wins later;
- records without a value stay, as they may remove a key that another partition has;
- of a key there is the latest record that could be decoded and the latest that could not: it is not known here whether
  the latter counts.

No Python runs per row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rookery.base.types import Offset
from rookery.base.values import value_class

# The column beside the source's by which records replace each other.
IDENTITY: Final = "rookery.identity"


def identities(keys: pa.Array, failed: pa.Array) -> pa.Array:
    """Bytes that are the same for the same key and the same outcome; no key is not the empty one."""
    with_key = pc.if_else(failed, pa.scalar(b"1"), pa.scalar(b"0"))
    without_key = pc.if_else(failed, pa.scalar(b"3"), pa.scalar(b"2"))
    marks = pc.if_else(pc.is_null(keys), without_key, with_key)
    return pc.binary_join_element_wise(pc.fill_null(keys, b""), marks, b"")


@value_class
class KeyTable:
    """Of the records from `start` on, before `end`. Rows are in the order of their offsets and have an IDENTITY."""

    start: Offset
    end: Offset
    rows: pa.Table

    @classmethod
    def empty(cls, start: Offset, schema: pa.Schema) -> "KeyTable":
        return cls(start, start, schema.append(pa.field(IDENTITY, pa.binary())).empty_table())

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def leads_to(self, start: Offset, end: Offset) -> bool:
        """Whether the table of these offsets can be made of this one and the records behind it."""
        return self.start <= start and self.end <= end

    def since(self, start: Offset) -> "KeyTable":
        """Without older records, as a topic is from which they were deleted."""
        if start == self.start:
            return self
        rows = self.rows.filter(pc.greater_equal(self.rows.column("offset"), start))
        return KeyTable(start, max(self.end, start), rows)

    def up_to(self, end: Offset) -> "KeyTable":
        """There are no records any more before `end`."""
        return replace(self, end=end)

    def with_records(self, records: Sequence[pa.RecordBatch]) -> "KeyTable":
        """With those that follow, in the order of their offsets."""
        if not records:
            return self
        new = _latest(pa.Table.from_batches(records))
        is_replaced = pc.is_in(self.rows.column(IDENTITY), value_set=new.column(IDENTITY))
        # In one piece: a table that grows for hours would be made of thousands.
        rows = pa.concat_tables([self.rows.filter(pc.invert(is_replaced)), new]).combine_chunks()
        return KeyTable(self.start, records[-1].column("offset")[-1].as_py() + 1, rows)


def _latest(rows: pa.Table) -> pa.Table:
    """Offsets tell the rows of a partition apart."""
    found = rows.group_by(IDENTITY, use_threads=False).aggregate([("offset", "max")])
    return rows.filter(pc.is_in(rows.column("offset"), value_set=found.column("offset_max")))
