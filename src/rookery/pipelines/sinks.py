"""Starts a flow as a streaming query of Spark, from its rows, its sink, its trigger and its checkpoint."""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rookery.pipelines.builder import Flow
from rookery.pipelines.checkpoint_files import CheckpointFiles, has_unfinished_batch, repair_checkpoint
from rookery.pipelines.origins import dead_letter_sinks, sink_dead_letter_topic
from rookery.pipelines.sources import platform_options
from rookery.pipelines.spec import (
    AvailableNow,
    ConsoleSink,
    Continuous,
    Every,
    OutputMode,
    ParquetSink,
    Pipeline,
    PostgresSink,
    Sink,
    TopicSink,
    Trigger,
)
from rookery.spark.compat import Feature, has
from rookery.spark.option_table import FORMAT
from rookery.spark.sink.names import QUERY_ID
from rookery.spark.sink.topic_sink import TopicSink as UpdatingSink

_ADVISORY_SIZE: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
# Options of a topic sink that concern the encoding of rows, which `sink_rows` does, and not the writer.
_ENCODING_PREFIXES: Final = ("key", "value", "schema.registry.")


def start_flow(flow: Flow, pipeline: Pipeline) -> StreamingQuery:
    session, checkpoint = flow.rows.sparkSession, pipeline.checkpoint_of(flow.name)
    activate(session)
    repair_checkpoint(checkpoint, CheckpointFiles(session))
    writer = flow.rows.writeStream.outputMode(output_mode(flow.sink))
    writer = writer.option("checkpointLocation", checkpoint)
    writer = _triggered(writer, pipeline.trigger)
    match flow.sink:
        case TopicSink(output_mode="update"):
            return writer.foreachBatch(UpdatingSink(_topic_options(flow.sink, pipeline))).start()
        case TopicSink() | None:
            return writer.format(FORMAT).options(**_topic_options(flow.sink, pipeline)).start()
        case ParquetSink():
            return _start_parquet(writer, flow.sink, flow.rows)
        case PostgresSink():
            return _start_postgres(writer, flow.sink, flow, pipeline)
        case ConsoleSink():
            return writer.format("console").options(**flow.sink.options).start()


def must_run_twice(flow: Flow, pipeline: Pipeline) -> bool:
    """Return whether the query that is about to start will end before it has read all available records.

    Without admission control, Spark runs the trigger available-now as one micro-batch. If the last run was interrupted,
    that one repeats the interrupted micro-batch: the records that came since would stay unread, although the flow
    reports that it has finished.
    """
    if has(Feature.ADMISSION_CONTROL) or not isinstance(pipeline.trigger, AvailableNow):
        return False
    return has_unfinished_batch(pipeline.checkpoint_of(flow.name), CheckpointFiles(flow.rows.sparkSession))


def activate(session: SparkSession) -> None:
    """Make `session` the active one of this thread: Spark looks there for the sink when a query starts."""
    classes: Any = SparkSession._get_j_spark_session_class(session._jvm)
    classes.setActiveSession(session._jsparkSession)


def output_mode(sink: Sink | None) -> OutputMode:
    return "append" if sink is None or isinstance(sink, ParquetSink) else sink.output_mode


def _triggered(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    match trigger:
        case AvailableNow():
            return writer.trigger(availableNow=True)
        case Every(interval=interval):
            return writer.trigger(processingTime=interval)
        case Continuous():
            return writer.trigger(processingTime="0 seconds")


def _topic_options(sink: TopicSink | None, pipeline: Pipeline) -> dict[str, str]:
    given = {} if sink is None else sink.options
    own = {name: text for name, text in given.items() if not name.lower().startswith(_ENCODING_PREFIXES)}
    return {**platform_options(pipeline), "delivery": pipeline.delivery, **own}


def _start_postgres(writer: DataStreamWriter, sink: PostgresSink, flow: Flow, pipeline: Pipeline) -> StreamingQuery:
    """Start a PostgreSQL sink. Its ledger identifies batches by their numbers, which are unique within one checkpoint;
    its id contains the query's id, which belongs to that checkpoint.
    """
    from rookery.spark.postgres.letters import DeadLetters
    from rookery.spark.postgres.sink import PostgresSink as Writer

    opened: list[Writer] = []
    letters = DeadLetters(_topic_options(None, pipeline), sink_dead_letter_topic(pipeline, sink), pipeline.name)

    def write(rows: DataFrame, batch_id: int) -> None:
        if not opened:
            query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            opened.append(
                Writer(
                    dsn=sink.connection,
                    table=sink.table,
                    sink_id=f"{pipeline.group_id(flow.name)}.{query_id}",
                    key_columns=sink.key,
                    order_column=sink.order_by,
                    delete_when=sink.delete_when,
                    dead_letters=letters if sink in dead_letter_sinks(pipeline) else None,
                )
            )
        flow.refused.add(batch_id, opened[0](rows, batch_id).letter_count)

    return writer.foreachBatch(write).start()


def _start_parquet(writer: DataStreamWriter, sink: ParquetSink, rows: DataFrame) -> StreamingQuery:
    if sink.target_file_size_bytes is not None:
        rows.sparkSession.conf.set(_ADVISORY_SIZE, str(sink.target_file_size_bytes))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    return writer.format("parquet").options(**sink.options).start(sink.path)
