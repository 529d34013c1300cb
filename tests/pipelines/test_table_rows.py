"""A table that grows and loses its first records, compared with a list of all records."""

from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rookery.pipelines.table_rows import IDENTITY, KeyTable, identities

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    failed: bool
    offset: int = 0


# Keys that would be equal without the marks that `identities` appends, or with the marks taken as a part of the key.
KEYS = st.none() | st.sampled_from([b"", b"0", b"1", b"2", b"a", b"a0", b"a1"])
ROWS = st.lists(st.builds(Row, KEYS, st.none() | st.binary(max_size=3), st.booleans()), min_size=1, max_size=8)


class Step(NamedTuple):
    """New batches, the gap of offsets after each (compaction, markers), and the number of records deleted then."""

    batches: list[list[Row]]
    gap: int
    deleted: int


STEPS = st.lists(st.builds(Step, st.lists(ROWS, max_size=3), st.integers(0, 3), st.integers(0, 12)), max_size=6)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    keys, failed = pa.array([row.key for row in rows], pa.binary()), pa.array([row.failed for row in rows])
    values, offsets = (pa.array([row.value for row in rows], pa.binary()), pa.array([row.offset for row in rows]))
    schema = SCHEMA.append(pa.field(IDENTITY, pa.binary()))
    return pa.RecordBatch.from_arrays([keys, values, offsets, identities(keys, failed)], schema=schema)


def latest(history: list[Row]) -> list[dict[str, object]]:
    found = {(row.key, row.failed): row for row in history}
    rows = sorted(found.values(), key=lambda row: row.offset)
    return [{"key": row.key, "value": row.value, "offset": row.offset} for row in rows]


@given(STEPS)
def test_a_table_has_the_latest_of_all_records(steps: list[Step]) -> None:
    table = KeyTable.empty(0, SCHEMA)
    history: list[Row] = []
    end = 0
    for step in steps:
        batches: list[list[Row]] = []
        for rows in step.batches:
            batches.append([row._replace(offset=end + index) for index, row in enumerate(rows)])
            end += len(rows) + step.gap
        history += [row for rows in batches for row in rows]
        table = table.with_records([batch_of(rows) for rows in batches]).up_to(end)
        start = table.start + step.deleted
        end = max(end, start)
        history = [row for row in history if row.offset >= start]
        table = table.since(start)
        assert (table.start, table.end) == (start, end)
        assert table.rows.select(SCHEMA.names).to_pylist() == latest(history)
        assert table.rows.column("key").num_chunks <= 1


def test_ranges_to_which_a_table_can_be_extended() -> None:
    table = KeyTable.empty(5, SCHEMA).up_to(10)
    assert table.can_extend_to(5, 10)
    assert table.can_extend_to(12, 13), "all of its records were deleted"
    assert not table.can_extend_to(5, 9), "the log was truncated"
    assert not table.can_extend_to(4, 10)
