"""Stores dead letters in PostgreSQL until they are sent to their topic, in a table in the schema of the target.

Theory of operation. The batch decides which rows it refuses: tasks stage dead letters as they stage rows, and the
transaction that merges the rows moves the letters into this table. After its commit they are written to their topic,
with the sink as txnAppId and the batch as txnVersion, so that `format("rookery")` writes them once even if the write is
repeated; then they are deleted here. If a process dies in between, the replay of the batch finds the same letters and
repeats the write.

Simpler schemes are wrong. Letters sent before the commit may belong to rows that the replay writes to the table.
Letters made again by the replay may differ, if a joined table or the target itself has changed.

Letters are stored in portions, in Arrow's stream format.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg import sql

from rookery.spark.option_table import FORMAT
from rookery.spark.postgres.connections import TableName, connect
from rookery.spark.postgres.errors import FencedError
from rookery.spark.postgres.letters import LETTER_SCHEMA, DeadLetters, from_bytes
from rookery.spark.postgres.staging import LETTER_COUNT, LETTERS, ROW, Staged
from rookery.spark.postgres.tables import identifiers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OUTBOX: Final = "rookery_sink_letters"
_COLUMNS: Final = ("sink", "batch", "number", "letter_count", "letters")


class Pending(NamedTuple):
    """The letters of a batch that may not have been sent yet."""

    batch: int
    portion_count: int
    letter_count: int


class Outbox:
    """The letters of one sink."""

    def __init__(self, target: TableName, sink_id: str) -> None:
        self._table = target.sibling(OUTBOX).identifier
        self._target = target
        self._sink_id = sink_id

    def create(self, connection: psycopg.Connection) -> None:
        """Create the table. Must be called under a lock: of two concurrent CREATE TABLE, one would fail."""
        create = sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (sink text, batch bigint, number bigint, letter_count bigint NOT NULL,"
            " letters bytea NOT NULL, PRIMARY KEY (sink, batch, number))"
        )
        connection.execute(create.format(self._table))

    def add(self, connection: psycopg.Connection, batch_id: int, staged: Sequence[Staged]) -> None:
        """Move staged letters into the outbox, in the transaction that merges the batch's rows."""
        if not staged:
            return
        parts = [
            sql.SQL("SELECT {}::int AS part, * FROM {}").format(
                sql.Literal(table.partition), self._target.sibling(table.name).identifier
            )
            for table in staged
        ]
        move = sql.SQL(
            "INSERT INTO {outbox} ({columns}) SELECT {sink}, {batch}, row_number() OVER (ORDER BY part, {row}),"
            " {count}, {letters} FROM ({staged}) AS staged"
        ).format(
            outbox=self._table,
            columns=identifiers(_COLUMNS),
            sink=sql.Literal(self._sink_id),
            batch=sql.Literal(batch_id),
            row=sql.Identifier(ROW),
            count=sql.Identifier(LETTER_COUNT),
            letters=sql.Identifier(LETTERS),
            staged=sql.SQL(" UNION ALL ").join(parts),
        )
        connection.execute(move)

    def pending(self, connection: psycopg.Connection) -> list[Pending]:
        """Return the pending batches, oldest first. There is more than one only if an older checkpoint was restored."""
        query = sql.SQL(
            "SELECT batch, count(*), sum(letter_count)::bigint FROM {} WHERE sink = %s GROUP BY batch ORDER BY batch"
        )
        return [Pending(*row) for row in connection.execute(query.format(self._table), (self._sink_id,))]

    def remove(self, connection: psycopg.Connection, batch_id: int) -> None:
        query = sql.SQL("DELETE FROM {} WHERE sink = %s AND batch = %s")
        connection.execute(query.format(self._table), (self._sink_id, batch_id))

    def send(self, session: "SparkSession", dsn: str, batch: Pending, letters: DeadLetters) -> None:
        table, sink_id, batch_id = self._table, self._sink_id, batch.batch

        def read(numbers: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            query = sql.SQL("SELECT letters FROM {} WHERE sink = %s AND batch = %s AND number = %s").format(table)
            with connect(dsn) as connection:
                for number in (each for some in numbers for each in some.column(0).to_pylist()):
                    row = connection.execute(query, (sink_id, batch_id, number), binary=True).fetchone()
                    if row is None:
                        raise FencedError(f"another run of the sink {sink_id} has sent the dead letters of {batch_id}")
                    yield from from_bytes(row[0])

        task_count = min(batch.portion_count, session.sparkContext.defaultParallelism)
        numbers = session.range(1, batch.portion_count + 1, numPartitions=task_count)
        rows: DataFrame = numbers.mapInArrow(read, LETTER_SCHEMA)
        options = {**letters.options, "txnAppId": sink_id, "txnVersion": str(batch_id)}
        rows.write.format(FORMAT).options(**options).mode("append").save()
