"""Both connectors with the same interface: `kafka` is Spark's, `rookery` is Rookery's."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions

from rookery.spark.compat import Feature, has

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPARKS, OURS = "kafka", "rookery"
CONNECTORS = (SPARKS, OURS)
_TASK = "task"

Options = Mapping[str, str]
Values = tuple[Any, ...]


class Batch(NamedTuple):
    """The rows sorted by partition and offset, and the partitions and offsets that each task has read."""

    rows: list[Values]
    tasks: list[list[tuple[str, int, int]]]


def read(spark: "SparkSession", connector: str, bootstrap: str, options: Options) -> Batch:
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", bootstrap)
    return collect(reader.options(**options).load())


def collect(frame: "DataFrame") -> Batch:
    """Collect a frame that has the connectors' columns."""
    found = frame.withColumn(_TASK, functions.spark_partition_id()).collect()
    found.sort(key=lambda row: (row.topic, row.partition, row.offset))
    tasks: dict[int, list[tuple[str, int, int]]] = {}
    for row in found:
        tasks.setdefault(row[_TASK], []).append((row.topic, row.partition, row.offset))
    names = [name for name in frame.columns if name != _TASK]
    return Batch([tuple(_comparable(row[name]) for name in names) for row in found], sorted(tasks.values()))


def _comparable(value: Any) -> Any:
    """Return missing headers as null: Rookery's connector has an empty list, because null lists are slow in Python."""
    if isinstance(value, list):
        return [tuple(each) for each in value] or None
    return bytes(value) if isinstance(value, bytearray) else value


def start(
    spark: "SparkSession", connector: str, options: Options, into: list[Batch], checkpoint: Path, **trigger: Any
) -> "StreamingQuery":
    """Start a stream that adds its non-empty micro-batches to `into`. `options` have the bootstrap address."""

    def take(frame: "DataFrame", _: int) -> None:
        batch = collect(frame)
        if batch.rows:
            into.append(batch)

    if connector == OURS:
        # Spark 4.0 and 4.1 do not pass it to sources in Python.
        options = {**options, "trigger": "available-now" if "availableNow" in trigger else "processing-time"}
    stream = spark.readStream.format(connector).options(**options).load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def stream(
    spark: "SparkSession", connector: str, bootstrap: str, options: Options, checkpoint: Path, *, timeout_s: int = 120
) -> list[Batch]:
    """Return the micro-batches of a stream that stops at the current end of its topics."""
    batches: list[Batch] = []
    is_limited = "maxOffsetsPerTrigger" in options
    options = {"kafka.bootstrap.servers": bootstrap, **options}
    if connector == OURS and is_limited and not has(Feature.ADMISSION_CONTROL):
        # In these versions the other trigger runs one micro-batch.
        query = start(spark, connector, options, batches, checkpoint, processingTime="0 seconds")
        query.processAllAvailable()
        query.stop()
        return batches
    query = start(spark, connector, options, batches, checkpoint, availableNow=True)
    if not query.awaitTermination(timeout_s):
        query.stop()
        raise AssertionError(f"the stream of {connector} did not end within {timeout_s} s")
    return batches


def write(frame: "DataFrame", connector: str, bootstrap: str, options: Options) -> None:
    writer = frame.write.format(connector).option("kafka.bootstrap.servers", bootstrap).options(**options)
    # Rookery's connector has no other mode.
    writer.mode("append").save()
