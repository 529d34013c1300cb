"""`writeStream.format("rookery")`: exactly once, by `commit_protocol`. Spark creates one writer per micro-batch.

The sink's name is the query's id, which is stored in its checkpoint, so that a restarted query finds its decisions.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rookery.spark.clients import admin_for
from rookery.spark.compat import Feature, has
from rookery.spark.option_table import OptionError
from rookery.spark.options import WriteOptions
from rookery.spark.sink.columns import SinkColumns
from rookery.spark.sink.commit_protocol import SinkError
from rookery.spark.sink.driver import SinkDriver
from rookery.spark.sink.names import BATCH_ID, QUERY_ID
from rookery.spark.sink.task_writer import TaskIdentity, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

_CONTINUOUS: Final = (
    "a topic cannot be written with the continuous trigger: Spark then passes no rows to a sink in Python. Stop the "
    "query, and use trigger(processingTime=...) or none"
)


class ArrowWriterOfBatchesAndStreams(DataSourceArrowWriter, DataSourceStreamWriter):  # type: ignore[misc]  # two commits
    """The base of stream writers under Spark 4.0, which has no base for stream writers that take Arrow.

    Spark 4.0 passes the rows of a stream in the same way as those of a batch: as Arrow to a `DataSourceArrowWriter`,
    otherwise one by one. It does not use the class to distinguish stream writers from batch writers.
    """


if TYPE_CHECKING or has(Feature.ARROW_STREAM_WRITER):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
else:
    ArrowStreamWriter = ArrowWriterOfBatchesAndStreams


class MicroBatchWriter:
    """The methods that Spark calls on a stream writer; independent of the base class."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if options.txn_app_id is not None or options.txn_version is not None:
            # The batches of a new checkpoint start at 0 again. With a name chosen by the user, the ledger would take
            # them for batches of the old checkpoint, and they would be skipped.
            raise OptionError(
                "options txnAppId and txnVersion are for batch writes; a stream is identified by its checkpoint"
            )
        self._options = options
        self._columns = SinkColumns(schema, options)
        # Connect once now: otherwise every task would report a wrong address, after its time-out.
        admin_for(options.client_config)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._options, self._columns, self.task_identity(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        if None in messages:
            # With other triggers, each task sends a message, so a missing one shows that the trigger is continuous.
            # Spark only logs this error; but without it the checkpoint would record rows that no task has written.
            raise SinkError(_CONTINUOUS)
        self._driver().commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._driver().abort(messages, batchId)

    def _driver(self) -> SinkDriver:
        return SinkDriver(self._options, is_streaming=True, on_step=self.on_step)

    async def on_step(self, step: str) -> None:
        """Called at each step of a commit. Tests override it to kill the driver there."""

    def task_identity(self) -> TaskIdentity:
        context = TaskContext.get()
        if context is None:
            raise SinkError("a stream can be written by Spark's tasks only")
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SinkError("the task belongs to no streaming query: Spark has set no query id and batch id")
        return TaskIdentity(
            sink=query,
            batch=int(batch),
            partition=context.partitionId(),
            is_streaming=True,
        )


class StreamWriter(MicroBatchWriter, ArrowStreamWriter):
    """The writer, with the base class that the installed version of Spark has."""
