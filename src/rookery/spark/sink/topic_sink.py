"""`foreachBatch(TopicSink(...))`: does what `writeStream.format("rookery")` does, also in the output mode update.

Spark supports no data source in Python in that mode. Inside `foreachBatch`, updates are rows like any others. A batch
write that has the ids of the query and the batch in its options takes part in the protocol of streams: see
`BatchWriter`.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from rookery.spark.option_table import FORMAT
from rookery.spark.sink.commit_protocol import SinkError
from rookery.spark.sink.names import QUERY_ID


class TopicSink:
    """A function for `foreachBatch`. The options are those of `writeStream.format("rookery")`.

    A function of `foreachBatch` may call several sinks. The sink is identified by the query and the option `topic`;
    sinks without that option, which write to the topics of a column, need different values of `name`.
    """

    def __init__(self, options: Mapping[str, str], *, name: str = "") -> None:
        self._options = dict(options)
        self._name = name

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if query is None:
            raise SinkError("a TopicSink can be called by foreachBatch only: Spark has set no query id")
        stream = f"{query}.{self._name}" if self._name else query
        writer = rows.write.format(FORMAT).options(**self._options)
        writer.options(streamId=stream, streamBatch=batch_id).mode("append").save()
