"""Compatibility of tables and rows, and the written values, for every type."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import types as spark

from rookery.spark.postgres.errors import PostgresError
from rookery.spark.postgres.sink import PostgresSink
from rookery.spark.postgres.staging import stage
from rookery.spark.postgres.tables import check_table
from tests.support.postgres import Postgres

NOON = datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)


def schema_of(**kinds: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in kinds.items()])


# Spark's type, its Arrow type, a value, and the value that the database returns.
VALUES: list[tuple[spark.DataType, pa.DataType, Any, str]] = [
    (spark.BooleanType(), pa.bool_(), True, "boolean"),
    (spark.ByteType(), pa.int8(), -128, "smallint"),
    (spark.ShortType(), pa.int16(), -32768, "smallint"),
    (spark.IntegerType(), pa.int32(), 2**31 - 1, "integer"),
    (spark.LongType(), pa.int64(), -(2**63), "bigint"),
    (spark.FloatType(), pa.float32(), 1.5, "real"),
    (spark.DoubleType(), pa.float64(), 1e300, "double precision"),
    (spark.DecimalType(20, 5), pa.decimal128(20, 5), Decimal("-123456789012345.67891"), "numeric(20,5)"),
    (spark.StringType(), pa.string(), "tä'\"\\\n", "text"),
    (spark.BinaryType(), pa.binary(), b"\x00\xff", "bytea"),
    (spark.DateType(), pa.date32(), date(1969, 7, 20), "date"),
    (spark.TimestampType(), pa.timestamp("us", tz="Europe/Berlin"), NOON, "timestamp with time zone"),
    (spark.TimestampNTZType(), pa.timestamp("us"), NOON.replace(tzinfo=None), "timestamp without time zone"),
    (spark.ArrayType(spark.IntegerType()), pa.list_(pa.int32()), [1, None, 3], "integer[]"),
    (spark.ArrayType(spark.StringType()), pa.list_(pa.string()), ["a,b", '"', ""], "text[]"),
    (
        spark.ArrayType(spark.TimestampType()),
        pa.list_(pa.timestamp("us", tz="UTC")),
        [NOON],
        "timestamp with time zone[]",
    ),
]


@pytest.mark.parametrize(("kind", "arrow", "value", "shown"), VALUES, ids=lambda value: str(value)[:24])
def test_every_type_is_written(
    postgres: Postgres, connection: psycopg.Connection, table: str, kind: Any, arrow: Any, value: Any, shown: str
) -> None:
    schema = schema_of(v=kind)
    sink = PostgresSink(dsn=postgres.dsn, table=table, sink_id=table)
    sink.begin(schema, 0)
    batch = pa.record_batch({"v": pa.array([value, None], arrow)})
    sink.publish(schema, 0, stage(sink.staging(schema), 0, [batch]))
    query = sql.SQL("SELECT v FROM {} ORDER BY v NULLS LAST").format(sql.Identifier(table))
    assert connection.execute(query).fetchall() == [(value,), (None,)]
    (type_name,) = connection.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'v'",
        (table,),
    ).fetchone() or ("",)
    assert type_name == shown
    assert check_table(postgres.dsn, table, schema) == []


@pytest.mark.parametrize(
    ("kind", "arrow", "number", "shown"),
    [
        (spark.TimestampType(), pa.timestamp("us", tz="UTC"), 1_700_000_000_000 * 1_000_000, "55840-11-08 22:13:20+00"),
        (spark.TimestampNTZType(), pa.timestamp("us"), 2**63 - 1, "294247-01-10 04:00:54.775807"),
        (spark.TimestampNTZType(), pa.timestamp("us"), -210_866_803_200_000_000, "4714-11-24 00:00:00 BC"),
        (spark.DateType(), pa.date32(), 2_145_042_905, "5874897-12-31"),
        (spark.DateType(), pa.date32(), -2_440_588, "4714-11-24 BC"),
    ],
)
def test_times_that_python_lacks_are_written(
    postgres: Postgres, connection: psycopg.Connection, table: str, kind: Any, arrow: Any, number: int, shown: str
) -> None:
    schema = schema_of(v=kind, many=spark.ArrayType(kind))
    sink = PostgresSink(dsn=postgres.dsn, table=table, sink_id=table)
    sink.begin(schema, 0)
    values = pa.array([number], pa.int32() if pa.types.is_date(arrow) else pa.int64()).cast(arrow)
    batch = pa.record_batch({"v": values, "many": pa.ListArray.from_arrays([0, 1], values)})
    sink.publish(schema, 0, stage(sink.staging(schema), 0, [batch]))
    query = "SELECT v::text, many[1]::text FROM {}"
    connection.execute("SET timezone = UTC")
    assert connection.execute(sql.SQL(query).format(sql.Identifier(table))).fetchone() == (shown, shown)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (spark.StringType(), "varchar(10)"),
        (spark.StringType(), "jsonb"),
        (spark.StringType(), "uuid"),
        (spark.ShortType(), "bigint"),
        (spark.IntegerType(), "numeric"),
        (spark.IntegerType(), "numeric(10,0)"),
        (spark.FloatType(), "double precision"),
        (spark.DecimalType(10, 2), "numeric(12,3)"),
        (spark.StructType(), "json"),
        (spark.MapType(spark.StringType(), spark.LongType()), "jsonb"),
        (spark.ArrayType(spark.StructType()), "jsonb"),
    ],
)
def test_compatible_types(
    postgres: Postgres, connection: psycopg.Connection, table: str, kind: spark.DataType, column: str
) -> None:
    create(connection, table, f"v {column}")
    assert check_table(postgres.dsn, table, schema_of(v=kind)) == []


@pytest.mark.parametrize(
    ("kind", "column", "problem"),
    [
        (spark.LongType(), "integer", "bigint does not fit integer"),
        (spark.LongType(), "numeric(10,0)", "bigint does not fit numeric(10,0)"),
        (spark.DoubleType(), "real", "double does not fit real"),
        (spark.DecimalType(10, 2), "numeric(10,1)", "decimal(10,2) does not fit numeric(10,1)"),
        (spark.StringType(), "integer", "string does not fit integer"),
        (spark.TimestampType(), "timestamp", "timestamp does not fit timestamp without time zone"),
        (spark.TimestampNTZType(), "timestamptz", "timestamp_ntz does not fit timestamp with time zone"),
        (spark.ArrayType(spark.LongType()), "integer[]", "array<bigint> does not fit integer[]"),
        (spark.StructType(), "text", "struct<> does not fit text"),
        (spark.DayTimeIntervalType(), "interval", "cannot be written"),
        (spark.LongType(), "bigint GENERATED ALWAYS AS IDENTITY", "is generated by the table"),
        (spark.LongType(), "bigint, w int NOT NULL", "column w must not be null"),
        (spark.LongType(), "bigint, w int NOT NULL DEFAULT 0", ""),
    ],
)
def test_incompatible_types(
    postgres: Postgres, connection: psycopg.Connection, table: str, kind: spark.DataType, column: str, problem: str
) -> None:
    create(connection, table, f"v {column}")
    problems = check_table(postgres.dsn, table, schema_of(v=kind))
    assert problem in "; ".join(problems)
    assert bool(problems) is bool(problem)


def test_keys_need_a_unique_index(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    schema = schema_of(a=spark.LongType(), b=spark.LongType())
    assert check_table(postgres.dsn, table, schema, ["a"]) == []
    assert check_table(postgres.dsn, table, schema, ["c"]) == ["key column c is not among those written: a, b"]
    create(connection, table, "a bigint, b bigint, UNIQUE (a, b)")
    (problem,) = check_table(postgres.dsn, table, schema, ["a"])
    assert f"CREATE UNIQUE INDEX ON {table} (a)" in problem
    assert check_table(postgres.dsn, table, schema, ["b", "a"]) == []
    connection.execute(sql.SQL("CREATE UNIQUE INDEX ON {} (a) WHERE b > 0").format(sql.Identifier(table)))
    connection.execute(sql.SQL("CREATE UNIQUE INDEX ON {} ((a + 1))").format(sql.Identifier(table)))
    assert check_table(postgres.dsn, table, schema, ["a"]) == [problem]
    connection.execute(sql.SQL("CREATE UNIQUE INDEX ON {} (a) INCLUDE (b)").format(sql.Identifier(table)))
    assert check_table(postgres.dsn, table, schema, ["a"]) == []


def test_texts_are_parsed_and_never_truncated(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    connection.execute("DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('fine', 'low')")
    create(connection, table, "id uuid PRIMARY KEY, j jsonb, short varchar(3), feeling mood")
    kinds = {name: spark.StringType() for name in ("id", "j", "short", "feeling")}
    schema = schema_of(**kinds)
    identifier = "6b2f1f9c-6f0e-4b5e-8a55-0f6c7d1e2a3b"
    sink = PostgresSink(dsn=postgres.dsn, table=table, sink_id=table, key_columns=["id"])

    def write(batch_id: int, short: str) -> None:
        sink.begin(schema, batch_id)
        row = {"id": [identifier], "j": ['{"a": [1]}'], "short": [short], "feeling": ["low"]}
        sink.publish(schema, batch_id, stage(sink.staging(schema), 0, [pa.record_batch(row)]))

    write(0, "abc")
    query = sql.SQL("SELECT id::text, j, short, feeling FROM {}").format(sql.Identifier(table))
    assert connection.execute(query).fetchall() == [(identifier, {"a": [1]}, "abc", "low")]
    with pytest.raises(PostgresError, match=r"column short .* has 4 characters"):
        write(1, "abcd")
    write(1, "ab")
    assert connection.execute(query).fetchall() == [(identifier, {"a": [1]}, "ab", "low")]


def create(connection: psycopg.Connection, table: str, columns: str) -> None:
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(table), sql.SQL(columns)))
