"""The sink and the source in queries of Spark; the other tests call their parts directly."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from rookery.client.sync import Consumer
from rookery.dead_letters.standard import read_failure
from rookery.spark.postgres.letters import DeadLetters
from rookery.spark.postgres.sink import Outcome, PostgresSink, Step
from rookery.spark.postgres.source import read_postgres
from rookery.testing.embedded import EmbeddedBroker
from tests.support.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(spark: "SparkSession", directory: Path, write: "Callable[[DataFrame, int], Any]") -> None:
    """Run a query over the lines of the files in a directory, with a checkpoint next to it."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(directory))
    rows = lines.selectExpr("try_cast(split(value, ',')[0] as bigint) AS id", "split(value, ',')[1] AS name")
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(directory.with_name("checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240), "the query did not end"


def test_a_query_writes_each_batch_once(
    spark: "SparkSession", postgres: Postgres, connection: psycopg.Connection, table: str, tmp_path: Path
) -> None:
    directory = tmp_path / "lines"
    directory.mkdir()
    (directory / "1").write_text("1,a\n2,b\n")

    def on_step(step: Step) -> None:
        if step is Step.COMMITTED:
            raise RuntimeError("the driver dies after the commit")

    outcomes: list[Outcome] = []
    options: dict[str, Any] = {"dsn": postgres.dsn, "table": table, "sink_id": table}
    with pytest.raises(Exception, match="the driver dies"):
        run(spark, directory, PostgresSink(**options, on_step=on_step))
    # Run the query again in the same process; the new run makes a new claim.
    (directory / "2").write_text("3,c\n")
    sink = PostgresSink(**options)
    run(spark, directory, lambda rows, batch_id: outcomes.append(sink(rows, batch_id)))
    assert outcomes == [Outcome(0, is_replay=True), Outcome(1, is_replay=False)]
    query = sql.SQL("SELECT * FROM {} ORDER BY id").format(sql.Identifier(table))
    assert connection.execute(query).fetchall() == [(1, "a"), (2, "b"), (3, "c")]
    (claims,) = connection.execute("SELECT claim FROM rookery_sink_ledger WHERE sink = %s", (table,)).fetchone() or (0,)
    assert claims == 2


def test_a_query_continues_without_refused_rows(
    spark: "SparkSession", postgres: Postgres, connection: psycopg.Connection, table: str, tmp_path: Path
) -> None:
    directory, kept = tmp_path / "lines", tmp_path / "kept"
    directory.mkdir()
    (directory / "1").write_text("1,a\n,b\n2,c\n")
    (directory / "2").write_text(",d\n")

    def keep(rows: pa.RecordBatch, reasons: list[str]) -> None:
        with kept.open("a") as file:
            file.writelines(f"{row['name']}: {why}\n" for row, why in zip(rows.to_pylist(), reasons, strict=True))

    sink = PostgresSink(dsn=postgres.dsn, table=table, sink_id=table, key_columns=["id"], on_refused=keep)
    outcomes: list[Outcome] = []
    run(spark, directory, lambda rows, batch_id: outcomes.append(sink(rows, batch_id)))
    assert sorted(outcomes) == [Outcome(0, is_replay=False), Outcome(2, is_replay=False)]
    why = "column id (int64) is null, and must not be, in the row with id = None"
    assert sorted(kept.read_text().splitlines()) == [f"b: {why}", f"d: {why}"]
    query = sql.SQL("SELECT * FROM {} ORDER BY id").format(sql.Identifier(table))
    assert connection.execute(query).fetchall() == [(1, "a"), (2, "c")]


def letters_in(broker: EmbeddedBroker, topic: str) -> list[tuple[Any, str]]:
    """Return the rows, and the reason of each."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer[bytes, bytes](config) as consumer:
        found = consumer.read_arrow(topic).select(["value", "headers"]).to_pylist()
    failures = [read_failure([(header["key"], header["value"]) for header in row["headers"]]) for row in found]
    return [
        (json.loads(row["value"]), why.message) for row, why in zip(found, failures, strict=True) if why is not None
    ]


@pytest.mark.parametrize("step", [Step.COMMITTED, Step.SENT])
def test_a_dead_letter_is_sent_once_wherever_the_driver_dies(
    spark: "SparkSession",
    broker: EmbeddedBroker,
    postgres: Postgres,
    connection: psycopg.Connection,
    table: str,
    topic: str,
    step: Step,
) -> None:
    """The replay finds that the batch is written and sends the pending letters, whatever its own rows are."""
    broker.create_topic(topic)

    def on_step(found: Step) -> None:
        if found is step:
            raise RuntimeError("the driver dies")

    letters = DeadLetters({"kafka.bootstrap.servers": broker.bootstrap_servers}, topic, "shop")
    options: dict[str, Any] = {"dsn": postgres.dsn, "table": table, "sink_id": table, "dead_letters": letters}
    rows = spark.createDataFrame([(1, "a"), (2, "\0")], "id bigint, name string").coalesce(1)
    with pytest.raises(RuntimeError, match="the driver dies"):
        PostgresSink(**options, on_step=on_step)(rows, 0)
    sink = PostgresSink(**options)
    assert sink(rows.where("id = 1"), 0) == Outcome(0, is_replay=True, letter_count=1)
    ((row, why),) = letters_in(broker, topic)
    assert (row, why.partition(",")[0]) == ({"id": 2, "name": "\0"}, "column name (string) has a NUL character")
    (left,) = connection.execute("SELECT count(*) FROM rookery_sink_letters WHERE sink = %s", (table,)).fetchone() or ()
    assert left == 0


def test_rows_survive_a_round_trip(spark: "SparkSession", postgres: Postgres, table: str) -> None:
    schema = (
        "id bigint, name string, price decimal(10,2), at timestamp, raw binary, tags array<string>,"
        " place struct<city:string,zip:int>, counts map<string,int>, gone boolean"
    )
    kept = (1, "a", Decimal("1.50"), AT, bytearray(b"\x00\xff"), ["x", ""], ("Bonn", 5), {"a": 1}, False)
    data = [
        kept,
        (2, None, None, None, None, None, None, None, None),
        (3, "x", None, None, None, None, None, None, True),
    ]
    rows = spark.createDataFrame(data, schema)
    sink = PostgresSink(
        dsn=postgres.dsn, table=table, sink_id=table, key_columns=["id"], order_column="at", delete_when="gone"
    )
    assert sink(rows, 0) == Outcome(3, is_replay=False)
    assert sink(rows, 0) == Outcome(0, is_replay=True)
    found = read_postgres(spark, dsn=postgres.dsn, table=table, partition_column="id", partitions=2)
    assert dict(found.dtypes) == {
        "id": "bigint",
        "name": "string",
        "price": "decimal(10,2)",
        "at": "timestamp",
        "raw": "binary",
        "tags": "array<string>",
        "place": "string",
        "counts": "string",
        "gone": "boolean",
    }
    first, second = found.orderBy("id").collect()
    assert tuple(first)[:3] == kept[:3]
    assert first.at.astimezone(UTC) == AT
    assert (first.raw, first.tags, first.gone) == (b"\x00\xff", ["x", ""], False)
    assert (first.place, first.counts) == ('{"zip": 5, "city": "Bonn"}', '{"a": 1}')
    assert tuple(second) == (2, *[None] * 8)
