"""The source in Spark itself: behaviour that needs Spark. The rest is in test_task_reader and test_stream_reader."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from rookery.client.sync import Admin
from rookery.spark.compat import Feature, has
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source.sources import admin, make_topic, producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["admin"]

_QUERY_TIMEOUT_S = 240
# The schema of Spark's Kafka source.
_KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)


def options_for(broker: EmbeddedBroker, topic: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **options}


def stream(spark: "SparkSession", broker: EmbeddedBroker, topic: str, **options: str) -> "DataFrame":
    return spark.readStream.format("rookery").options(**options_for(broker, topic, **options)).load()


def finish(query: "StreamingQuery") -> None:
    try:
        assert query.awaitTermination(_QUERY_TIMEOUT_S), "the query did not end"
    finally:
        query.stop()


def test_a_topic_is_a_table(spark: "SparkSession", broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, records=50)
    with producer(broker) as sender:
        sender.send(topic, b"last", partition=1, headers=[("h", b"1")], timestamp_ms=2000)
    options = options_for(broker, topic, includeHeaders="true", minPartitions="3")
    rows = spark.read.format("rookery").options(**options).load()
    assert rows.schema.simpleString() == f"{_KAFKA_SCHEMA},headers:array<struct<key:string,value:binary>>>"
    assert all(field.nullable for field in rows.schema)
    found = sorted(rows.collect(), key=lambda row: (row.partition, row.offset))
    assert [(row.topic, row.partition, row.offset) for row in found] == [
        *((topic, 0, offset) for offset in range(50)),
        *((topic, 1, offset) for offset in range(51)),
    ]
    last = found[-1]
    assert (last.key, bytes(last.value), last.timestamp.second) == (None, b"last", 2)
    assert [(header.key, bytes(header.value)) for header in last.headers] == [("h", b"1")]
    given = ", ".join(f"`{name}` '{text}'" for name, text in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW latest USING rookery OPTIONS ({given})")
    assert spark.sql("SELECT count(*) FROM latest").collect()[0][0] == 101
    spark.sql("DROP VIEW latest")


def test_a_stream_with_limits_and_a_group(
    spark: "SparkSession", broker: EmbeddedBroker, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Without admission control, Trigger.AvailableNow has one micro-batch, whose end the next run commits."""
    make_topic(broker, admin, topic, records=10)
    is_admitted = has(Feature.ADMISSION_CONTROL)
    limited = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "12",
        "groupId": f"{topic}-group",
        "trigger": "available-now",
    }

    def run() -> "StreamingQuery":
        writer = stream(spark, broker, topic, **limited).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        finish(query)
        return query

    query = run()
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sizes == ([12, 8] if is_admitted else [20])
    assert [lag.lag for lag in admin.lags(f"{topic}-group")] == ([0, 0] if is_admitted else [10, 10])
    with producer(broker) as sender:
        sender.send(topic, b"more", partition=0)
    query = run()
    (source,) = json.loads(query.recentProgress[-1].json)["sources"]
    before, after = {topic: {"0": 10, "1": 10}}, {topic: {"0": 11, "1": 10}}
    assert [source[name] for name in ("startOffset", "endOffset", "latestOffset")] == [before, after, after]
    assert sum(progress.numInputRows for progress in query.recentProgress) == 1
    assert [lag.lag for lag in admin.lags(f"{topic}-group")] == ([0, 0] if is_admitted else [1, 0])


def test_a_query_that_dies_leaves_its_checkpoint_usable(
    spark: "SparkSession", broker: EmbeddedBroker, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """The query starts at the latest offset, dies in its first batch with records, and is restarted after more came."""
    make_topic(broker, admin, topic, records=1)
    seen: list[bytes] = []
    dies = True

    def take(rows: "DataFrame", number: int) -> None:
        values = [bytes(row.value) for row in rows.collect()]
        if number == 0:
            with producer(broker) as sender:
                sender.send(topic, b"first", partition=0)
        elif dies:
            raise RuntimeError("the sink is full")
        seen.extend(values)

    def start() -> "StreamingQuery":
        writer = stream(spark, broker, topic).writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(tmp_path)).start()

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        finish(start())
    with producer(broker) as sender:
        sender.send(topic, b"second", partition=1)
    dies = False
    query = start()
    query.processAllAvailable()
    # The deletion of the topic fails the query, with an error that says so.
    admin.delete_topics([topic])
    with pytest.raises(StreamingQueryException, match=r"no longer exists.*failOnDataLoss"):
        finish(query)
    assert sorted(seen) == [b"first", b"second"]


def test_errors_reach_the_user(spark: "SparkSession", broker: EmbeddedBroker) -> None:
    """Invalid options are errors immediately; errors of the cluster are raised when the query is planned."""
    with pytest.raises(AnalysisException, match=r"unknown option startingoffset; did you mean startingOffsets\?"):
        spark.read.format("rookery").options(**options_for(broker, "t", startingOffset="earliest")).load()
    rows = spark.read.format("rookery").options(**options_for(broker, "missing")).load()
    with pytest.raises(AnalysisException, match=r"no such topic: missing\. Check the option subscribe"):
        rows.count()
