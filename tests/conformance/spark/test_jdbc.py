"""The `jdbc` source of pipelines on PostgreSQL, with PostgreSQL's driver."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.dataset as ds
import pytest

from rookery.pipelines.spec import PipelineError
from tests.support.pipelines import run_pipeline
from tests.support.postgres import Postgres, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: joined
trigger: available-now
sources:
  orders: {files: orders, format: json, schema: "id int, user int", options: {maxFilesPerTrigger: "1"}}
  users:
    jdbc: "$URL"
    table: sales.users
    options: {user: rookery, partitionColumn: id, lowerBound: "0", upperBound: "10", numPartitions: "2"}
  reads: {jdbc: "$URL", query: "SELECT nextval('reads') AS number", options: {user: rookery}}
transforms:
  - name: joined
    sql: |
      SELECT orders.id, users.name, users.price, users.since, reads.number
      FROM orders JOIN users ON users.id = orders.user CROSS JOIN reads
sinks: [{parquet: out, from: joined}]
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


def test_each_batch_reads_a_table_and_a_query_again(spark: "SparkSession", postgres: Postgres, tmp_path: Path) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE SCHEMA sales; CREATE SEQUENCE reads")
        connection.execute("CREATE TABLE sales.users (id int, name text, price numeric(6,2), since date)")
        connection.execute("INSERT INTO sales.users VALUES (1, 'Ann', 1.50, '2026-03-01'), (7, 'Bob', NULL, NULL)")
    (tmp_path / "orders").mkdir()
    for number, user in enumerate((1, 7, 9)):
        path = tmp_path / "orders" / f"{number}.json"
        path.write_text(json.dumps({"id": number, "user": user}))
        # Spark reads files in the order of their modification times.
        os.utime(path, (number, number))
    text = PIPELINE.replace("$URL", f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres")
    figures = run_pipeline(spark, tmp_path, text)
    rows = ds.dataset(sorted((tmp_path / "out").glob("*.parquet"))).to_table().sort_by("id").to_pylist()
    assert [(row["id"], row["name"], str(row["price"]), str(row["since"])) for row in rows] == [
        (0, "Ann", "1.50", "2026-03-01"),
        (1, "Bob", "None", "None"),
    ]
    assert rows[0]["number"] < rows[1]["number"]
    assert (figures["out"].state, figures["out"].rows_out, figures["out"].batches) == ("finished", 2, 3)


def test_errors_of_the_database_are_reported_with_their_lines(
    spark: "SparkSession", postgres: Postgres, tmp_path: Path
) -> None:
    (tmp_path / "orders").mkdir()
    text = PIPELINE.replace("$URL", f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres").replace("'reads'", "'x'")
    with pytest.raises(PipelineError) as caught:
        run_pipeline(spark, tmp_path, text.replace("sales.users", "sales.usres"))
    found = {problem.location.line: problem.message for problem in caught.value.problems}
    assert 'relation "sales.usres" does not exist' in found[7]
    assert 'relation "x" does not exist' in found[10]
