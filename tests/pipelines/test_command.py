"""`rookery pipelines run` in its own process and JVM: what the user sees if PostgreSQL refuses a row."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import running_postgres

# Starts a JVM, which takes long on a slow machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PIPELINE = """\
name: load
trigger: available-now
restarts: 5
sources:
  orders: {files: orders, format: json, schema: "id bigint, price bigint"}
sinks:
  - {name: out, postgres: "$POSTGRES", table: orders, key: [id], from: orders}
"""


def test_a_refused_row_is_reported_in_one_sentence_with_the_path_of_the_log(tmp_path: Path) -> None:
    """The output has no restarts, no tracebacks, no plan of Spark, and no lines of Java's launcher."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text('{"id": 7, "price": -5}\n')
    with running_postgres() as postgres:
        with psycopg.connect(postgres.dsn) as connection:
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, price bigint)")
            connection.execute("ALTER TABLE orders ADD CONSTRAINT paid CHECK (price > 0)")
        (tmp_path / "load.yaml").write_text(PIPELINE.replace("$POSTGRES", postgres.dsn))
        ran = subprocess.run(
            [sys.executable, "-m", "rookery.cli.main", "pipelines", "run", "load.yaml", "--master", "local[1]"],
            cwd=tmp_path,
            env={**os.environ, "ROOKERY_STATE_DIR": str(tmp_path / "state")},
            capture_output=True,
            text=True,
        )
    log = tmp_path / "state" / "pipelines" / "load.log"
    sentence = (
        'PostgreSQL answers: new row for relation "orders" violates check constraint "paid" (Failing row contains '
        "(7, -5)). Filter or change such rows before they are written, or change the constraint (SQLSTATE 23514)"
    )
    assert ran.returncode == 1
    assert ran.stderr == f"error: flow out failed: {sentence}\nSpark's own log is {log}\n"
    assert ran.stdout.splitlines() == ["out: starting", f"out: failed, {sentence}"]
    assert "CheckViolation" in log.read_text(), "the log has the traceback"
