"""The sink with a real server, without Spark: the tests call its parts as the driver and the tasks do."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from rookery.spark.postgres.errors import FencedError, PostgresError, ServerError
from rookery.spark.postgres.ledger import LEDGER
from rookery.spark.postgres.letters import DeadLetters, from_bytes
from rookery.spark.postgres.outbox import OUTBOX
from rookery.spark.postgres.sink import Outcome, PostgresSink, Step
from rookery.spark.postgres.staging import Staged, stage
from tests.support.postgres import Postgres, running_postgres

SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])
Rows = Sequence[tuple[int | None, str | None]]


class DiedError(Exception):
    """Simulates the death of a driver."""


class Writer:
    """A run of a query that writes to one table."""

    def __init__(self, postgres: Postgres, table: str, *, dies_at: Step | None = None, **options: Any) -> None:
        def on_step(step: Step) -> None:
            if step == dies_at:
                raise DiedError(step)

        options = {"key_columns": ["id"], "sink_id": f"sink of {table}"} | options
        self.sink = PostgresSink(dsn=postgres.dsn, table=table, on_step=on_step, **options)

    def write(self, batch_id: int, *partitions: Rows) -> Outcome:
        if not self.sink.begin(SCHEMA, batch_id):
            return Outcome(0, is_replay=True)
        return self.sink.publish(SCHEMA, batch_id, self.stage(*partitions))

    def stage(self, *partitions: Rows) -> list[Staged]:
        staging = self.sink.staging(SCHEMA)
        return [each for number, rows in enumerate(partitions) for each in stage(staging, number, [_batch(rows)])]


def _batch(rows: Rows) -> pa.RecordBatch:
    ids, names = [row[0] for row in rows], [row[1] for row in rows]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def content(connection: psycopg.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql.SQL("SELECT * FROM {} ORDER BY 1, 2").format(sql.Identifier(table))).fetchall()


def staging_tables(connection: psycopg.Connection) -> int:
    found = connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'rookery_stage_%'").fetchone()
    assert found is not None
    return int(found[0])


def test_rows_replace_those_of_the_same_key(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    writer = Writer(postgres, table)
    assert writer.write(0, [(1, "a"), (2, "b")], [(3, None)]) == Outcome(3, is_replay=False)
    assert writer.write(1, [(2, "B")], []) == Outcome(1, is_replay=False)
    assert writer.write(2) == Outcome(0, is_replay=False)
    assert content(connection, table) == [(1, "a"), (2, "B"), (3, None)]
    assert staging_tables(connection) == 0


def test_the_last_row_of_a_key_wins(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    Writer(postgres, table).write(0, [(1, "first"), (1, "second")], [(1, "last"), (2, "x"), (2, "y")])
    assert content(connection, table) == [(1, "last"), (2, "y")]


def test_the_row_with_the_highest_order_wins(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    Writer(postgres, table, order_column="name").write(0, [(1, "z"), (1, None)], [(1, "a")])
    assert content(connection, table) == [(1, "z")]
    with pytest.raises(PostgresError, match="order column when is not among id, name"):
        Writer(postgres, table, order_column="when").write(1, [(1, "z")])


def test_without_keys_rows_are_added(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    writer = Writer(postgres, table, key_columns=[])
    writer.write(0, [(1, "a"), (1, "a")])
    writer.write(1, [(1, "a")])
    assert writer.write(1, [(1, "a")]) == Outcome(0, is_replay=True)
    assert content(connection, table) == [(1, "a")] * 3


def test_a_table_may_consist_of_keys_only(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    writer = Writer(postgres, table, key_columns=["id", "name"])
    writer.write(0, [(1, "a"), (1, "a"), (1, "b")])
    writer.write(1, [(1, "a")])
    assert content(connection, table) == [(1, "a"), (1, "b")]


def test_rows_can_be_deleted(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    sink = PostgresSink(
        dsn=postgres.dsn, table=table, sink_id=f"sink of {table}", key_columns=["id"], delete_when="name IS NULL"
    )

    def write(batch_id: int, rows: Rows) -> None:
        sink.begin(SCHEMA, batch_id)
        batch = _batch(rows).append_column("__rookery_delete", pa.array([row[1] is None for row in rows], pa.bool_()))
        sink.publish(SCHEMA, batch_id, stage(sink.staging(SCHEMA), 0, [batch]))

    write(0, [(1, "a"), (2, "b"), (3, None)])
    write(1, [(1, None), (2, None), (2, "again")])
    # A row without a key deletes nothing.
    write(2, [(None, None)])
    assert content(connection, table) == [(2, "again")]
    with pytest.raises(PostgresError, match="needs key_columns"):
        PostgresSink(dsn=postgres.dsn, table=table, sink_id="x", delete_when="true")


@pytest.mark.parametrize("step", [Step.STAGED, Step.MERGED, Step.COMMITTED])
@pytest.mark.parametrize("keys", [["id"], []])
def test_a_batch_is_written_once_wherever_the_driver_dies(
    postgres: Postgres, connection: psycopg.Connection, table: str, step: Step, keys: list[str]
) -> None:
    Writer(postgres, table, key_columns=keys).write(0, [(1, "a")])
    with pytest.raises(DiedError):
        Writer(postgres, table, key_columns=keys, dies_at=step).write(1, [(2, "b")], [(3, "c")])
    is_there = step is Step.COMMITTED
    assert content(connection, table) == [(1, "a")] + ([(2, "b"), (3, "c")] if is_there else [])
    restarted = Writer(postgres, table, key_columns=keys)
    assert restarted.write(1, [(2, "b")], [(3, "c")]).is_replay is is_there
    restarted.write(2, [(4, "d")])
    assert content(connection, table) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert staging_tables(connection) == 0


def test_a_commit_that_did_not_reach_the_server(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    def on_step(step: Step) -> None:
        if step is Step.MERGED:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in%'")

    cut_off = PostgresSink(dsn=postgres.dsn, table=table, sink_id=table, on_step=on_step)
    cut_off.begin(SCHEMA, 0)
    staged = stage(cut_off.staging(SCHEMA), 0, [_batch([(1, "a")])])
    with pytest.raises(ServerError, match="terminating connection") as caught:
        cut_off.publish(SCHEMA, 0, staged)
    assert not caught.value.is_lasting
    assert content(connection, table) == []
    assert Writer(postgres, table, sink_id=table, key_columns=[]).write(0, [(1, "a")]).row_count == 1
    assert content(connection, table) == [(1, "a")]


@pytest.mark.parametrize(
    ("kind", "same"),
    [("uuid", "6B2F1F9C-6F0E-4B5E-8A55-0F6C7D1E2A3B"), ("char(36)", "6b2f1f9c-6f0e-4b5e-8a55-0f6c7d1e2a3b ")],
)
def test_texts_that_are_the_same_key(
    postgres: Postgres, connection: psycopg.Connection, table: str, kind: str, same: str
) -> None:
    create = sql.SQL("CREATE TABLE {} (id bigint, name {} PRIMARY KEY)").format(sql.Identifier(table), sql.SQL(kind))
    connection.execute(create)
    writer = Writer(postgres, table, key_columns=["name"])
    writer.write(0, [(1, "6b2f1f9c-6f0e-4b5e-8a55-0f6c7d1e2a3b"), (2, same)])
    assert [row[0] for row in content(connection, table)] == [2]


def test_tables_of_attempts_that_do_not_count_are_dropped(
    postgres: Postgres, connection: psycopg.Connection, table: str
) -> None:
    writer = Writer(postgres, table)
    writer.sink.begin(SCHEMA, 0)
    speculative = writer.stage([(1, "slow")])
    counted = writer.stage([(1, "quick")])
    assert staging_tables(connection) == 2
    writer.sink.publish(SCHEMA, 0, counted)
    assert content(connection, table) == [(1, "quick")]
    assert staging_tables(connection) == 0
    assert speculative[0].name != counted[0].name


def test_a_replaced_driver_is_fenced(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    zombie = Writer(postgres, table)
    zombie.write(0, [(1, "a")])
    zombie.sink.begin(SCHEMA, 1)
    staged = zombie.stage([(2, "zombie")])
    alive = Writer(postgres, table)
    # The claim fences it, even before the other driver has written anything.
    assert alive.sink.begin(SCHEMA, 1)
    with pytest.raises(FencedError, match="another run has taken over"):
        zombie.sink.publish(SCHEMA, 1, staged)
    with pytest.raises(FencedError):
        zombie.write(2, [(3, "zombie")])
    alive.write(1, [(2, "b")])
    assert content(connection, table) == [(1, "a"), (2, "b")]
    assert staging_tables(connection) == 0


def test_two_concurrent_drivers(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    """The claim waits for the commit of the first driver; the batch is then a replay."""
    first = Writer(postgres, table)
    first.sink.begin(SCHEMA, 0)
    first.sink.publish(SCHEMA, 0, first.stage([(1, "a")]))
    second = Writer(postgres, table)
    assert not second.sink.begin(SCHEMA, 0)
    assert second.sink.begin(SCHEMA, 1)


def test_sinks_are_independent(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    first, second = Writer(postgres, table, sink_id="one"), Writer(postgres, table, sink_id="two")
    first.sink.begin(SCHEMA, 0)
    staged = first.stage([(1, "a")])
    second.write(5, [(2, "b")])
    assert first.sink.publish(SCHEMA, 0, staged).row_count == 1
    assert content(connection, table) == [(1, "a"), (2, "b")]


def test_the_ledger_can_be_queried(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    writer = Writer(postgres, table)
    writer.write(7, [(1, "a")])
    query = sql.SQL("SELECT claim, batch, row_count FROM {} WHERE sink = %s").format(sql.Identifier(LEDGER))
    assert connection.execute(query, (f"sink of {table}",)).fetchone() == (1, 7, 1)
    assert writer.write(3, [(9, "old")]).is_replay


def test_a_table_in_another_schema(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    connection.execute("CREATE SCHEMA IF NOT EXISTS sales")
    Writer(postgres, f"sales.{table}").write(0, [(1, "a")])
    query = sql.SQL("SELECT name FROM {}").format(sql.Identifier("sales", table))
    assert connection.execute(query).fetchall() == [("a",)]
    assert staging_tables(connection) == 0
    with pytest.raises(PostgresError, match="is not the name of a table"):
        Writer(postgres, "a.b.c")


def test_unsuitable_tables_are_errors_before_staging(
    postgres: Postgres, connection: psycopg.Connection, table: str
) -> None:
    connection.execute(sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, label text)").format(sql.Identifier(table)))
    with pytest.raises(
        PostgresError, match=rf"{table}: column id: bigint does not fit integer.*column name is missing"
    ):
        Writer(postgres, table).write(0, [(1, "a")])
    reserved = StructType([*SCHEMA.fields, StructField("__rookery_delete", BooleanType())])
    with pytest.raises(PostgresError, match="rename it"):
        Writer(postgres, table).sink.begin(reserved, 0)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=nowhere hunter2",
        "postgresql://u:hunter2 x@h/db",
        "postgresql://stranger:hunter2@127.0.0.1:{port}/postgres",
        "host=127.0.0.1 port={port} user=hunter2 password=hunter2 dbname=postgres",
    ],
)
def test_errors_never_show_a_password(postgres: Postgres, dsn: str) -> None:
    sink = PostgresSink(dsn=dsn.format(port=postgres.port), table="t", sink_id="s")
    with pytest.raises(PostgresError) as caught:
        sink.begin(SCHEMA, 0)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__
    assert "hunter2" not in repr(sink.staging(SCHEMA))


def test_the_loss_of_staged_rows_in_a_crash_is_detected() -> None:
    """The staging table is not logged: after the crash it exists, but is empty."""
    with running_postgres(synchronous_commit="on") as server:
        writer = Writer(server, "orders")
        writer.sink.begin(SCHEMA, 0)
        staged = writer.stage([(1, "a")], [(2, "b")])
        server.crash()
        with pytest.raises(PostgresError, match="of 1 rows staged for orders, only 0 are left"):
            writer.sink.publish(SCHEMA, 0, staged)
        assert Writer(server, "orders").write(0, [(1, "a")], [(2, "b")]) == Outcome(2, is_replay=False)
        with psycopg.connect(server.dsn) as connection:
            assert content(connection, "orders") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, "a"), (None, "b")], r"column id \(int64\) is null, and must not be, in the row with id = None"),
        (
            [(1, "a"), (2, "b\0"), (3, "\0")],
            r"column name \(string\) has a NUL .* row with id = 2, and 1 more such rows",
        ),
    ],
)
def test_the_error_names_a_refused_row(postgres: Postgres, table: str, rows: Rows, message: str) -> None:
    with pytest.raises(PostgresError, match=f"table {table}: {message}"):
        Writer(postgres, table).write(0, rows)


def test_on_refused_gets_refused_rows(postgres: Postgres, connection: psycopg.Connection, table: str) -> None:
    refused: list[tuple[Any, str]] = []
    writer = Writer(
        postgres, table, on_refused=lambda rows, reasons: refused.extend(zip(rows.to_pylist(), reasons, strict=True))
    )
    assert writer.write(0, [(1, "a"), (None, "\0"), (2, "b"), (3, "\0")], [(None, "c")]).row_count == 2
    assert content(connection, table) == [(1, "a"), (2, "b")]
    assert [row for row, _ in refused] == [
        {"id": None, "name": "\0"},
        {"id": 3, "name": "\0"},
        {"id": None, "name": "c"},
    ]
    assert refused[0][1] == "column id (int64) is null, and must not be, in the row with id = None"


def pending_letters(connection: psycopg.Connection, table: str) -> list[tuple[int, list[str]]]:
    """Return the batches and values of dead letters that have not been sent yet."""
    query = sql.SQL("SELECT batch, letters FROM {} WHERE sink = %s ORDER BY 1, number").format(sql.Identifier(OUTBOX))
    found = connection.execute(query, (f"sink of {table}",)).fetchall()
    return [
        (batch, [value.decode() for part in from_bytes(data) for value in part.column("value").to_pylist()])
        for batch, data in found
    ]


@pytest.mark.parametrize("step", [Step.STAGED, Step.MERGED, Step.COMMITTED])
def test_dead_letters_are_stored_with_their_batch(
    postgres: Postgres, connection: psycopg.Connection, table: str, step: Step
) -> None:
    """Letters of attempts that do not count are dropped; letters of a batch that is not written are not stored."""
    letters = DeadLetters({}, "lost", "shop")
    dying = Writer(postgres, table, dead_letters=letters, dies_at=step)
    dying.sink.begin(SCHEMA, 0)
    dying.stage([(9, "speculative\0")])
    with pytest.raises(DiedError):
        dying.sink.publish(SCHEMA, 0, dying.stage([(1, "a"), (2, "\0")], [(None, "b"), (None, "c")]))
    expected = [(0, [r'{"id":2,"name":"\u0000"}']), (0, ['{"id":null,"name":"b"}', '{"id":null,"name":"c"}'])]
    is_there = step is Step.COMMITTED
    assert pending_letters(connection, table) == (expected if is_there else [])
    again = Writer(postgres, table, dead_letters=letters)
    assert again.write(0, [(1, "a"), (2, "\0")], [(None, "b"), (None, "c")]).is_replay is is_there
    assert pending_letters(connection, table) == expected
    assert content(connection, table) == [(1, "a")]
    assert staging_tables(connection) == 0


def test_on_refused_and_dead_letters_exclude_each_other(postgres: Postgres, table: str) -> None:
    letters = DeadLetters({}, "lost")
    with pytest.raises(PostgresError, match="set one of them"):
        Writer(postgres, table, dead_letters=letters, on_refused=lambda rows, reasons: None)


@pytest.mark.parametrize(
    ("column", "good", "bad", "why"),
    [
        ("varchar(3)", "äöü ", "äöüß", "has 4 characters, and the table's has 3"),
        ("text NOT NULL DEFAULT 'x'", "a", None, "is null, and must not be"),
        ("jsonb", r'"\\u0000"', r'"\u0000"', "has a NUL character, which PostgreSQL's jsonb cannot hold"),
    ],
)
def test_limits_of_the_table(
    postgres: Postgres, connection: psycopg.Connection, table: str, column: str, good: str, bad: str | None, why: str
) -> None:
    create = sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, name {})")
    connection.execute(create.format(sql.Identifier(table), sql.SQL(column)))
    writer = Writer(postgres, table)
    writer.write(0, [(1, good)])
    with pytest.raises(PostgresError, match=rf"column name \(string\) {why}, in the row with id = 2"):
        writer.write(1, [(2, bad)])
    assert [row[0] for row in content(connection, table)] == [1]
