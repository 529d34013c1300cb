"""Rows on their way: each attempt of a task copies its rows into a table of its own, beside the target.

The table appears with the commit of the rows in it, so a table that can be seen is complete. Its name is made for this
attempt alone: attempts of the same task never meet. The driver publishes the tables of those attempts that Spark
counts, and drops the tables of all others (`staged_tables`).

`__rookery_row` numbers the rows, so that the last row of a key is known; `__rookery_delete` says that a row is to be
deleted by its key.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg import sql

from rookery.spark.postgres.connecting import TableName, connect
from rookery.spark.postgres.tables import type_name

if TYPE_CHECKING:
    import pyarrow as pa

ROW: Final = "__rookery_row"
DELETE: Final = "__rookery_delete"
STAGED_SCHEMA: Final = "name string, partition int, row_count long"
_PREFIX: Final = "rookery_stage"


class StagedColumn(NamedTuple):
    name: str
    type: str


class Staging(NamedTuple):
    """How tasks stage rows: made by the driver, sent to them."""

    dsn: str
    target: TableName
    sink_id: str
    columns: tuple[StagedColumn, ...]

    def __repr__(self) -> str:
        """Without the password: errors may quote it."""
        return f"Staging({self.target}, {self.sink_id})"


class Staged(NamedTuple):
    """A table of staged rows."""

    name: str
    partition: int
    row_count: int


def stage(staging: Staging, partition: int, batches: "Iterable[pa.RecordBatch]") -> Staged | None:
    """None if there are no rows."""
    rows = _rows(batches)
    first = next(rows, None)
    if first is None:
        return None
    name = f"{_prefix(staging.sink_id)}{partition}_{token_hex(6)}"
    table = staging.target.beside(name).identifier
    with connect(staging.dsn) as connection:
        connection.execute(_create(table, staging.columns))
        row_count = _copy(connection, table, staging.columns, chain([first], rows))
    return Staged(name, partition, row_count)


def _rows(batches: "Iterable[pa.RecordBatch]") -> Iterator[tuple[Any, ...]]:
    numbers = count()
    for batch in batches:
        yield from zip(*map(_values, batch.columns), numbers, strict=False)


def _values(column: "pa.Array") -> list[Any]:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    moments = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False)
    return moments.astype(object).tolist()  # type: ignore[no-any-return]  # pyarrow has no types


def _create(table: sql.Identifier, columns: Sequence[StagedColumn]) -> sql.Composed:
    """Not logged: what a crash of the server takes away is staged again with the batch."""
    parts = [sql.SQL("{} {}").format(sql.Identifier(column.name), type_name(column.type)) for column in columns]
    parts.append(sql.SQL("{} bigint").format(sql.Identifier(ROW)))
    return sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(table, sql.SQL(", ").join(parts))


def _copy(
    connection: psycopg.Connection,
    table: sql.Identifier,
    columns: Sequence[StagedColumn],
    rows: Iterator[tuple[Any, ...]],
) -> int:
    statement = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(table)
    with connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            copy.set_types([*(column.type for column in columns), "int8"])
            for row in rows:
                copy.write_row(row)
        return cursor.rowcount


def staged_tables(connection: psycopg.Connection, target: TableName, sink_id: str) -> list[TableName]:
    """All tables of the sink that hold staged rows, whoever staged them."""
    found = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND starts_with(c.relname, %s) AND n.nspname = coalesce(%s, current_schema())",
        (_prefix(sink_id), target.schema),
    )
    return [target.beside(row[0]) for row in found.fetchall()]


def drop_tables(connection: psycopg.Connection, tables: Sequence[TableName]) -> None:
    if tables:
        names = sql.SQL(", ").join(table.identifier for table in tables)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names))


def _prefix(sink_id: str) -> str:
    """Of the tables of this sink; a name in PostgreSQL has 63 bytes, an id of ours any number."""
    return f"{_PREFIX}_{blake2b(sink_id.encode(), digest_size=8).hexdigest()}_"
