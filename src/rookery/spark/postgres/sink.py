"""Writes the batches of a streaming query to a PostgreSQL table, each exactly once.

    sink = PostgresSink(dsn=..., table="orders", key_columns=["id"], sink_id="orders-to-postgres")
    stream.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

Theory of operation. Tasks copy their rows into tables of their own (`staging`). Then the driver, in one transaction:
locks the sink's entry in the ledger, counts the staged rows and merges them into the target, writes the batch into the
ledger, drops what was staged. Whatever dies, dies on one side of that commit. Before it, the batch is replayed and
staged anew, and the orphans are swept up; after it, the replay finds the batch in the ledger and does nothing.

A run claims the sink with its first batch, and its claim is compared under the ledger's lock before anything is merged:
a driver that was believed dead and wakes up is fenced. The sink's id must belong to one checkpoint: batches are known
by their numbers, and those of another checkpoint begin at 0 again.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from pyspark.sql import functions
from pyspark.sql.types import BooleanType, StructField, StructType

from rookery.spark.postgres.connecting import PostgresError, connect, parse_table
from rookery.spark.postgres.ledger import Ledger
from rookery.spark.postgres.merging import Merge, MergeColumn
from rookery.spark.postgres.refusals import Limits
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
from rookery.telemetry.logs import library_logger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = library_logger(__name__)


class Step(StrEnum):
    """What a batch has just done, for who watches (or interrupts) it."""

    STAGED = "staged"
    MERGED = "merged"
    COMMITTED = "committed"


class Outcome(NamedTuple):
    """`is_replay`: the batch was written before, and was left alone."""

    row_count: int
    is_replay: bool


class PostgresSink:
    """One run of a query. With key columns, rows replace those of the same key; without, all are added.

    `delete_when` is an SQL expression of Spark: rows for which it is true delete the row of their key.
    `on_refused` is called in the tasks, and again with the same rows if a task is tried again: it takes rows that the
    table cannot hold. Without it they are errors.
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
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        if delete_when is not None and not key_columns:
            raise PostgresError("delete_when needs key_columns: rows are deleted by their key")
        self._dsn = dsn
        self._target = parse_table(table)
        self._sink_id = sink_id
        self._key_columns = tuple(key_columns)
        self._order_column = order_column
        self._delete_when = delete_when
        self._on_refused = on_refused
        self._on_step = on_step
        self._ledger = Ledger(self._target, sink_id)
        self._claim: int | None = None
        self._columns: dict[str, TableColumn] = {}

    def __call__(self, rows: "DataFrame", batch_id: int) -> Outcome:
        """For `foreachBatch`."""
        schema = rows.schema
        if not self.begin(schema, batch_id):
            return Outcome(0, is_replay=True)
        staging = self.staging(schema)

        def stage_partition(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            yield from _stage_in_task(staging, batches)

        staged = self._prepare(rows).mapInArrow(stage_partition, STAGED_SCHEMA).collect()
        return self.publish(schema, batch_id, [Staged(*row) for row in staged])

    def begin(self, schema: StructType, batch_id: int) -> bool:
        """Whether the batch has to be written. The first call claims the sink and sees to the table."""
        self._check_columns(schema)
        with connect(self._dsn) as connection:
            if self._claim is None:
                self._columns = ensure_table(connection, self._target, schema, self._key_columns)
                claim = self._ledger.claim(connection).claim
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
            StagedColumn(field.name, staged_type(field.dataType) or "", self._limits(field.name)) for field in schema
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
        )

    def _limits(self, name: str) -> Limits:
        """As the table was when this run began; what changes later, the server refuses."""
        column, is_key = self._columns.get(name), name in self._key_columns
        if column is None:
            return Limits(is_required=is_key)
        kind = column.type
        return Limits(is_key or column.is_not_null, kind.length_max, kind.name == "jsonb")

    def publish(self, schema: StructType, batch_id: int, staged: Sequence[Staged]) -> Outcome:
        """Make what was staged visible, together with the ledger's entry."""
        assert self._claim is not None, "begin() claims the sink"
        self._on_step(Step.STAGED)
        row_count = sum(table.row_count for table in staged)
        with connect(self._dsn) as connection:
            is_replay = self._ledger.lock(connection, self._claim).batch >= batch_id
            if not is_replay:
                check_complete(connection, self._target, staged)
                self._merge(connection, schema, staged)
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

    def _prepare(self, rows: "DataFrame") -> "DataFrame":
        columns = [
            functions.to_json(rows[f"`{field.name}`"]).alias(field.name)
            if is_json(field.dataType)
            else rows[f"`{field.name}`"]
            for field in rows.schema
        ]
        if self._delete_when is not None:
            columns.append(functions.coalesce(functions.expr(self._delete_when), functions.lit(False)).alias(DELETE))
        return rows.select(*columns)

    def _check_columns(self, schema: StructType) -> None:
        taken = {ROW, DELETE} & set(schema.names)
        if taken:
            raise PostgresError(f"column {taken.pop()} is used by the sink: rename it")
        if self._order_column is not None and self._order_column not in schema.names:
            raise PostgresError(f"order column {self._order_column} is none of {', '.join(schema.names)}")


def _merge_column(field: StructField, column: TableColumn) -> MergeColumn:
    cast = str(column.type) if needs_cast(field.dataType, column.type) else None
    return MergeColumn(field.name, cast, compared_as(field.dataType, column.type))


def _stage_in_task(staging: Staging, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    staged = stage(staging, task.partitionId() if task is not None else 0, batches)
    if staged is not None:
        arrays: list[Any] = [
            pa.array([staged.name]),
            pa.array([staged.partition], pa.int32()),
            pa.array([staged.row_count]),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(Staged._fields))
