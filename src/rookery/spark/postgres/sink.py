"""Writes the batches of a streaming query to a PostgreSQL table, each exactly once.

    sink = PostgresSink(dsn=..., table="orders", key_columns=["id"], sink_id="orders-to-postgres")
    stream.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

Theory of operation. Tasks copy their rows into their own tables (`staging`). The driver then, in one transaction, locks
the sink's entry in the ledger, counts the staged rows and merges them into the target, writes the batch into the
ledger, and drops the staging tables. A process that dies before that commit has written nothing: the batch is replayed
and staged again, and orphaned tables are dropped. After the commit, the replay finds the batch in the ledger and does
nothing. Dead letters of rows that the table refuses are part of the transaction, and are sent after it (`outbox`).

A run claims the sink with its first batch, and its claim is compared under the ledger's lock before rows are merged: a
driver that was replaced but is still running is fenced. A sink id must belong to one checkpoint: batches are identified
by their numbers, and those of another checkpoint start at 0 again.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from pyspark.sql import functions
from pyspark.sql.types import BooleanType, StructField, StructType

from rookery.spark.postgres.connections import connect, parse_table
from rookery.spark.postgres.errors import PostgresError
from rookery.spark.postgres.ledger import Ledger
from rookery.spark.postgres.letters import ORIGIN, DeadLetters
from rookery.spark.postgres.merge_statements import Merge, MergeColumn
from rookery.spark.postgres.outbox import Outbox
from rookery.spark.postgres.refused_values import Limits
from rookery.spark.postgres.staging import (
    DELETE,
    ROW,
    STAGED_SCHEMA,
    OnRefused,
    Staged,
    StagedColumn,
    Staging,
    check_complete,
    drop_tables,
    stage,
    staged_tables,
)
from rookery.spark.postgres.tables import TableColumn, ensure_table, find_columns
from rookery.spark.postgres.types import compared_as, is_json, needs_cast, staged_type
from rookery.telemetry.library_logs import LibraryLogger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_log = LibraryLogger(__name__)


class Step(StrEnum):
    """A completed step of a batch, passed to `on_step`; tests interrupt the sink there."""

    STAGED = "staged"
    MERGED = "merged"
    COMMITTED = "committed"
    # Only if there are dead letters.
    SENT = "sent"


class Outcome(NamedTuple):
    """The result of a batch. `is_replay`: the batch was written before, and was skipped.

    `letter_count`: the dead letters that were sent, which may be those of an earlier run.
    """

    row_count: int
    is_replay: bool
    letter_count: int = 0


class PostgresSink:
    """The sink of one run of a query. With key columns, rows replace those with the same key; without, rows are added.

    `delete_when` is an SQL expression of Spark: rows for which it is true delete the row with their key.
    Rows that the table cannot hold are errors, unless they are handled: `dead_letters` sends them to a topic, once;
    `on_refused` is called in the tasks, and again with the same rows if a task is retried.
    """

    def __init__(
        self,
        *,
        dsn: str,
        table: str,
        sink_id: str,
        key_columns: Sequence[str] = (),
        order_column: str | None = None,
        delete_when: str | None = None,
        on_refused: OnRefused | None = None,
        dead_letters: DeadLetters | None = None,
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        if delete_when is not None and not key_columns:
            raise PostgresError("delete_when needs key_columns: rows are deleted by their key")
        if on_refused is not None and dead_letters is not None:
            raise PostgresError("refused rows go to on_refused or to dead_letters: set one of them")
        self._dsn = dsn
        self._target = parse_table(table)
        self._sink_id = sink_id
        self._key_columns = tuple(key_columns)
        self._order_column = order_column
        self._delete_when = delete_when
        self._on_refused = on_refused
        self._dead_letters = dead_letters
        self._on_step = on_step
        self._ledger = Ledger(self._target, sink_id)
        self._outbox = Outbox(self._target, sink_id)
        # The outbox may hold letters of a run that died after its commit.
        self._may_have_letters = dead_letters is not None
        self._claim: int | None = None
        self._columns: dict[str, TableColumn] = {}

    def __call__(self, rows: "DataFrame", batch_id: int) -> Outcome:
        """Write a batch; for `foreachBatch`."""
        schema = self._written_schema(rows.schema)
        if not self.begin(schema, batch_id):
            return Outcome(0, is_replay=True, letter_count=self._send_letters(rows.sparkSession))
        staging = self.staging(schema)

        def stage_partition(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            yield from _stage_in_task(staging, batches)

        staged = self._prepare(rows, schema).mapInArrow(stage_partition, STAGED_SCHEMA).collect()
        outcome = self.publish(schema, batch_id, [Staged(*row) for row in staged])
        return outcome._replace(letter_count=self._send_letters(rows.sparkSession))

    def _written_schema(self, schema: StructType) -> StructType:
        """Return the schema without the column of original records, which are only for dead letters."""
        letters = self._dead_letters
        if letters is None:
            return schema
        if letters.topic is None and ORIGIN not in schema.names:
            raise PostgresError(
                f"rows without the column {ORIGIN} do not come from a topic: set the topic of dead_letters"
            )
        return StructType([field for field in schema if field.name != ORIGIN])

    def begin(self, schema: StructType, batch_id: int) -> bool:
        """Return whether the batch must be written. The first call claims the sink and creates or checks the table."""
        self._check_columns(schema)
        with connect(self._dsn) as connection:
            if self._claim is None:
                self._columns = ensure_table(connection, self._target, schema, self._key_columns)
                claim = self._ledger.claim(connection).claim
                if self._dead_letters is not None:
                    # The claim holds its lock until the commit, so concurrent runs do not create the table twice.
                    self._outbox.create(connection)
                drop_tables(connection, staged_tables(connection, self._target, self._sink_id))
                connection.commit()
                self._claim = claim
            entry = self._ledger.lock(connection, self._claim)
        if batch_id < entry.batch:
            _log.warning(
                "batch is older than the last one written", sink=self._sink_id, batch=batch_id, last=entry.batch
            )
        return batch_id > entry.batch

    def staging(self, schema: StructType) -> Staging:
        columns = [
            StagedColumn(
                field.name, staged_type(field.dataType) or "", self._limits(field.name), is_json(field.dataType)
            )
            for field in schema
        ]
        if self._delete_when is not None:
            columns.append(StagedColumn(DELETE, staged_type(BooleanType()) or ""))
        return Staging(
            self._dsn,
            self._target,
            self._sink_id,
            tuple(columns),
            self._key_columns,
            self._delete_when is not None,
            self._on_refused,
            self._dead_letters,
        )

    def _limits(self, name: str) -> Limits:
        """Return the limits of a column, as the table was when this run started. The server enforces later changes."""
        column, is_key = self._columns.get(name), name in self._key_columns
        if column is None:
            return Limits(is_required=is_key)
        kind = column.type
        return Limits(is_key or column.is_not_null, kind.length_max, kind.name == "jsonb")

    def publish(self, schema: StructType, batch_id: int, staged: Sequence[Staged]) -> Outcome:
        """Merge the staged rows and write the ledger's entry in one transaction."""
        assert self._claim is not None, "begin() claims the sink"
        self._on_step(Step.STAGED)
        rows = [table for table in staged if not table.has_letters]
        letters = [table for table in staged if table.has_letters]
        self._may_have_letters |= bool(letters)
        row_count = sum(table.row_count for table in rows)
        with connect(self._dsn) as connection:
            is_replay = self._ledger.lock(connection, self._claim).batch >= batch_id
            if not is_replay:
                check_complete(connection, self._target, staged)
                self._merge(connection, schema, rows)
                self._outbox.add(connection, batch_id, letters)
                self._ledger.write(connection, batch_id, row_count)
            drop_tables(connection, staged_tables(connection, self._target, self._sink_id))
            self._on_step(Step.MERGED)
        self._on_step(Step.COMMITTED)
        return Outcome(0 if is_replay else row_count, is_replay)

    def _merge(self, connection: psycopg.Connection, schema: StructType, staged: Sequence[Staged]) -> None:
        if not staged:
            return
        columns = find_columns(connection, self._target, schema, self._key_columns)
        merge = Merge(
            self._target,
            tuple(_merge_column(field, columns[field.name]) for field in schema),
            self._key_columns,
            self._order_column,
            self._delete_when is not None,
        )
        for statement in merge.statements(staged):
            connection.execute(statement)

    def _send_letters(self, session: "SparkSession") -> int:
        """Send all pending dead letters and return their number.

        This runs before the batch returns: when Spark records a batch as done, its dead letters are in their topic.
        """
        if self._dead_letters is None or not self._may_have_letters:
            return 0
        with connect(self._dsn) as connection:
            pending = self._outbox.pending(connection)
        for batch in pending:
            self._outbox.send(session, self._dsn, batch, self._dead_letters)
            self._on_step(Step.SENT)
            with connect(self._dsn) as connection:
                self._outbox.remove(connection, batch.batch)
        self._may_have_letters = False
        return sum(batch.letter_count for batch in pending)

    def _prepare(self, rows: "DataFrame", schema: StructType) -> "DataFrame":
        columns = [
            functions.to_json(rows[f"`{field.name}`"]).alias(field.name)
            if is_json(field.dataType)
            else rows[f"`{field.name}`"]
            for field in schema
        ]
        if self._delete_when is not None:
            columns.append(functions.coalesce(functions.expr(self._delete_when), functions.lit(False)).alias(DELETE))
        if len(schema) < len(rows.columns):
            columns.append(rows[ORIGIN])
        return rows.select(*columns)

    def _check_columns(self, schema: StructType) -> None:
        taken = {ROW, DELETE, ORIGIN} & set(schema.names)
        if taken:
            raise PostgresError(f"column {taken.pop()} is used by the sink: rename it")
        if self._order_column is not None and self._order_column not in schema.names:
            raise PostgresError(f"order column {self._order_column} is not among {', '.join(schema.names)}")


def _merge_column(field: StructField, column: TableColumn) -> MergeColumn:
    cast = str(column.type) if needs_cast(field.dataType, column.type) else None
    return MergeColumn(field.name, cast, compared_as(field.dataType, column.type))


def _stage_in_task(staging: Staging, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    for staged in stage(staging, task.partitionId() if task is not None else 0, batches):
        arrays: list[Any] = [
            pa.array([staged.name]),
            pa.array([staged.partition], pa.int32()),
            pa.array([staged.row_count]),
            pa.array([staged.has_letters]),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(Staged._fields))
