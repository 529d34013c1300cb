"""Both connectors write the same records to the same partitions, and each reads what the other writes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.spark import topics
from tests.conformance.spark.connectors import CONNECTORS, OURS, SPARKS, Options, read, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
KEYED = [(f"key-{number}", f"value-{number}") for number in range(50)]
HEADERS = "array<struct<key:string,value:binary>>"
READ_COMMITTED = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}

# Rows, their schema, and the options of the writer; `@` is replaced by the topic.
FRAMES: dict[str, tuple[list[Any], str, Options]] = {
    "strings": (KEYED, "key string, value string", {"topic": "@"}),
    "bytes": ([(b"\x00", b"\xff"), (b"", b"")], "key binary, value binary", {"topic": "@"}),
    "no key": ([("a",), ("b",)], "value string", {"topic": "@"}),
    "nulls": ([("k", None), (None, "v"), (None, None)], "key string, value string", {"topic": "@"}),
    "topic column": ([("@", "k", "v")], "topic string, key string, value string", {}),
    "option before column": ([("elsewhere", "k", "v")], "topic string, key string, value string", {"topic": "@"}),
    "partition column": (
        [("k", f"v{n}", n % PARTITIONS if n % 4 else None) for n in range(20)],
        "key string, value string, partition int",
        {"topic": "@"},
    ),
    "headers": (
        [("k", "v", [("a", b"1"), ("a", b"2"), ("b", None)]), ("k", "w", []), ("k", "x", None)],
        f"key string, value string, headers {HEADERS}",
        {"topic": "@", "includeHeaders": "true"},
    ),
    "settings": (
        KEYED,
        "key string, value string",
        {"topic": "@", "kafka.compression.type": "lz4", "kafka.acks": "all", "kafka.linger.ms": "5"},
    ),
}


def frame_of(spark: "SparkSession", name: str, topic: str) -> "tuple[DataFrame, Options]":
    rows, schema, options = FRAMES[name]
    rows = [tuple(topic if value == "@" else value for value in row) for row in rows]
    return spark.createDataFrame(rows, schema), {key: value.replace("@", topic) for key, value in options.items()}


def written(spark: "SparkSession", connector: str, bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Return key, value, partition and headers of all records. Rows without a key may be in any partition."""
    found = read(spark, connector, bootstrap, {"subscribe": topic, **READ_COMMITTED}).rows
    places = [
        (key, value, None if key is None else partition, headers) for key, value, _, partition, *_, headers in found
    ]
    return sorted(places, key=repr)


@pytest.mark.parametrize("name", FRAMES)
def test_batches_write_the_same(spark: "SparkSession", bootstrap: str, topic: str, name: str) -> None:
    found = []
    for writer in CONNECTORS:
        target = f"{topic}-{writer}"
        topics.create(bootstrap, target, partitions=PARTITIONS)
        frame, options = frame_of(spark, name, target)
        write(frame, writer, bootstrap, options)
        found += [written(spark, reader, bootstrap, target) for reader in CONNECTORS]
    assert len(found[0]) == len(FRAMES[name][0])
    assert found == [found[0]] * 4


@pytest.mark.parametrize("source", CONNECTORS)
def test_streams_write_the_same(spark: "SparkSession", bootstrap: str, topic: str, source: str, tmp_path: Path) -> None:
    """A stream from topic to topic, read by one connector and written by each."""
    found = []
    for writer in CONNECTORS:
        target = f"{topic}-{writer}"
        topics.create(bootstrap, target, partitions=PARTITIONS)
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", "orders").option("includeHeaders", "true")
        frame = reader.option("startingOffsets", "earliest").load().select("key", "value", "headers")
        stream = frame.writeStream.format(writer).option("kafka.bootstrap.servers", bootstrap)
        stream = stream.option("topic", target).option("includeHeaders", "true")
        query = stream.option("checkpointLocation", str(tmp_path / writer)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        found.append(written(spark, SPARKS, bootstrap, target))
    assert len(found[0]) == sum(topics.ORDERS)
    assert found[1] == found[0]


# Rows, their schema, the options, and a part of Rookery's message.
REFUSED: dict[str, tuple[list[Any], str, Options, str]] = {
    "no topic": ([("v",)], "value string", {}, "topic"),
    "null topic": ([(None, "v")], "topic string, value string", {}, "topic"),
    "no value": ([("k",)], "key string", {"topic": "orders"}, "value"),
    "number as value": ([(1,)], "value int", {"topic": "orders"}, "value"),
    "number as key": ([(1, "v")], "key int, value string", {"topic": "orders"}, "key"),
    "text as partition": ([("0", "v")], "partition string, value string", {"topic": "orders"}, "partition"),
    "no such partition": ([(99, "v")], "partition int, value string", {"topic": "orders"}, "partition"),
    "text as headers": ([("h", "v")], "headers string, value string", {"topic": "orders"}, "headers"),
    "key serializer": ([("v",)], "value string", {"topic": "orders", "kafka.key.serializer": "x"}, "key.serializer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_reject(spark: "SparkSession", bootstrap: str, name: str) -> None:
    rows, schema, options, says = REFUSED[name]
    # Without this, the writer would wait a minute for a partition that does not exist.
    options = {"kafka.max.block.ms": "3000", **options}
    frame = spark.createDataFrame(rows, schema)
    with pytest.raises(Exception):  # noqa: B017, PT011 - of many kinds
        write(frame, SPARKS, bootstrap, options)
    with pytest.raises(Exception, match=says):
        write(frame, OURS, bootstrap, options)
