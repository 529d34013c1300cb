from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rookery.client.sync import Consumer, Producer
from rookery.dead_letters.standard import ATTEMPT, Failure, Origin, original_headers, read_failure
from rookery.spark.dead_letter_columns import as_dead_letters, dead_letter_table
from rookery.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 3, 1, 12, 0, 0, 5000, tzinfo=UTC)
AT_MS = round(AT.timestamp() * 1000)


def pairs(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], None if header["value"] is None else bytes(header["value"])) for header in headers)


def test_records_and_failures_become_a_table_to_send(broker: EmbeddedBroker, topic: str) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    with Producer[bytes, bytes](config) as producer:
        producer.send(topic, b"\xff", key=b"k", headers=[("own", b"1"), ("empty", None)])
        producer.send(topic, None, headers=[(ATTEMPT, b"2")])
        producer.flush()
        with Consumer[bytes, bytes](config) as consumer:
            rows = consumer.read_arrow(topic)
        failures = [
            Failure(Origin(topic, 0, 0, AT_MS), "DataError", "bad ✓", "VALUE_CONVERTER", "billing"),
            Failure(Origin(topic, 0, 1), "KeyError", "", "TRANSFORMATION", None, 2),
        ]
        producer.send_arrow(dead_letter_table(rows, failures, None)).result()
        named = dead_letter_table(rows.select(["key", "value"]), failures, "elsewhere")
        assert named.column("topic").to_pylist() == ["elsewhere"] * 2
        assert pairs(named.column("headers")[0].as_py())[0] == ("__connect.errors.topic", topic.encode())
    with Consumer[bytes, bytes](config) as consumer:
        first, second = consumer.read_arrow(f"{topic}.dlq").to_pylist()
    assert (first["key"], first["value"], second["key"], second["value"]) == (b"k", b"\xff", None, None)
    assert [read_failure(pairs(letter["headers"])) for letter in (first, second)] == failures
    assert original_headers(pairs(first["headers"])) == (("own", b"1"), ("empty", None))


def test_no_rows_become_no_letters() -> None:
    rows = pa.record_batch({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})
    assert dead_letter_table(rows, [], None).num_rows == 0


_COLUMNS = "topic string, partition int, offset long, timestamp timestamp"


def test_rows_become_dead_letters_by_expressions(spark: "SparkSession") -> None:
    schema = (
        f"key binary, value binary, {_COLUMNS}, headers array<struct<key:string,value:binary>>,"
        " details struct<value:int,error:string>"
    )
    headers = [[("own", b"1"), ("empty", None)], [(ATTEMPT, b"2"), (ATTEMPT, b"x")], None, None]
    errors = ["a.DataError: bad: ✓\nmore", "no class", None, "Long: " + "x" * 9000]
    data = [
        (b"k", b"\xff", "orders", 1, 7 + row, AT, own, (None, error))
        for row, (own, error) in enumerate(zip(headers, errors, strict=True))
    ]
    letters = as_dead_letters(
        spark.createDataFrame(data, schema), error_column="details.error", stage="VALUE_CONVERTER", pipeline="billing"
    )
    assert letters.columns == ["key", "value", "headers", "topic"]
    first, second, third = letters.collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"\xff", "orders.dlq")
    assert original_headers(pairs(first.headers)) == (("own", b"1"), ("empty", None))
    failures = [read_failure(pairs(letter.headers)) for letter in (first, second, third)]
    stage = "VALUE_CONVERTER"
    assert failures == [
        Failure(Origin("orders", 1, 7, AT_MS), "a.DataError", "bad: ✓\nmore", stage, "billing"),
        Failure(Origin("orders", 1, 8, AT_MS), "Error", "no class", stage, "billing", 2),
        Failure(Origin("orders", 1, 10, AT_MS), "Long", "x" * 4096, stage, "billing"),
    ]


def test_raw_bytes_are_kept_where_columns_are_decoded(spark: "SparkSession") -> None:
    schema = f"value int, rawKey binary, rawValue binary, {_COLUMNS}, error struct<error_class:string,message:string>"
    rows = spark.createDataFrame([(1, None, b"raw", "orders", 0, 1, AT, ("E", "m"))], schema)
    (letter,) = as_dead_letters(rows, error_column="error", stage="s", pipeline=None, topic="graves").collect()
    assert (letter.key, bytes(letter.value), letter.topic) == (None, b"raw", "graves")
    assert read_failure(pairs(letter.headers)) == Failure(Origin("orders", 0, 1, AT_MS), "E", "m", "s")
    with pytest.raises(ValueError, match="includeRaw"):
        as_dead_letters(rows.drop("rawValue"), error_column="error", stage="s", pipeline=None)
    with pytest.raises(ValueError, match="column offset is missing"):
        as_dead_letters(rows.drop("offset"), error_column="error", stage="s", pipeline=None)
