"""Stages rows: each attempt of a task copies its rows into its own table, in the schema of the target.

The table is created in the transaction that copies the rows, so a visible table is complete. Its name is unique to the
attempt, so attempts of the same task do not interfere. The driver merges the tables of the attempts that Spark counts
and drops all others (`staged_tables`).

`__rookery_row` numbers the rows, to find the last row of a key; `__rookery_delete` marks rows that delete the row with
their key. Dead letters of rows that the table refuses are staged in a second table of the attempt.

Times are copied as numbers, which Spark and PostgreSQL both use: Python's times end with the year 9999, theirs do not.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import chain, count
from secrets import token_hex
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from rookery.spark.postgres.connections import TableName, connect
from rookery.spark.postgres.errors import PostgresError, UnavailableError
from rookery.spark.postgres.letters import ORIGIN, DeadLetters, make_letters, portions, to_bytes
from rookery.spark.postgres.refused_values import Limits, describe, find_refused_values
from rookery.spark.postgres.tables import type_name

ROW: Final = "__rookery_row"
DELETE: Final = "__rookery_delete"
LETTER_COUNT: Final = "letter_count"
LETTERS: Final = "letters"
STAGED_SCHEMA: Final = "name string, partition int, row_count long, has_letters boolean"
_PREFIX: Final = "rookery_stage"
# PostgreSQL counts times from the year 2000.
_EPOCH_DAYS: Final = 10_957
_EPOCH_MICROSECONDS: Final = _EPOCH_DAYS * 86_400_000_000
_PORTION_BYTES: Final = 4 * 1024 * 1024


# Called in a task with rows that the table cannot hold, and with the reason for each row.
OnRefused: TypeAlias = Callable[[pa.RecordBatch, list[str]], None]


class StagedColumn(NamedTuple):
    name: str
    type: str
    limits: Limits = Limits()
    # Whether the text is JSON that Spark made of a nested value.
    is_json: bool = False


class Staging(NamedTuple):
    """How tasks stage rows; the driver creates it and sends it to the tasks.

    Rows that the table cannot hold become dead letters, are passed to `on_refused`, or are errors.
    """

    dsn: str
    target: TableName
    sink_id: str
    columns: tuple[StagedColumn, ...]
    key_columns: tuple[str, ...] = ()
    deletes: bool = False
    on_refused: OnRefused | None = None
    dead_letters: DeadLetters | None = None

    def __repr__(self) -> str:
        """Return a text without the dsn, which may contain a password: error messages may quote it."""
        return f"Staging({self.target}, {self.sink_id})"


class Staged(NamedTuple):
    """A table of staged rows, or of portions of dead letters."""

    name: str
    partition: int
    row_count: int
    has_letters: bool = False


def stage(staging: Staging, partition: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
    """Stage rows and return the tables of this attempt; none if there are no rows.

    Raises PostgresError for a row that the table refuses, unless `staging` says what to do with it.
    """
    with _LetterTable(staging, partition) as letters:
        rows = _rows(staging, batches, letters)
        first = next(rows, None)
        staged = [] if first is None else [_stage_rows(staging, partition, chain([first], rows))]
    return staged + letters.staged()


def _stage_rows(staging: Staging, partition: int, rows: Iterator[tuple[Any, ...]]) -> Staged:
    name = _new_name(staging, partition)
    table = staging.target.sibling(name).identifier
    with connect(staging.dsn) as connection:
        connection.execute(_create(table, staging.columns))
        row_count = _copy(connection, table, staging.columns, rows)
    return Staged(name, partition, row_count)


class _LetterTable:
    """The table of dead letters, created with the first one. It has its own connection, because that of the rows is in
    the middle of a COPY."""

    def __init__(self, staging: Staging, partition: int) -> None:
        self._staging = staging
        self._partition = partition
        self._name = _new_name(staging, partition)
        self._resources = ExitStack()
        self._connection: psycopg.Connection | None = None
        self._portion_count = 0

    def add(self, letters: pa.Table) -> None:
        table = self._staging.target.sibling(self._name).identifier
        if self._connection is None:
            self._connection = self._resources.enter_context(connect(self._staging.dsn))
            columns = (StagedColumn(LETTER_COUNT, "bigint"), StagedColumn(LETTERS, "bytea"))
            self._connection.execute(_create(table, columns))
        insert = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(table)
        for portion in portions(letters, _PORTION_BYTES):
            self._connection.execute(insert, (portion.num_rows, to_bytes(portion), self._portion_count))
            self._portion_count += 1

    def staged(self) -> list[Staged]:
        count = self._portion_count
        return [Staged(self._name, self._partition, count, has_letters=True)] if count else []

    def __enter__(self) -> "_LetterTable":
        return self

    def __exit__(self, *raised: Any) -> None:
        """Commit, or roll back after an exception."""
        self._resources.__exit__(*raised)


def _rows(staging: Staging, batches: Iterable[pa.RecordBatch], letters: _LetterTable) -> Iterator[tuple[Any, ...]]:
    numbers = count()
    for batch in batches:
        columns = _accepted(staging, batch, letters).columns
        yield from zip(*map(_values, columns), numbers, strict=False)


def _accepted(staging: Staging, given: pa.RecordBatch, letters: _LetterTable) -> pa.RecordBatch:
    """Return the rows that the table can hold; pass the others on. Raises PostgresError if `staging` has no target."""
    batch = given.select([name for name in given.schema.names if name != ORIGIN])
    limits = {column.name: column.limits for column in staging.columns}
    refused_values = find_refused_values(batch, limits, DELETE if staging.deletes else None)
    # Keep the first reason of each row.
    reasons = {refusal.row: describe(refusal, batch, staging.key_columns) for refusal in reversed(refused_values)}
    if not reasons:
        return batch
    rows = sorted(reasons)
    texts = [reasons[row] for row in rows]
    if staging.dead_letters is not None:
        letters.add(_letters(staging, staging.dead_letters, given.take(rows), texts))
    elif staging.on_refused is not None:
        staging.on_refused(batch.take(rows), texts)
    else:
        more = f", and {len(rows) - 1} more such rows near it" if len(rows) > 1 else ""
        raise PostgresError(
            f"table {staging.target}: {texts[0]}{more}; filter such rows out, or handle them with dead_letters or "
            "on_refused (in a pipeline: on_error: dead-letter)"
        )
    return batch.filter(pa.array([row not in reasons for row in range(batch.num_rows)]))


def _letters(staging: Staging, to: DeadLetters, refused: pa.RecordBatch, reasons: list[str]) -> pa.Table:
    names = refused.schema.names
    return make_letters(
        refused.select([name for name in names if name not in (ORIGIN, DELETE)]),
        reasons,
        to,
        origins=refused.column(ORIGIN) if ORIGIN in names else None,
        json_columns=[column.name for column in staging.columns if column.is_json],
    )


def _values(column: pa.Array) -> list[Any]:
    return column.cast(_copied_type(column.type)).to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def _copied_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of copied values. Times are numbers: microseconds and days in both Spark and PostgreSQL."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.list_(_copied_type(kind.value_type)) if pa.types.is_list(kind) else kind


class _Microseconds(Dumper):
    """Writes microseconds since 1970 as a timestamp."""

    oid = psycopg.adapters.types["timestamp"].oid
    format = Format.BINARY
    _pack = Struct(">q").pack

    def dump(self, obj: int) -> bytes:
        return self._pack(obj - _EPOCH_MICROSECONDS)


class _ZonedMicroseconds(_Microseconds):
    oid = psycopg.adapters.types["timestamptz"].oid


class _Days(Dumper):
    """Writes days since 1970 as a date."""

    oid = psycopg.adapters.types["date"].oid
    format = Format.BINARY
    _pack = Struct(">i").pack

    def dump(self, obj: int) -> bytes:
        return self._pack(obj - _EPOCH_DAYS)


def _create(table: sql.Identifier, columns: Sequence[StagedColumn]) -> sql.Composed:
    """Create an unlogged table: a crash of the server empties it, which `check_complete` detects."""
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
    for dumper in (_Microseconds, _ZonedMicroseconds, _Days):
        connection.adapters.register_dumper(None, dumper)
    with connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            copy.set_types([*(column.type for column in columns), "int8"])
            for row in rows:
                copy.write_row(row)
        return cursor.rowcount


def check_complete(connection: psycopg.Connection, target: TableName, staged: Sequence[Staged]) -> None:
    """Check that no staged row was lost: a crash of the server empties unlogged tables.

    Raises UnavailableError: the batch must be replayed. Without this check the missing rows would be lost, because the
    ledger would record the batch as written.
    """
    for table in staged:
        query = sql.SQL("SELECT count(*) FROM {}").format(target.sibling(table.name).identifier)
        (row_count,) = connection.execute(query).fetchone() or (0,)
        if row_count != table.row_count:
            raise UnavailableError(
                f"of {table.row_count} rows staged for {target}, only {row_count} are left: the server was restarted "
                "after a crash; nothing of the batch was written, restart the query"
            )


def staged_tables(connection: psycopg.Connection, target: TableName, sink_id: str) -> list[TableName]:
    """Return all staging tables of the sink, of any run."""
    found = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND starts_with(c.relname, %s) AND n.nspname = coalesce(%s, current_schema())",
        (_prefix(sink_id), target.schema),
    )
    return [target.sibling(row[0]) for row in found.fetchall()]


def drop_tables(connection: psycopg.Connection, tables: Sequence[TableName]) -> None:
    if tables:
        names = sql.SQL(", ").join(table.identifier for table in tables)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names))


def _new_name(staging: Staging, partition: int) -> str:
    return f"{_prefix(staging.sink_id)}{partition}_{token_hex(6)}"


def _prefix(sink_id: str) -> str:
    """Return the prefix of the sink's table names: a hash, because names in PostgreSQL are limited to 63 bytes."""
    return f"{_PREFIX}_{blake2b(sink_id.encode(), digest_size=8).hexdigest()}_"
