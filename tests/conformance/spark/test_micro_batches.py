"""How streams divide the available records into micro-batches, and what they do if some records were deleted."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.conformance.spark import topics
from tests.conformance.spark.connectors import CONNECTORS, OURS, SPARKS, Batch, read, start, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_S = 60


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {_TIMEOUT_S} s: {what}"
        time.sleep(0.05)


def rows(batches: list[Batch]) -> list[list[tuple[object, ...]]]:
    return [batch.rows for batch in batches]


@pytest.mark.parametrize("limit", [16, 30, 1000])
def test_max_offsets_per_trigger(spark: "SparkSession", bootstrap: str, limit: int, tmp_path: Path) -> None:
    """The limit is divided in proportion to the records of each partition."""
    options = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
    expected = stream(spark, SPARKS, bootstrap, options, tmp_path / SPARKS)
    assert len(expected) >= sum(topics.ORDERS) // limit
    assert stream(spark, OURS, bootstrap, options, tmp_path / OURS) == expected


def test_gaps_count_as_offsets(spark: "SparkSession", bootstrap: str, tmp_path: Path) -> None:
    """Aborted records and transaction markers have offsets, but no rows."""
    options = {"subscribe": "transfers", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    options["kafka.isolation.level"] = "read_committed"
    expected = stream(spark, SPARKS, bootstrap, options, tmp_path / SPARKS)
    assert sum(len(batch.rows) for batch in expected) == 12
    assert rows(stream(spark, OURS, bootstrap, options, tmp_path / OURS)) == rows(expected)


@pytest.mark.parametrize("connector", CONNECTORS)
def test_min_offsets_per_trigger(
    spark: "SparkSession", bootstrap: str, topic: str, connector: str, tmp_path: Path
) -> None:
    """The first micro-batch takes all available records; the next one waits for the minimum."""
    topics.create(bootstrap, topic)
    topics.send(bootstrap, topic, 5)
    batches: list[Batch] = []
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = start(spark, connector, options, batches, tmp_path / "checkpoint", processingTime="100 milliseconds")
    try:
        until(lambda: len(batches) == 1, "the first micro-batch")
        topics.send(bootstrap, topic, 6, first=5)
        topics.send(bootstrap, topic, 6, first=11)
        until(lambda: len(batches) == 2, "the second micro-batch")
    finally:
        query.stop()
    assert [len(batch.rows) for batch in batches] == [5, 12]


@pytest.mark.parametrize("connector", CONNECTORS)
def test_streams_continue_from_their_checkpoint(
    spark: "SparkSession", bootstrap: str, topic: str, connector: str, tmp_path: Path
) -> None:
    topics.create(bootstrap, topic)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    for first in (0, 4):
        topics.send(bootstrap, topic, 4, first=first)
        (batch,) = stream(spark, connector, bootstrap, options, tmp_path)
        assert batch.tasks == [[(topic, 0, offset) for offset in range(first, first + 4)]]


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_whose_data_is_deleted(
    spark: "SparkSession", bootstrap: str, topic: str, connector: str, fails: bool, tmp_path: Path
) -> None:
    topics.create(bootstrap, topic)
    topics.send(bootstrap, topic, 5)
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    assert len(stream(spark, connector, bootstrap, options, tmp_path)) == 1
    topics.send(bootstrap, topic, 10, first=5)
    topics.delete_before(bootstrap, topic, 9)
    if fails:
        with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
            stream(spark, connector, bootstrap, options, tmp_path)
        return
    (batch,) = stream(spark, connector, bootstrap, options, tmp_path)
    assert batch.tasks == [[(topic, 0, offset) for offset in range(9, 15)]]


@pytest.mark.parametrize("fails", [True, False])
def test_a_batch_whose_data_is_deleted(spark: "SparkSession", bootstrap: str, topic: str, fails: bool) -> None:
    topics.create(bootstrap, topic)
    topics.send(bootstrap, topic, 15)
    topics.delete_before(bootstrap, topic, 9)
    options = {"subscribe": topic, "failOnDataLoss": str(fails).lower()}
    expected = read(spark, SPARKS, bootstrap, options)
    assert len(expected.rows) == 6
    assert read(spark, OURS, bootstrap, options) == expected
    options["startingOffsets"] = f'{{"{topic}": {{"0": 3}}}}'
    if fails:
        for connector in CONNECTORS:
            with pytest.raises(Exception, match="failOnDataLoss"):
                read(spark, connector, bootstrap, options)
        return
    for connector in CONNECTORS:
        assert read(spark, connector, bootstrap, options).rows == expected.rows
