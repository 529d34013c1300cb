"""`foreachBatch(TopicSink(...))`: what `writeStream.format("rookery")` does, also in the output mode update.

Spark lets no data source in Python write in that mode. Inside `foreachBatch` updates are rows like others, and a batch
write takes part in the protocol of streams, if it is told the query and the batch: see `BatchWriter`.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from rookery.spark.option_table import FORMAT
from rookery.spark.sink.commit_protocol import SinkError
from rookery.spark.sink.names import QUERY_ID


class TopicSink:
    """The options are those of `writeStream.format("rookery")`.

    One function may call several of them. They are told apart by the option `topic`; those without it, which write to
    the topics of a column, by `name`.
    """

    def __init__(self, options: Mapping[str, str], *, name: str = "") -> None:
        self._options = dict(options)
        self._name = name

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if query is None:
            raise SinkError("a TopicSink is called by foreachBatch only: Spark gave no query id")
        stream = f"{query}.{self._name}" if self._name else query
        writer = rows.write.format(FORMAT).options(**self._options)
        writer.options(streamId=stream, streamBatch=batch_id).mode("append").save()
