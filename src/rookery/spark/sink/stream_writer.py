"""`writeStream.format("rookery")`: exactly once, by `commit_protocol`; Spark makes one of these for each micro-batch.

The sink's name is the query's id, which lives in its checkpoint: so a query that is started again finds what it has
decided.
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
    "a topic cannot be written with the continuous trigger: Spark hands no rows to a sink in Python then. Stop the "
    "query, and use trigger(processingTime=...) or none"
)


class ArrowWriterOfBatchesAndStreams(DataSourceArrowWriter, DataSourceStreamWriter):  # type: ignore[misc]  # two commits
    """A base for writers of streams under Spark 4.0, which has none that takes Arrow.

    Spark 4.0 hands a stream's rows to its writer as it does a batch's: as Arrow to a `DataSourceArrowWriter`, otherwise
    one by one. Which of the two kinds the writer is for, it looks at elsewhere.
    """


if TYPE_CHECKING or has(Feature.ARROW_STREAM_WRITER):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
else:
    ArrowStreamWriter = ArrowWriterOfBatchesAndStreams


class MicroBatchWriter:
    """What Spark calls of a stream's writer, whatever its base."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if options.txn_app_id is not None or options.txn_version is not None:
            # Batches of a new checkpoint begin at 0 again, and would be taken for those of the old one.
            raise OptionError("options txnAppId and txnVersion name batch writes; a stream is known by its checkpoint")
        self._options = options
        self._columns = SinkColumns(schema, options)
        # A wrong address is told now, and not by every task after its time-out.
        admin_for(options.client_config)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._options, self._columns, self.task_identity(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        if None in messages:
            # Each task of a micro-batch has sent a message. Spark does not tell the trigger in any other way, and only
            # logs this error; but the checkpoint does not claim rows that nobody wrote.
            raise SinkError(_CONTINUOUS)
        self._driver().commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._driver().abort(messages, batchId)

    def _driver(self) -> SinkDriver:
        return SinkDriver(self._options, is_streaming=True, on_step=self.on_step)

    async def on_step(self, step: str) -> None:
        """Of a commit. For tests, which let the driver die here."""

    def task_identity(self) -> TaskIdentity:
        context = TaskContext.get()
        if context is None:
            raise SinkError("a stream is written by Spark's tasks only")
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SinkError("the task belongs to no streaming query: Spark gave it no query id and batch id")
        return TaskIdentity(
            sink=query,
            batch=int(batch),
            partition=context.partitionId(),
            is_streaming=True,
        )


class StreamWriter(MicroBatchWriter, ArrowStreamWriter):
    """With the base that the installed version of Spark has."""
