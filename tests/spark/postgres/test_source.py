"""The source with a real server, without Spark: the tests plan and read parts as the driver and the tasks do."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from rookery.spark.postgres.errors import PostgresError
from rookery.spark.postgres.source import plan_parts, read_part
from tests.support.postgres import Postgres


def read(postgres: Postgres, **choice: Any) -> list[list[dict[str, Any]]]:
    """Return the rows of each part."""
    planned = {"table": None, "query": None, "partition_column": None, "partitions": 1} | choice
    parts = plan_parts(postgres.dsn, **planned)
    return [[row for batch in read_part(part) for row in batch.to_pylist()] for part in parts]


def rows_of(postgres: Postgres, query: str) -> list[dict[str, Any]]:
    (rows,) = read(postgres, query=query)
    return rows


def test_every_type_is_mapped(postgres: Postgres) -> None:
    query = """
        SELECT true AS b, 1::int2 AS s, 2 AS i, 3::int8 AS l, 1.5::float4 AS f, 2.5::float8 AS d, 'tä,"xt'::text AS t,
        'v'::varchar(5) AS v, 1.25::numeric(10,2) AS n, 1.5::numeric AS m, '2024-02-29'::date AS day,
        '2024-02-29 12:00:00.000001+02'::timestamptz AS at, '0001-01-01 00:00:00'::timestamp AS local,
        '\\xff00'::bytea AS bytes, ARRAY[1, NULL] AS numbers, ARRAY['a"b', ''] AS texts, '{"a": 1}'::jsonb AS j,
        '6b2f1f9c-6f0e-4b5e-8a55-0f6c7d1e2a3b'::uuid AS u, '1 day'::interval AS span
    """
    (part,) = plan_parts(postgres.dsn, table=None, query=query, partition_column=None, partitions=1)
    assert {column.name: column.spark_type for column in part.columns} == {
        "b": "boolean",
        "s": "smallint",
        "i": "int",
        "l": "bigint",
        "f": "float",
        "d": "double",
        "t": "string",
        "v": "string",
        "n": "decimal(10,2)",
        "m": "decimal(38,18)",
        "day": "date",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "bytes": "binary",
        "numbers": "array<int>",
        "texts": "array<string>",
        "j": "string",
        "u": "string",
        "span": "string",
    }
    (row,) = rows_of(postgres, query)
    assert row["n"] == Decimal("1.25")
    assert row["m"] == Decimal("1.5")
    assert row["at"] == datetime(2024, 2, 29, 10, 0, 0, 1, tzinfo=UTC)
    assert row["local"] == datetime(1, 1, 1)
    assert row["day"] == date(2024, 2, 29)
    assert (row["bytes"], row["numbers"], row["texts"]) == ("ff00", "[1,null]", '["a\\"b",""]')
    assert (row["b"], row["s"], row["i"], row["l"], row["f"], row["d"]) == (True, 1, 2, 3, 1.5, 2.5)
    assert (row["t"], row["j"], row["span"]) == ('tä,"xt', '{"a": 1}', "1 day")


def test_null_empty_texts_and_line_ends_are_distinguished(postgres: Postgres) -> None:
    found = rows_of(postgres, "SELECT * FROM (VALUES (NULL), (''), ('a\nb'), ('\"'), ('\\.'), ('null')) AS v(t)")
    assert [row["t"] for row in found] == [None, "", "a\nb", '"', "\\.", "null"]
    assert rows_of(postgres, "SELECT NULL::int AS i, NULL::bool AS b, NULL::timestamptz AS t") == [
        {"i": None, "b": None, "t": None}
    ]
    special = rows_of(postgres, "SELECT 'NaN'::float8 AS n, '-Infinity'::float4 AS f")
    assert str(special) == "[{'n': nan, 'f': -inf}]"


@pytest.mark.parametrize(("sign", "moment"), [("", datetime(9999, 12, 31, 23, 59, 59)), ("-", datetime(1, 1, 1))])
def test_infinity_is_read_as_by_sparks_jdbc_source(postgres: Postgres, sign: str, moment: datetime) -> None:
    kinds = ", ".join(f"v::{kind} AS {kind}" for kind in ("timestamptz", "timestamp", "date"))
    (row,) = rows_of(postgres, f"SELECT {kinds} FROM (VALUES ('{sign}infinity')) AS given(v)")
    assert row == {"timestamptz": moment.replace(tzinfo=UTC), "timestamp": moment, "date": moment.date()}


def test_dates_that_python_lacks(postgres: Postgres) -> None:
    query = "SELECT '5874897-12-31'::date AS d UNION ALL SELECT '4714-11-24 BC'::date"
    (part,) = plan_parts(postgres.dsn, table=None, query=query, partition_column=None, partitions=1)
    (batch,) = read_part(part)
    assert batch.column("d").cast(pa.int32()).to_pylist() == [2_145_042_905, -2_440_588]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'{{1,2},{3,4}}'::int[]", "column v holds an array of several dimensions, and array<int> has one"),
        ("ARRAY['infinity'::timestamptz]", "column v holds an array with infinity"),
        ("ARRAY['-infinity'::date]", "column v holds an array with infinity"),
    ],
)
def test_arrays_that_spark_lacks_are_errors(postgres: Postgres, value: str, message: str) -> None:
    with pytest.raises(PostgresError, match=message):
        rows_of(postgres, f"SELECT {value} AS v")
    assert rows_of(postgres, """SELECT ARRAY['[[', 'infinity"'] AS v""") == [{"v": '["[[","infinity\\""]'}]


@pytest.mark.parametrize("end", [" -- a comment", "; ", " -- a comment;", " /* a comment */"])
def test_queries_may_end_in_a_comment(postgres: Postgres, end: str) -> None:
    assert rows_of(postgres, f"SELECT 1 AS i{end}") == [{"i": 1}]


def test_an_empty_result(postgres: Postgres) -> None:
    assert rows_of(postgres, "SELECT 1 AS i WHERE false;") == []


@pytest.mark.parametrize(
    ("values", "kind", "count"),
    [
        ("generate_series(1, 100)", "int8", 4),
        ("generate_series(-3, 3)", "int4", 3),
        ("generate_series('2024-01-01'::timestamptz, '2024-01-02', '1 hour')", "timestamptz", 4),
        ("generate_series('2024-01-01'::timestamp, '2024-01-09', '1 day')", "date", 3),
        ("generate_series(5, 5)", "int4", 4),
        ("generate_series(5, 6)", "int4", 4),
        ("generate_series(1, 0)", "int4", 4),
    ],
)
def test_every_row_is_in_one_part(postgres: Postgres, values: str, kind: str, count: int) -> None:
    query = f"SELECT v::{kind} AS k FROM {values} AS v UNION ALL SELECT NULL"
    parts = read(postgres, query=query, partition_column="k", partitions=count)
    everything = [row["k"] for part in parts for row in part]
    (expected,) = read(postgres, query=query)
    assert sorted(map(str, everything)) == sorted(str(row["k"]) for row in expected)
    assert len(parts) <= count
    if len(everything) > 2 * count:
        assert all(parts)


def test_tables_are_read_by_name(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    connection.execute("CREATE SCHEMA IF NOT EXISTS sales")
    name = sql.Identifier("sales", table)
    connection.execute(sql.SQL('CREATE TABLE {} AS SELECT 1 AS "Mixed, {{case}} %s"').format(name))
    assert read(postgres, table=f"sales.{table}") == [[{"Mixed, {case} %s": 1}]]


def test_large_results_are_split_into_batches(postgres: Postgres) -> None:
    (part,) = plan_parts(
        postgres.dsn,
        table=None,
        query="SELECT i, repeat('x', 1000) AS t FROM generate_series(1, 30000) AS i",
        partition_column=None,
        partitions=1,
    )
    batches = list(read_part(part))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).column("i").to_pylist() == list(range(1, 30001))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({}, "a table or a query"),
        ({"table": "a", "query": "b"}, "either a table or a query"),
        ({"table": "missing"}, 'relation "missing" does not exist'),
        ({"query": "SELECT 1 AS a, 2 AS a"}, "column a exists 2 times"),
        ({"query": "SELEC"}, "the query cannot be read: syntax error"),
        ({"query": "SELECT 1 AS a", "partitions": 2}, "need a partition_column"),
        ({"query": "SELECT 1 AS a", "partitions": 2, "partition_column": "b"}, 'column "b" does not exist'),
        ({"query": "SELECT 'x' AS a", "partitions": 2, "partition_column": "a"}, "whole numbers, dates or times"),
    ],
)
def test_invalid_arguments(postgres: Postgres, choice: dict[str, Any], message: str) -> None:
    with pytest.raises(PostgresError, match=message):
        read(postgres, **choice)
