"""Reads a PostgreSQL table or query as a DataFrame, in parallel if there is a column to divide it by.

    orders = read_postgres(spark, dsn=..., table="orders", partition_column="id", partitions=4)

Each task copies its part as CSV, which Arrow parses without Python code per row. The query converts values that CSV
cannot express directly (`read_columns`): bytes to hexadecimal digits, times to microseconds, dates to days, arrays to
JSON; the DataFrame converts them back. Every task has its own transaction, so parts are read at slightly different
times.
"""

import io
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg import sql
from pyspark.sql import Column, functions

from rookery.spark.postgres.connections import connect, parse_table
from rookery.spark.postgres.errors import PostgresError
from rookery.spark.sqlstates import is_lasting_state

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# The size of a block of CSV; a row must fit into a block.
_BLOCK_SIZE_BYTES: Final = 16 * 1024 * 1024
# Spark has no infinity: as in its JDBC source, it becomes the end of the year 9999 or the beginning of the year 1.
_MICROSECONDS: Final = (
    "CASE {0} WHEN 'infinity' THEN 253402300799000000 WHEN '-infinity' THEN -62135596800000000"
    " ELSE (extract(epoch FROM {0}) * 1000000)::bigint END"
)
_DAYS: Final = "CASE {0} WHEN 'infinity' THEN 2932896 WHEN '-infinity' THEN -719162 ELSE {0} - '1970-01-01'::date END"
_TEXT: Final = "{}::text"
_DIGITS_MAX: Final = 38
_DECIMAL: Final = "decimal(38,18)"

# By PostgreSQL's type name: the expression that selects the column, and its Spark type; other types are read as text.
_PLAIN: Final = {
    "bool": ("{}", "boolean"),
    "int2": ("{}", "smallint"),
    "int4": ("{}", "int"),
    "int8": ("{}", "bigint"),
    "float4": ("{}", "float"),
    "float8": ("{}", "double"),
    "date": (_DAYS, "date"),
    "timestamptz": (_MICROSECONDS, "timestamp"),
    "timestamp": (_MICROSECONDS, "timestamp_ntz"),
    "numeric": ("{}::numeric(38,18)", _DECIMAL),
}
_BYTES: Final = ("encode({}, 'hex')", "binary")
_ARRAY: Final = "to_json({})::text"
_ELEMENTS: Final = {"text": "string", "varchar": "string", "bpchar": "string"} | {
    name: kind for name, (_, kind) in _PLAIN.items()
}

_ARRAYS_OF_TIMES: Final = ("array<date>", "array<timestamp>", "array<timestamp_ntz>")


class ReadColumn(NamedTuple):
    """A column to read. `expression` has a placeholder for the column's name."""

    name: str
    expression: str
    spark_type: str

    @property
    def copied_type(self) -> str:
        """The Spark type of the column in a task's output, before the conversion of `finished`."""
        is_text = self.spark_type == "binary" or self.spark_type.startswith("array<")
        return "string" if is_text else self.spark_type

    def selected(self) -> sql.Composed:
        return sql.SQL(self.expression).format(sql.Identifier(self.name))

    def finished(self, column: Column) -> Column:
        if self.spark_type == "binary":
            return functions.unhex(column)
        return functions.from_json(column, self.spark_type) if self.copied_type != self.spark_type else column


class Part(NamedTuple):
    """The part that a task reads."""

    dsn: str
    statement: str
    columns: tuple[ReadColumn, ...]

    def __repr__(self) -> str:
        """Return a text without the dsn, which may contain a password: error messages may quote it."""
        return f"Part({self.statement})"


def read_postgres(
    spark: "SparkSession",
    *,
    dsn: str,
    table: str | None = None,
    query: str | None = None,
    partition_column: str | None = None,
    partitions: int = 1,
) -> "DataFrame":
    """Read either a table or a query. The partition column must hold whole numbers, dates or times."""
    parts = plan_parts(dsn, table=table, query=query, partition_column=partition_column, partitions=partitions)
    columns = parts[0].columns

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from read_part(parts[index])

    schema = ", ".join(f"`{column.name.replace('`', '``')}` {column.copied_type}" for column in columns)
    copied = spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)
    names = [f"`{column.name.replace('`', '``')}`" for column in columns]
    return copied.select(
        *(column.finished(copied[name]).alias(column.name) for name, column in zip(names, columns, strict=True))
    )


def plan_parts(
    dsn: str, *, table: str | None, query: str | None, partition_column: str | None, partitions: int
) -> list[Part]:
    """Return one part per task. Raises PostgresError with the server's message for an invalid query."""
    if (table is None) == (query is None):
        raise PostgresError("give either a table or a query")
    if partitions < 1 or (partitions > 1 and partition_column is None):
        raise PostgresError("several partitions need a partition_column to divide the rows by")
    rows = (
        sql.SQL("SELECT * FROM {}").format(parse_table(table).identifier)
        if table is not None
        # A line break, because the query may end in a comment, which must not include the SQL that is appended.
        else sql.SQL((query or "").strip().rstrip(";") + "\n")
    )
    with connect(dsn) as connection:
        try:
            columns = read_columns(connection, rows)
            conditions = _conditions(connection, rows, partition_column, partitions)
        except psycopg.Error as error:
            what = "query" if table is None else "table"
            is_lasting = is_lasting_state(error.sqlstate)
            raise PostgresError(f"the {what} cannot be read: {error}", is_lasting=is_lasting) from None
        return [Part(dsn, _copy(connection, rows, columns, condition), columns) for condition in conditions]


def read_columns(connection: psycopg.Connection, rows: sql.Composable) -> tuple[ReadColumn, ...]:
    cursor = connection.execute(sql.SQL("SELECT * FROM ({}) AS given LIMIT 0").format(rows))
    columns = tuple(_read_column(connection, column) for column in cursor.description or ())
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PostgresError(f"column {twice[0]} exists {names.count(twice[0])} times: give them different names")
    return columns


def _read_column(connection: psycopg.Connection, column: psycopg.Column) -> ReadColumn:
    known = connection.adapters.types.get(column.type_code)
    kind = known.name if known is not None else ""
    if known is not None and column.type_code == known.array_oid:
        element = _ELEMENTS.get(kind)
        return ReadColumn(column.name, _TEXT, "string") if element is None else _array_column(column.name, element)
    if kind == "bytea":
        return ReadColumn(column.name, *_BYTES)
    precision, scale = column.precision, column.scale
    if kind == "numeric" and precision is not None and scale is not None and 0 <= scale <= precision <= _DIGITS_MAX:
        return ReadColumn(column.name, "{}", f"decimal({precision},{scale})")
    return ReadColumn(column.name, *_PLAIN.get(kind, (_TEXT, "string")))


def _array_column(name: str, element: str) -> ReadColumn:
    return ReadColumn(name, _ARRAY, f"array<{element}>")


def _conditions(
    connection: psycopg.Connection, rows: sql.Composable, name: str | None, count: int
) -> list[sql.Composable]:
    """Return one condition per part. Each row satisfies exactly one; null is in the first part."""
    if name is None or count == 1:
        return [sql.SQL("true")]
    column = sql.Identifier(name)
    bounds = sql.SQL("SELECT min({0}), max({0}) FROM ({1}) AS given").format(column, rows)
    low, high = connection.execute(bounds).fetchone() or (None, None)
    edges = [] if low is None else _edges(low, high, count, name)
    if not edges:
        return [sql.SQL("true")]
    conditions: list[sql.Composable] = [
        sql.SQL("({0} < {1} OR {0} IS NULL)").format(column, sql.Literal(edges[0])),
        *(
            sql.SQL("{0} >= {1} AND {0} < {2}").format(column, sql.Literal(start), sql.Literal(stop))
            for start, stop in pairwise(edges)
        ),
    ]
    return [*conditions, sql.SQL("{} >= {}").format(column, sql.Literal(edges[-1]))]


def _edges(low: Any, high: Any, count: int, name: str) -> list[Any]:
    """Return the inner bounds of parts of equal width; fewer if there are fewer values."""
    if isinstance(low, bool) or not isinstance(low, int | date):
        raise PostgresError(f"partition_column {name} must hold whole numbers, dates or times")
    edges = [low + (high - low) * index // count for index in range(1, count)]
    return sorted({edge for edge in edges if edge > low})


def _copy(
    connection: psycopg.Connection, rows: sql.Composable, columns: Sequence[ReadColumn], condition: sql.Composable
) -> str:
    selected = sql.SQL(", ").join(column.selected() for column in columns)
    return (
        sql.SQL("COPY (SELECT {} FROM ({}) AS given WHERE {}) TO STDOUT (FORMAT CSV)")
        .format(selected, rows, condition)
        .as_string(connection)
    )


def read_part(part: Part) -> "Iterator[pa.RecordBatch]":
    """Read a part; called in a task."""
    import pyarrow as pa
    from pyarrow import csv

    schema = _arrow_schema(part.columns)
    convert = csv.ConvertOptions(
        column_types={field.name: _csv_type(field.type) for field in schema},
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = csv.ReadOptions(column_names=schema.names, block_size=_BLOCK_SIZE_BYTES, use_threads=False)
    parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    with (
        connect(part.dsn) as connection,
        connection.cursor() as cursor,
        cursor.copy(sql.SQL(part.statement)) as copy,
    ):
        stream = _CopyStream(copy)
        if stream.is_empty:
            return
        source = pa.PythonFile(stream, "r")
        for batch in csv.open_csv(source, read_options=read, parse_options=parse, convert_options=convert):
            _check_arrays(part.columns, batch)
            columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _csv_type(kind: "pa.DataType") -> "pa.DataType":
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def _check_arrays(columns: Sequence[ReadColumn], batch: "pa.RecordBatch") -> None:
    """Raise PostgresError for arrays that Spark's types cannot express; Spark would silently read null.

    PostgreSQL's types say neither the number of dimensions nor whether there is an infinity.
    """
    import pyarrow.compute as pc

    for column, texts in zip(columns, batch.columns, strict=True):
        if not column.spark_type.startswith("array<"):
            continue
        if pc.any(pc.starts_with(texts, "[[")).as_py():
            raise PostgresError(
                f"column {column.name} holds an array of several dimensions, and {column.spark_type} has one:"
                " read it in a query as to_json(...)::text"
            )
        if column.spark_type in _ARRAYS_OF_TIMES and pc.any(pc.match_substring(texts, 'infinity"')).as_py():
            raise PostgresError(f"column {column.name} holds an array with infinity, which Spark's times lack")


def _arrow_schema(columns: Sequence[ReadColumn]) -> "pa.Schema":
    import pyarrow as pa

    plain = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return pa.schema([(column.name, plain.get(column.copied_type) or _decimal(column)) for column in columns])


def _decimal(column: ReadColumn) -> "pa.DataType":
    import pyarrow as pa

    precision, scale = column.spark_type.removeprefix("decimal(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))


class _CopyStream(io.RawIOBase):
    """The server's COPY output as a file. `read` returns as many bytes as requested unless the output ends."""

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy = copy
        self._rest = bytes(copy.read())
        self.is_empty = not self._rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        rows, length = [self._rest], len(self._rest)
        while (length < size or size < 0) and (row := self._copy.read()):
            rows.append(bytes(row))
            length += len(row)
        data = b"".join(rows)
        cut = length if size < 0 else min(size, length)
        self._rest = data[cut:]
        return data[:cut]
