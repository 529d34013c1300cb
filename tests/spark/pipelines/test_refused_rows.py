"""Rows of a pipeline that PostgreSQL refuses become dead letters."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from rookery.base.clock import SystemClock
from rookery.client.sync import Consumer, Producer
from rookery.dead_letters.standard import ATTEMPT, Failure, Origin, original_headers, read_failure
from rookery.pipelines.builder import FlowBuilder
from rookery.pipelines.parser import parse_pipeline
from rookery.testing.embedded import EmbeddedBroker
from tests.support.pipelines import run_pipeline
from tests.support.postgres import Postgres, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = SystemClock().now_ms()

PIPELINE = """
name: {topic}
platform: {{bootstrap.servers: "{servers}"}}
trigger: available-now
on_error: dead-letter
sources: {{orders: {{topic: {topic}}}}}
transforms:
  - {{name: named, from: orders, steps: [set: {{id: _offset, name: "nullif(string(value), '')"}}, drop: [value]]}}
  - {{name: loud, sql: "SELECT upper(name) AS name, timestamp_millis(1000 * id) AS at FROM named"}}
sinks:
  - {{postgres: "{dsn}", table: orders, from: named, key: [id]}}
  - {{postgres: "{dsn}", table: loud, from: loud}}
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


def produce(broker: EmbeddedBroker, topic: str, *values: str) -> None:
    headers: list[tuple[str, bytes | None]] = [("own", b"1"), (ATTEMPT, b"2")]
    with Producer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value.encode(), key=b"k", headers=headers, timestamp_ms=NOW_MS + number)
        producer.flush()


def letters_in(broker: EmbeddedBroker, topic: str) -> dict[bytes, tuple[Any, Any, Failure | None]]:
    """Return the key, the record's own headers and the failure of each dead letter, by its value."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer[bytes, bytes](config) as consumer:
        rows = consumer.read_arrow(topic).select(["key", "value", "headers"]).to_pylist()
    found = {}
    for row in rows:
        headers = tuple((header["key"], header["value"]) for header in row["headers"])
        found[row["value"]] = (row["key"], original_headers(headers), read_failure(headers))
    assert len(found) == len(rows), "each dead letter is written once"
    return found


def test_a_dead_letter_is_the_source_record_or_the_row_as_json(
    spark: "SparkSession", broker: EmbeddedBroker, postgres: Postgres, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic)
    produce(broker, topic, "fine", "much too long", "")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, name varchar(6) NOT NULL)")
        connection.execute("CREATE TABLE loud (name varchar(6), at timestamptz)")
        text = PIPELINE.format(topic=topic, servers=broker.bootstrap_servers, dsn=postgres.dsn)
        figures = run_pipeline(spark, tmp_path, text)
        assert connection.execute("SELECT * FROM orders").fetchall() == [(0, "fine")]
        assert connection.execute("SELECT name FROM loud ORDER BY at").fetchall() == [("FINE",), (None,)]
        assert connection.execute("SELECT * FROM rookery_sink_letters").fetchall() == []
    why = {
        b"much too long": "column name (string) has 13 characters, and the table's has 6, in the row with id = 1",
        b"": "column name (string) is null, and must not be, in the row with id = 2",
    }
    origins = [Origin(topic, 0, offset, NOW_MS + offset) for offset in (1, 2)]
    assert letters_in(broker, f"{topic}.dlq") == {
        value: (b"k", (("own", b"1"),), Failure(origin, "PostgresError", text, "TASK_PUT", topic, 2))
        for origin, (value, text) in zip(origins, why.items(), strict=True)
    }
    ((value, (key, own, found)),) = letters_in(broker, f"{topic}.loud.dlq").items()
    row = {"name": "MUCH TOO LONG", "at": "1970-01-01T00:00:01.000000Z"}
    assert (json.loads(value), key, own) == (row, None, ())
    assert found is not None
    assert (found.origin, found.stage, found.pipeline, found.attempt) == (None, "TASK_PUT", topic, 1)
    counted = {name: (each.dead_letters, each.rows_out) for name, each in figures.items()}
    assert counted == {"orders": (2, 1), "loud": (1, 2)}


def test_steps_after_sql_fail_since_no_flow_writes_their_dead_letters(
    spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They fail even if the rows carry the bytes of their records, because other steps need these."""
    broker.create_topic(topic)
    text = f"""\
name: {topic}
platform: {{bootstrap.servers: "{broker.bootstrap_servers}"}}
on_error: dead-letter
sources: {{orders: {{topic: {topic}, value_format: json, value_schema: "id string"}}}}
transforms:
  - {{name: typed, from: orders, steps: [cast: {{id: int}}]}}
  - {{name: all, sql: SELECT * FROM orders}}
  - {{name: again, from: all, steps: [cast: {{id: int}}]}}
sinks: [{{console: true, from: again}}]
"""
    pipeline = parse_pipeline(text, tmp_path / "p.yaml", {})
    builder = FlowBuilder(spark.newSession(), pipeline, "console")
    plans = {}
    for name in ("typed", "again"):
        builder.relation(name).explain(extended=True)
        plans[name] = capsys.readouterr().out
    assert "try_cast(id" in plans["typed"]
    assert "try_cast" not in plans["again"]
