"""The sink with Spark itself: streams that fail, lose a worker and restart, and batch writes.

Killed drivers need their own processes: tests/soak.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import lit, split

import tests.spark.sink.faulty_sink as faulty_sink
from rookery.client.sync import Consumer
from rookery.pipelines.sinks import activate
from rookery.spark import TopicSink
from rookery.spark.sink.commit_protocol import SinkError
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.sink.faulty_sink import FaultySink, arm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_FILE = 20


class Stage:
    """A stream of text files, one per batch, into its own topic."""

    def __init__(self, spark: "SparkSession", broker: EmbeddedBroker, topic: str, directory: Path) -> None:
        self.spark = spark
        self.topic = topic
        self.options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
        self.faults = directory / "faults"
        self.faults.mkdir()
        self._files = directory / "files"
        self._files.mkdir()
        self._checkpoint = directory / "checkpoint"
        self._expected: Counter[str] = Counter()
        broker.create_topic(topic, partitions=2)

    def add_files(self, count: int) -> None:
        for number in range(len(list(self._files.iterdir())), len(list(self._files.iterdir())) + count):
            rows = [f"{number}/{row}" for row in range(ROWS_PER_FILE)]
            (self._files / f"{number:03}").write_text("\n".join(rows), encoding="utf-8")
            self._expected.update(rows)

    def start(self, form: str = "rookery", **options: str) -> "StreamingQuery":
        rows = self.spark.readStream.text(str(self._files), wholetext=False).repartition(2)
        writing = rows.writeStream.format(form).options(**self.options, **options).trigger(availableNow=True)
        return writing.option("checkpointLocation", str(self._checkpoint)).queryName(self.topic).start()

    def run(self, form: str = "rookery", **options: str) -> None:
        query = self.start(form, **options)
        query.awaitTermination()

    def found(self) -> Counter[str]:
        config = {"bootstrap.servers": self.options["kafka.bootstrap.servers"], "isolation.level": "read_committed"}
        with Consumer[bytes, bytes](config) as consumer:
            return Counter(value.decode() for value in consumer.read_arrow(self.topic).column("value").to_pylist())

    def check(self) -> None:
        assert self.found() == self._expected


@pytest.fixture
def stage(spark: "SparkSession", broker: EmbeddedBroker, topic: str, tmp_path: Path) -> Stage:
    return Stage(spark, broker, topic, tmp_path)


@pytest.fixture
def faulty(spark: "SparkSession") -> Iterator[None]:
    """Register the faulty sink. It is pickled by value, because workers do not have the tests on their path. Spark
    looks sinks up in the thread's session, not in the query's, and a pipeline that ran before may have set another."""
    register_pickle_by_value(faulty_sink)  # type: ignore[no-untyped-call]
    spark.dataSource.register(FaultySink)
    activate(spark)
    yield
    unregister_pickle_by_value(faulty_sink)  # type: ignore[no-untyped-call]


def test_a_stream_continues_from_its_checkpoint(stage: Stage) -> None:
    for _ in range(2):
        stage.add_files(2)
        stage.run()
        stage.check()


@pytest.mark.parametrize(
    "fault",
    ["commit fails at ended", "worker is killed", "commit is killed at decided"],
)
def test_a_query_that_fails_and_is_restarted(stage: Stage, faulty: None, fault: str) -> None:
    arm(stage.faults, fault)
    stage.add_files(2)
    with pytest.raises(StreamingQueryException):
        stage.run("faulty-rookery", faults=str(stage.faults))
    assert not (stage.faults / fault).exists()
    stage.run("faulty-rookery", faults=str(stage.faults))
    stage.check()


def test_a_stream_of_arrow_as_spark_4_0_takes_it(stage: Stage, faulty: None) -> None:
    """Spark 4.0 has no base class for stream writers that take Arrow. Newer versions accept this writer as well."""
    arm(stage.faults, "commit is killed at decided")
    stage.add_files(2)
    with pytest.raises(StreamingQueryException):
        stage.run("faulty-rookery", faults=str(stage.faults), **{"writer-of": "4.0"})
    stage.run("faulty-rookery", faults=str(stage.faults), **{"writer-of": "4.0"})
    stage.check()


def test_a_batch_write_is_all_or_nothing(stage: Stage) -> None:
    rows = stage.spark.range(40, numPartitions=2).selectExpr("cast(id as string) value")
    failing = rows.selectExpr("if(value = '39', raise_error('a bad row'), value) value")
    with pytest.raises(Exception, match="a bad row"):
        failing.write.format("rookery").options(**stage.options).mode("append").save()
    assert stage.found() == Counter()
    rows.write.format("rookery").options(**stage.options).mode("append").save()
    assert stage.found() == Counter(str(number) for number in range(40))


def test_updates_continue_from_their_checkpoint(stage: Stage, tmp_path: Path) -> None:
    """A batch that Spark repeats, because it died before it recorded the batch as done, is not written again."""
    checkpoint = tmp_path / "updates"
    to_columns = {name: value for name, value in stage.options.items() if name != "topic"}
    sinks = [TopicSink(to_columns, name=name) for name in ("first", "second")]

    def write_twice(rows: "DataFrame", batch_id: int) -> None:
        for sink in sinks:
            sink(rows, batch_id)

    def run() -> None:
        lines = stage.spark.readStream.text(str(tmp_path / "files"))
        counts = lines.groupBy(split("value", "/")[1].alias("row")).count().selectExpr("concat(row, ':', count) value")
        writing = (
            counts.withColumn("topic", lit(stage.topic)).writeStream.outputMode("update").foreachBatch(write_twice)
        )
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    stage.add_files(1)
    run()
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert stage.found() == Counter(f"{row}:1" for row in range(ROWS_PER_FILE) for _ in sinks)
    stage.add_files(1)
    run()
    assert stage.found() == Counter(f"{row}:{count}" for row in range(ROWS_PER_FILE) for count in (1, 2) for _ in sinks)


def test_a_topic_sink_belongs_to_a_query(stage: Stage) -> None:
    rows = stage.spark.range(1).selectExpr("cast(id as string) value")
    with pytest.raises(SinkError, match="can be called by foreachBatch only"):
        TopicSink(stage.options)(rows, 0)
