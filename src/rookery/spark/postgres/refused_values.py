"""Finds values that Spark can hold but PostgreSQL cannot, with their rows, before they are copied. Pure.

The server would reject them as well, but reports neither the row nor, in some cases, the column.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

# The first day is the start of Julian days in 4713 BC. PostgreSQL's timestamps end later than Spark's, so only dates
# have an upper limit here.
_FIRST_DAY: Final = -2_440_588
_LAST_DAY: Final = 2_145_042_905
_FIRST_MICROSECOND: Final = _FIRST_DAY * 86_400_000_000
_TOO_EARLY: Final = "is before 4713 BC, where PostgreSQL's times begin"
# The escape of NUL with a backslash that is not itself escaped.
_NUL_IN_JSON: Final = r"(^|[^\\])(\\\\)*\\u0000"
_SHOWN_LENGTH: Final = 60
# Without a key, this many of the first columns identify the row in messages.
_SHOWN_COLUMNS: Final = 3


class Limits(NamedTuple):
    """The limits of a column of the table, in addition to those of PostgreSQL's types."""

    is_required: bool = False
    length_max: int | None = None
    is_jsonb: bool = False


class RefusedValue(NamedTuple):
    """A value that the table cannot hold. `row` is the index in the batch; `why` continues a sentence after the
    column's name."""

    row: int
    column: str
    why: str


def find_refused_values(
    batch: pa.RecordBatch, limits: Mapping[str, Limits], delete_column: str | None = None
) -> list[RefusedValue]:
    """Return the refused values in the order of the rows.

    Rows that delete are not inserted, so the table's limits do not apply to them.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    found = [RefusedValue(row, name, why) for name, column in columns.items() for row, why in _beyond_postgres(column)]
    deleting = set() if delete_column is None else set(_true_rows(columns[delete_column]))
    for name, limit in limits.items():
        found += [RefusedValue(row, name, why) for row, why in _beyond(limit, columns[name]) if row not in deleting]
    return sorted(found)


def _beyond(limits: Limits, column: pa.Array) -> Iterator[tuple[int, str]]:
    if limits.is_required:
        yield from ((row, "is null, and must not be") for row in _true_rows(column.is_null()))
    if limits.length_max is not None:
        # Trailing spaces do not count: as in the SQL standard, PostgreSQL truncates them.
        lengths = pc.utf8_length(pc.utf8_rtrim(column, " "))
        for row in _true_rows(pc.greater(lengths, limits.length_max)):
            yield row, f"has {lengths[row]} characters, and the table's has {limits.length_max}"
    if limits.is_jsonb:
        for row in _true_rows(pc.match_substring_regex(column, _NUL_IN_JSON)):
            yield row, "has a NUL character, which PostgreSQL's jsonb cannot hold"


def _beyond_postgres(column: pa.Array) -> Iterator[tuple[int, str]]:
    kind = column.type
    if pa.types.is_list(kind):
        rows = pc.list_parent_indices(column)
        for place, why in _beyond_postgres(pc.list_flatten(column)):
            yield rows[place].as_py(), f"has an element that {why}"
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        for row in _true_rows(pc.match_substring(column, "\0")):
            yield row, "has a NUL character, which PostgreSQL's texts cannot hold"
    elif pa.types.is_timestamp(kind):
        early = pc.less(column.cast(pa.int64()), _FIRST_MICROSECOND)
        yield from ((row, _TOO_EARLY) for row in _true_rows(early))
    elif pa.types.is_date(kind):
        days = column.cast(pa.int32())
        yield from ((row, _TOO_EARLY) for row in _true_rows(pc.less(days, _FIRST_DAY)))
        for row in _true_rows(pc.greater(days, _LAST_DAY)):
            yield row, "is after the year 5874897, where PostgreSQL's dates end"


def _true_rows(mask: pa.Array) -> list[int]:
    return pc.indices_nonzero(mask.fill_null(False)).to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def describe(refusal: RefusedValue, batch: pa.RecordBatch, key_columns: Sequence[str]) -> str:
    """Return a sentence that names the column, the reason and the row."""
    names = key_columns or batch.schema.names[:_SHOWN_COLUMNS]
    row = ", ".join(f"{name} = {_shown(batch.column(name)[refusal.row])}" for name in names)
    return f"column {refusal.column} ({batch.column(refusal.column).type}) {refusal.why}, in the row with {row}"


def _shown(value: Any) -> str:
    try:
        text = repr(value.as_py())
    except (OverflowError, ValueError):
        # Python's times end with the year 9999.
        text = str(value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64()))
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"
