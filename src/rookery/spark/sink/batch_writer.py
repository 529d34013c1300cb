"""`write.format("rookery")`: all rows of a write become visible or none, by the same protocol as a stream's batch.

With txnAppId and txnVersion a write takes effect once, however often it is repeated: they are the sink's name and its
batch. The option topic is part of the sink's name, because users write one version to several topics, as to several
Delta tables. With streamId and streamBatch, which `TopicSink` sets, the write is a micro-batch of that query, and does
not overlap with the next. Any other write has its own sink, with a name that is never used again.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rookery.spark.clients import admin_for
from rookery.spark.option_table import OptionError
from rookery.spark.options import WriteOptions
from rookery.spark.sink.columns import SinkColumns
from rookery.spark.sink.driver import SinkDriver
from rookery.spark.sink.names import named_write
from rookery.spark.sink.task_writer import TaskIdentity, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

_ONLY_BATCH: Final = 0


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("save mode overwrite is not possible: records can only be appended to a topic")
        self._options = options
        self._columns = SinkColumns(schema, options)
        # Connect once now: otherwise every task would report a wrong address, after its time-out.
        admin_for(options.client_config)
        self._is_streaming = options.stream_id is not None
        name, number = (
            (options.stream_id, options.stream_batch)
            if self._is_streaming
            else (options.txn_app_id, options.txn_version)
        )
        self._is_one_off = name is None
        # Chosen in the driver; the tasks receive it in the pickled writer.
        self._sink = f"write-{secrets.token_hex(8)}" if name is None else named_write(name, options.topic)
        self._batch = number or _ONLY_BATCH

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._options, self._columns, self.task_identity(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._driver().commit(messages, self._batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._driver().abort(messages, self._batch)

    async def on_step(self, step: str) -> None:
        """Called at each step of a commit. Tests override it to kill the driver there."""

    def task_identity(self) -> TaskIdentity:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return TaskIdentity(sink=self._sink, batch=self._batch, partition=partition, is_streaming=self._is_streaming)

    def _driver(self) -> SinkDriver:
        return SinkDriver(
            self._options,
            sink=self._sink,
            is_streaming=self._is_streaming,
            is_one_off=self._is_one_off,
            on_step=self.on_step,
        )
