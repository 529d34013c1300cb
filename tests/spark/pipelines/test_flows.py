"""Whole pipelines on the shared session. A query takes seconds: each test puts several features into few queries."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.dataset as ds
import pytest

from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.checks import check_pipeline
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.platform import check_registry, check_topics
from rookery.pipelines.spec import PipelineError
from rookery.serdes import RegistryClient, Schema
from rookery.testing.embedded import EmbeddedBroker
from tests.support.pipelines import run_pipeline
from tests.support.postgres import Postgres, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


def write_batches(directory: Path, *batches: list[dict[str, Any]]) -> None:
    """Write one file for each micro-batch."""
    directory.mkdir(parents=True)
    for number, rows in enumerate(batches):
        path = directory / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Spark reads files in the order of their modification times.
        os.utime(path, (number, number))


def read_rows(directory: Path) -> list[dict[str, Any]]:
    files = sorted(path for path in directory.rglob("*.parquet"))
    rows: list[dict[str, Any]] = ds.dataset(files).to_table().to_pylist() if files else []
    return sorted(rows, key=str)


def view(view_id: int, page: str, at: str, user: str = "ann") -> dict[str, Any]:
    return {"id": view_id, "page": page, "user": user, "at": f"2026-03-01T12:{at}Z"}


STATEFUL = """
name: stateful
trigger: available-now
sources:
  views:
    files: views
    format: json
    schema: id int, page string, user string, at timestamp
    watermark: {column: at, delay: 1 minute}
    options: {maxFilesPerTrigger: "1"}
transforms:
  - {name: unique, from: views, deduplicate: {keys: [id]}}
  - name: counts
    sql: |
      SELECT date_format(window.start, 'mm:ss') AS minute, page, count(*) AS views
      FROM unique GROUP BY window(at, '1 minute'), page
  - name: visits
    sql: |
      SELECT user, date_format(session_window.start, 'mm:ss') AS since, count(*) AS views
      FROM views GROUP BY session_window(at, '2 minutes'), user
sinks:
  - {parquet: counts, from: counts, partition_by: [page], target_file_size: 1 MB}
  - {postgres: "$POSTGRES", table: visits, key: [user, since], from: visits}
"""


@pytest.mark.timeout(600)
def test_windows_sessions_and_duplicates(spark: "SparkSession", postgres: Postgres, tmp_path: Path) -> None:
    """Rows that are later than the watermark allows are not counted, and neither are duplicates."""
    write_batches(
        tmp_path / "views",
        [view(1, "a", "00:10"), view(2, "a", "00:50"), view(3, "b", "00:20", "bob"), view(1, "a", "00:11")],
        [view(4, "a", "05:00"), view(2, "a", "00:50")],
        [view(5, "b", "05:30", "bob")],
        # Late rows are dropped by the watermark of the batch before the last.
        [view(6, "a", "00:30"), view(7, "z", "20:00")],
    )
    figures = run_pipeline(spark, tmp_path, STATEFUL.replace("$POSTGRES", postgres.dsn))
    counts = [(row["minute"], row["views"]) for row in read_rows(tmp_path / "counts")]
    assert sorted(counts) == [("00:00", 1), ("00:00", 2), ("05:00", 1), ("05:00", 1)]
    with psycopg.connect(postgres.dsn) as connection:
        visits = connection.execute("SELECT * FROM visits ORDER BY 1, 2").fetchall()
    assert visits == [
        ("ann", "00:10", 4),
        ("ann", "05:00", 1),
        ("bob", "00:20", 1),
        ("bob", "05:30", 1),
    ]
    assert {path.name for path in (tmp_path / "counts").iterdir()} >= {"page=a", "page=b"}
    assert figures["counts"].state == "finished"
    assert (figures["counts"].rows_in, figures["counts"].rows_out) == (9, 4)


def test_errors_of_spark_are_reported_with_file_and_line(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "late.sql").write_text("SELECT\n  nothing\nFROM ticks\n")
    (tmp_path / "more.py").write_text(
        "def broken(ticks):\n    return ticks.select('nope')\n\ndef wrong(ticks):\n    return 1\n"
    )
    text = """\
        name: wrong
        sources: {ticks: {generator: {}}}
        transforms:
          - name: misspelled
            sql: |
              SELECT timestamp,
                vlaue
              FROM ticks
          - {name: nowhere, sql: SELECT * FROM tikcs}
          - {name: late, sql_file: late.sql}
          - {name: broken, python: "more.py:broken", from: ticks}
          - {name: wrong, python: "more.py:wrong", from: ticks}
          - {name: none, python: "more.py:none", from: ticks}
          - name: steps
            from: ticks
            steps:
              - drop: [nope]
          - {name: timeless, sql: "SELECT * FROM ticks", watermark: {column: value, delay: 1 second}}
          - {name: totals, sql: "SELECT value % 2 AS half, count(*) FROM ticks GROUP BY 1"}
        sinks:
          - {name: one, console: true, from: misspelled}
          - {name: two, console: true, from: totals}
        """
    pipeline = parse_pipeline(dedent(text), tmp_path / "p.yaml", {})
    with pytest.raises(PipelineError) as caught:
        check_pipeline(spark, pipeline)
    found = {
        f"{Path(problem.location.file).name}:{problem.location.line}": problem.message
        for problem in caught.value.problems
    }
    assert list(found) == [
        "late.sql:2",
        "p.yaml:7",
        "p.yaml:9",
        "p.yaml:11",
        "p.yaml:12",
        "p.yaml:13",
        "p.yaml:17",
        "p.yaml:18",
        "p.yaml:22",
    ]
    assert "`vlaue` cannot be resolved" in found["p.yaml:7"]
    assert "`tikcs` cannot be found" in found["p.yaml:9"]
    assert found["p.yaml:12"] == "wrong must return a DataFrame, but returned int"
    assert found["p.yaml:17"] == "there is no column nope: use one of timestamp, value"


def test_output_modes_are_checked_before_the_start(spark: "SparkSession", tmp_path: Path) -> None:
    text = """\
        name: wrong
        sources: {ticks: {generator: {}}}
        transforms: [{name: totals, sql: "SELECT value % 2 AS half, count(*) AS n FROM ticks GROUP BY 1"}]
        sinks:
          - {console: true, from: totals}
          - {name: fine, console: true, from: totals, output_mode: update}
        """
    with pytest.raises(PipelineError, match=r"p.yaml:5: .*watermark"):
        check_pipeline(spark, parse_pipeline(dedent(text), tmp_path / "p.yaml", {}))


def test_columns_that_sinks_name_are_checked_before_the_start(spark: "SparkSession", tmp_path: Path) -> None:
    text = """\
        name: wrong
        sources:
          ticks: {generator: {}}
          shop: {jdbc: "jdbc:unknown://localhost/shop", table: orders}
        sinks:
          - {parquet: fine, from: ticks, partition_by: VALUE}
          - {parquet: out, from: ticks, partition_by: [vlaue]}
          - {name: a, postgres: "host=nowhere", table: a, from: ticks, key: [value], order_by: time}
          - {name: b, postgres: "host=nowhere", table: b, from: ticks, key: [value], delete_when: gone}
          - {name: c, console: true, from: shop}
        """
    with pytest.raises(PipelineError) as caught:
        check_pipeline(spark, parse_pipeline(dedent(text), tmp_path / "p.yaml", {}))
    found = {problem.location.line: problem.message for problem in caught.value.problems}
    assert found[7] == "partition_by names the unknown column vlaue: did you mean value?"
    assert found[8].startswith("order_by names the unknown column time")
    assert "`gone` cannot be resolved" in found[9]
    assert found[4] == "No suitable driver: add the driver's jar with --set spark.jars=FILE"
    assert list(found) == [4, 7, 8, 9]


def test_files_of_checkpoints_on_a_hadoop_file_system(spark: "SparkSession", tmp_path: Path) -> None:
    files = CheckpointFiles(spark)
    directory = f"file://{tmp_path}/checkpoint"
    assert (files.read(f"{directory}/a.json"), files.names(directory)) == (None, [])
    for text in ("first", "second"):
        files.write(f"{directory}/a.json", text)
    assert files.read(f"{directory}/a.json") == "second"
    assert "a.json" in files.names(directory)


def test_sinks_are_checked_before_the_start(
    spark: "SparkSession", broker: EmbeddedBroker, postgres: Postgres, topic: str, tmp_path: Path
) -> None:
    """The rows must fit the schema that is registered for a topic, and the columns of a table."""
    old = {"type": "record", "name": "old", "fields": [{"name": "value", "type": "string"}]}
    with RegistryClient(broker.schema_registry_url) as registry:
        registry.register(f"{topic}-value", Schema(json.dumps(old)))
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TABLE ticks (value bytea)")
    text = f"""\
        name: wrong
        platform:
          bootstrap.servers: {broker.bootstrap_servers}
          schema.registry.url: {broker.schema_registry_url}
        sources: {{ticks: {{generator: {{}}}}}}
        sinks:
          - {{topic: {topic}, from: ticks, value_format: avro}}
          - {{topic: {topic}-new, from: ticks, value_format: avro}}
          - {{topic: {topic}-proto, from: ticks, value_format: protobuf}}
          - {{name: table, postgres: "{postgres.dsn}", table: ticks, from: ticks}}
        """
    with pytest.raises(PipelineError) as caught:
        check_pipeline(spark, parse_pipeline(dedent(text), tmp_path / "p.yaml", {}))
    found = [(problem.location.line, problem.message) for problem in caught.value.problems]
    assert [line for line, _ in found] == [7, 9, 10, 10]
    assert found[0][1].startswith(f"the schema of the rows is incompatible with {topic}-value: ")
    assert found[1][1] == f"the sink needs value_schema, since the registry has no schema {topic}-proto-value"
    assert "column timestamp is missing" in found[2][1]


def test_one_problem_does_not_hide_others(
    spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Errors of Spark's analysis are reported together with problems of flows that Spark accepts."""
    broker.create_topic(topic)
    text = f"""\
        name: wrong
        platform: {{bootstrap.servers: "{broker.bootstrap_servers}"}}
        on_error: dead-letter
        sources:
          there: {{topic: {topic}, value_format: json, value_schema: "at string"}}
          ticks: {{generator: {{}}}}
        transforms:
          - {{name: read, from: there, steps: [{{timestamp: {{at: YYYY-MM-dd}}}}]}}
          - {{name: unused, sql: SELECT vlaue FROM ticks}}
          - {{name: totals, sql: SELECT count(*) AS n FROM ticks}}
        sinks:
          - {{name: a, console: true, from: read}}
          - {{name: c, console: true, from: totals}}
        """
    with pytest.raises(PipelineError) as caught:
        check_pipeline(spark, parse_pipeline(dedent(text), tmp_path / "p.yaml", {}))
    found = {problem.location.line: problem.message for problem in caught.value.problems}
    assert list(found) == [8, 9, 13]
    assert found[8].startswith("YYYY-MM-dd is not a valid timestamp pattern")
    assert "`vlaue` cannot be resolved" in found[9]
    assert "watermark" in found[13]


def test_unused_transforms_are_checked_too(spark: "SparkSession", tmp_path: Path) -> None:
    text = """\
        name: wrong
        sources: {ticks: {generator: {}}}
        transforms: [{name: unused, sql: SELECT vlaue FROM ticks}]
        sinks: [{console: true, from: ticks}]
        """
    with pytest.raises(PipelineError, match=r"p.yaml:3: .*`vlaue` cannot be resolved"):
        check_pipeline(spark, parse_pipeline(dedent(text), tmp_path / "p.yaml", {}))


def test_a_platform_that_does_not_respond(tmp_path: Path) -> None:
    text = """\
        name: wrong
        platform: {bootstrap.servers: "127.0.0.1:1", schema.registry.url: "http://127.0.0.1:1"}
        sources: {views: {topic: views}}
        sinks: [{console: true, from: views}]
        """
    pipeline = parse_pipeline(dedent(text), tmp_path / "p.yaml", {})
    (topics,), (registry,) = check_topics(pipeline), list(check_registry(pipeline))
    assert (topics.location.line, registry.location.line) == (2, 2)
    assert topics.message.startswith("no broker answers at bootstrap.servers 127.0.0.1:1")
    assert "no schema registry answers" in registry.message


def test_missing_topics(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic)
    text = f"""\
        name: wrong
        platform: {{bootstrap.servers: "{broker.bootstrap_servers}"}}
        sources:
          misspelled: {{topic: {topic}s}}
          nowhere: {{topic: qqq}}
        sinks: [{{console: true, from: nowhere}}]
        """
    found = check_topics(parse_pipeline(dedent(text), tmp_path / "p.yaml", {}))
    assert [problem.location.line for problem in found] == [4, 5]
    assert found[0].message == f"there is no topic {topic}s: did you mean {topic}?"
    assert found[1].message == "there is no topic qqq: rookery topics create qqq"
