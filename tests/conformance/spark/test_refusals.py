"""Rookery's connector rejects everything that Spark's connector rejects; its message names the option to change.

It also rejects unknown options, an end of a stream by time, and times before 1970.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.spark.connectors import OURS, SPARKS, Options, read, stream
from tests.conformance.spark.test_reads import at
from tests.conformance.spark.topics import FIRST_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Few of these cases reach a broker, so that one broker is enough.
pytestmark = pytest.mark.parametrize("bootstrap", ["rookery"], indirect=True)

_NEVER_MS = str(FIRST_MS * 2)

# The options without the address, and a part of Rookery's message. Batches are tested with all of them, streams with
# some of those that both have.
BOTH: list[tuple[Options, str]] = [
    ({}, "subscribe"),
    ({"subscribe": "orders", "subscribePattern": "o.*"}, "subscribe"),
    ({"subscribe": ""}, "subscribe"),
    ({"subscribe": " , "}, "subscribe"),
    ({"subscribePattern": ""}, "subscribePattern"),
    ({"assign": "orders"}, "assign"),
    ({"assign": '{"orders": 0}'}, "assign"),
    ({"subscribe": "orders", "startingOffsets": "{"}, "startingOffsets"),
    ({"subscribe": "orders", "startingOffsets": "earlier"}, "startingOffsets"),
    ({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1}}'}, "startingOffsets"),
    ({"subscribe": "orders", "startingOffsets": '{"refunds": {"0": 1}}'}, "startingOffsets"),
    ({"subscribe": "orders", "startingTimestamp": "yesterday"}, "startingTimestamp"),
    ({"subscribe": "orders", "startingTimestamp": _NEVER_MS}, "startingTimestamp"),
    ({"subscribe": "orders", "startingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, "startingOffsetsByTimestamp"),
    (
        {"subscribe": "orders", "startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "earliest"},
        "startingOffsetsByTimestampStrategy",
    ),
    ({"subscribe": "orders", "minPartitions": "0"}, "minPartitions"),
    ({"subscribe": "orders", "minPartitions": "many"}, "minPartitions"),
    ({"subscribe": "orders", "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
    ({"subscribe": "orders", "failOnDataLoss": "perhaps"}, "failOnDataLoss"),
    ({"subscribe": "orders", "kafka.auto.offset.reset": "earliest"}, "auto.offset.reset"),
    ({"subscribe": "orders", "kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    ({"subscribe": "orders", "kafka.key.deserializer": "x"}, "key.deserializer"),
    ({"subscribe": "orders", "kafka.value.deserializer": "x"}, "value.deserializer"),
    ({"subscribe": "orders", "kafka.interceptor.classes": "x"}, "interceptor.classes"),
    ({"subscribe": "orders", "kafka.isolation.level": "committed"}, "isolation.level"),
]
OF_BATCHES: list[tuple[Options, str]] = [
    ({"subscribe": "missing"}, "missing"),
    ({"subscribe": "orders", "startingOffsets": "latest"}, "startingOffsets"),
    ({"subscribe": "orders", "startingOffsets": at(0, 0, -1, 0)}, "startingOffsets"),
    ({"subscribe": "orders", "endingOffsets": "earliest"}, "endingOffsets"),
    ({"subscribe": "orders", "endingOffsets": at(1, 1, -2, 1)}, "endingOffsets"),
    ({"subscribe": "orders", "endingOffsets": at(41, 1, 1, 0), "kafkaConsumer.pollTimeoutMs": "2000"}, "orders-0"),
    ({"subscribe": "orders", "startingOffsets": at(41, 0, 0, 0)}, "startingOffsets"),
    ({"subscribe": "orders", "startingOffsets": at(9, 0, 0, 0), "endingOffsets": at(8, 1, 1, 0)}, "endingOffsets"),
]
OF_STREAMS: list[tuple[Options, str]] = [
    ({"subscribe": "orders", "endingOffsets": "latest"}, "endingOffsets"),
    ({"subscribe": "orders", "endingOffsetsByTimestamp": at(1, 1, 1, 1)}, "endingOffsetsByTimestamp"),
    ({"subscribe": "orders", "maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger"),
    ({"subscribe": "orders", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger"),
]


def name_of(case: object) -> str | None:
    return ",".join(f"{key}={value}" for key, value in case.items()) if isinstance(case, dict) else None


@pytest.mark.parametrize(("options", "says"), BOTH + OF_BATCHES, ids=name_of)
def test_batches(spark: "SparkSession", bootstrap: str, options: Options, says: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - of many kinds
        read(spark, SPARKS, bootstrap, options)
    with pytest.raises(Exception, match=says):
        read(spark, OURS, bootstrap, options)


@pytest.mark.parametrize(("options", "says"), BOTH[::5] + OF_STREAMS, ids=name_of)
def test_streams(spark: "SparkSession", bootstrap: str, options: Options, says: str, tmp_path: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - of many kinds
        stream(spark, SPARKS, bootstrap, options, tmp_path / SPARKS)
    with pytest.raises(Exception, match=says):
        stream(spark, OURS, bootstrap, options, tmp_path / OURS)
