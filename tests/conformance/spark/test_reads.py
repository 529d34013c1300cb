"""With the same options both connectors return the same rows, read by the same tasks."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.spark.connectors import OURS, SPARKS, Options, read, stream
from tests.conformance.spark.topics import CODECS, FIRST_MS, ORDERS, REFUNDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = sum(ORDERS)
_FROM_ALL = '{"orders":{"0":%d,"1":%d,"2":%d,"3":%d}}'


def at(*values: int) -> str:
    """Return the JSON text with a value for each partition of `orders`."""
    return _FROM_ALL % values


def later(partition: int, index: int) -> int:
    """Return the timestamp of a record of `orders`."""
    return FIRST_MS + partition * 100_000 + index * 1000


ORDERS_ONLY = {"subscribe": "orders"}
NEVER_MS = FIRST_MS * 2

# The options, and the number of rows.
SELECTIONS: dict[str, tuple[Options, int]] = {
    "subscribe": (ORDERS_ONLY, ALL),
    "several": ({"subscribe": "orders, refunds"}, ALL + sum(REFUNDS)),
    "pattern": ({"subscribePattern": "ord.rs|ref.*"}, ALL + sum(REFUNDS)),
    "assign": ({"assign": '{"orders": [0, 2]}'}, 50),
    "headers": ({"subscribe": "orders", "includeHeaders": "true"}, ALL),
    "append-time": ({"subscribe": "appended"}, 10),
    "nulls": ({"subscribe": "nulls", "includeHeaders": "true"}, 5),
    "uncommitted": ({"subscribe": "transfers"}, 24),
    "committed": ({"subscribe": "transfers", "kafka.isolation.level": "read_committed"}, 12),
    **{f"codec-{codec}": ({"subscribe": f"codec-{codec}"}, 200) for codec in CODECS},
}
STARTS: dict[str, tuple[Options, int]] = {
    "from-offsets": ({"startingOffsets": at(10, -2, 9, -2)}, 30 + 25 + 1),
    "from-time": ({"startingTimestamp": str(later(0, 30)), "startingOffsetsByTimestampStrategy": "latest"}, 10 + 35),
    "from-times": (
        {
            "startingOffsetsByTimestamp": at(later(0, 39), later(1, 5), 0, NEVER_MS),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        1 + 20 + 10,
    ),
    "from-no-time": ({"startingTimestamp": str(NEVER_MS), "startingOffsetsByTimestampStrategy": "latest"}, 0),
    "time-before-times": (
        {
            "startingTimestamp": "0",
            "startingOffsetsByTimestamp": at(NEVER_MS, NEVER_MS, NEVER_MS, NEVER_MS),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        ALL,
    ),
    "times-before-offsets": (
        {
            "startingOffsetsByTimestamp": at(0, 0, 0, 0),
            "startingOffsets": at(-1, -1, -1, -1),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        ALL,
    ),
}
ENDS: dict[str, tuple[Options, int]] = {
    "to-offsets": ({"endingOffsets": at(10, -1, 3, -1)}, 10 + 25 + 3),
    "to-time": ({"endingTimestamp": str(later(1, 7))}, 40 + 7),
    "to-times": ({"endingOffsetsByTimestamp": at(later(0, 7) - 1, later(1, 5), NEVER_MS, 0)}, 7 + 5 + 10),
    "between": ({"startingOffsets": at(5, 5, 5, 0), "endingOffsets": at(15, 5, 6, 0)}, 10 + 0 + 1),
    "between-times": (
        {
            "startingTimestamp": str(later(0, 3)),
            "endingTimestamp": str(later(0, 13)),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        10,
    ),
}
SPLITS: dict[str, tuple[Options, int]] = {
    "min-partitions": ({"minPartitions": "7"}, ALL),
    "many-partitions": ({"minPartitions": "20"}, ALL),
    "few-partitions": ({"minPartitions": "2"}, ALL),
    "max-records": ({"maxRecordsPerPartition": "6"}, ALL),
    "max-records-and-min-partitions": ({"maxRecordsPerPartition": "16", "minPartitions": "9"}, ALL),
}
OF_ORDERS = {
    name: ({**ORDERS_ONLY, **options}, count) for name, (options, count) in {**STARTS, **ENDS, **SPLITS}.items()
}
BATCHES = {**SELECTIONS, **OF_ORDERS}
# Cases that are tested for batches only: a stream has no end, and parsing of options and codecs is the same.
STREAMED = (
    *("subscribe", "pattern", "assign", "headers", "append-time", "nulls", "uncommitted", "committed"),
    *("from-offsets", "from-time", "from-times", "min-partitions", "max-records", "max-records-and-min-partitions"),
)
STREAMS = {name: BATCHES[name] for name in STREAMED}
# Spark's connector ignores maxRecordsPerPartition in batches. If both options are set, it splits no range further if
# one range is too short to be split.
OTHER_TASKS_OF_BATCHES = ("max-records", "max-records-and-min-partitions")
OTHER_TASKS_OF_STREAMS = ("max-records-and-min-partitions",)


@pytest.mark.parametrize("name", BATCHES)
def test_batches_have_the_same_rows(spark: "SparkSession", bootstrap: str, name: str) -> None:
    options, count = BATCHES[name]
    expected, ours = (read(spark, connector, bootstrap, options) for connector in (SPARKS, OURS))
    assert len(expected.rows) == count
    assert ours.rows == expected.rows
    if name not in OTHER_TASKS_OF_BATCHES:
        assert ours.tasks == expected.tasks


@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_the_same_rows(spark: "SparkSession", bootstrap: str, name: str, tmp_path: Path) -> None:
    options, count = STREAMS[name]
    if "startingOffsetsByTimestampStrategy" not in options:
        options = {"startingOffsets": "earliest", **options}
    expected = stream(spark, SPARKS, bootstrap, options, tmp_path / SPARKS)
    ours = stream(spark, OURS, bootstrap, options, tmp_path / OURS)
    assert sum(len(batch.rows) for batch in expected) == count
    assert [batch.rows for batch in ours] == [batch.rows for batch in expected]
    if name not in OTHER_TASKS_OF_STREAMS:
        assert [batch.tasks for batch in ours] == [batch.tasks for batch in expected]
