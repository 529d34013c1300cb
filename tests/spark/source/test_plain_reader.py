"""The stream reader as Spark 4.0 and 4.1 call it. Newer versions can run it as well, so the tests need no old Spark."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value
from pyspark.errors import StreamingQueryException

from rookery.base.types import TopicPartition
from rookery.client.sync import Admin
from rookery.spark import compat
from rookery.spark.failures import DataLossError
from rookery.spark.offsets import OffsetJson
from rookery.spark.option_table import OptionError
from rookery.spark.source.plain_reader import PlainReader
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source import plain_source
from tests.spark.source.plain_source import PlainSource
from tests.spark.source.sources import admin, make_topic, plan_for, producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["admin"]

LIMITED = {"trigger": "processing-time", "maxOffsetsPerTrigger": "4"}


class Query:
    """The part of Spark: stores the end of each micro-batch and which are finished, and calls the reader."""

    def __init__(self, broker: EmbeddedBroker, topic: str, **options: str) -> None:
        self._broker = broker
        self._options = {"subscribe": topic, "startingOffsets": "earliest", **options}
        self._ends: list[OffsetJson] = []
        self._finished: list[OffsetJson] = []
        self.reader = self._open()

    def _open(self) -> PlainReader:
        return PlainReader(plan_for(self._broker, self._options, streaming=True))

    def restart(self) -> None:
        """Open a new reader. Spark first passes the last end of its checkpoint to it."""
        self.reader = self._open()
        if self._ends:
            assert self.reader.partitions(self._ends[-1], self._ends[-1]) == []

    def run_batch(self, *, dies: bool = False) -> list[bytes] | None:
        """Return the values of the next micro-batch, or of the unfinished one; None if there is none."""
        if len(self._ends) == len(self._finished):
            end = self.reader.latestOffset()
            if self._finished and end == self._finished[-1]:
                return None
            self._ends.append(end)
        start = self._finished[-1] if self._finished else self.reader.initialOffset()
        tasks = self.reader.partitions(start, self._ends[-1])
        copy = pickle.loads(pickle.dumps(self.reader))
        values = [value for task in tasks for rows in copy.read(task) for value in rows.column("value").to_pylist()]
        if not dies:
            self._finished.append(self._ends[-1])
        return values


def send(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    with producer(broker) as sender:
        for value in values:
            sender.send(topic, value, partition=0)


@pytest.mark.parametrize(
    "trigger", [{}, {"trigger": "once"}, {"trigger": "available-now", "maxOffsetsPerTrigger": "1"}]
)
def test_the_only_micro_batch_of_a_query_reads_everything(
    broker: EmbeddedBroker, admin: Admin, topic: str, trigger: dict[str, str]
) -> None:
    make_topic(broker, admin, topic, partitions=1, records=3)
    query = Query(broker, topic, **trigger)
    assert query.run_batch() == [b"v0", b"v1", b"v2"]
    assert query.run_batch() is None
    send(broker, topic, b"new")
    query.restart()
    assert query.run_batch() == [b"new"]


def test_limits_apply_with_a_repeating_trigger(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=6)
    query = Query(broker, topic, **LIMITED)
    assert [query.run_batch() for _ in range(4)] == [[], [b"v0", b"v1", b"v2", b"v3"], [b"v4", b"v5"], None]


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_limits_without_a_trigger_are_errors_that_name_the_version(
    broker: EmbeddedBroker, topic: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Trigger.AvailableNow the query would end as if it had read everything."""
    monkeypatch.setattr(compat, "installed_version", lambda: compat.SparkVersion(4, 1))
    with pytest.raises(
        OptionError, match=rf"option {limit}, .* needs Spark 4\.2, and this is Spark 4\.1\. Set .* trigger"
    ):
        Query(broker, topic, **{limit: "1000"})


def test_a_query_continues_from_its_checkpoint(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=6)
    query = Query(broker, topic, **LIMITED)
    query.run_batch()
    assert query.run_batch(dies=True) == [b"v0", b"v1", b"v2", b"v3"]
    query.restart()
    # The same records again, although there are more by now; then the following ones.
    assert query.run_batch() == [b"v0", b"v1", b"v2", b"v3"]
    query.restart()
    assert query.run_batch() == [b"v4", b"v5"]


def test_a_repeated_first_micro_batch_is_recognized(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    """Spark passes the end of the batch before it requests its start."""
    make_topic(broker, admin, topic, partitions=1, records=6)
    query = Query(broker, topic, **LIMITED)
    query.run_batch(dies=True)
    admin.delete_records({TopicPartition(topic, 0): 3})
    query.restart()
    with pytest.raises(DataLossError, match="would now be read from 3 on, but the first micro-batch ended at"):
        query.run_batch()


def test_finished_micro_batches_are_committed_to_the_group(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=6)
    query = Query(broker, topic, **LIMITED, groupId=f"{topic}-group")
    for committed in (0, 0, 4, 6):
        query.run_batch()
        assert [lag.committed for lag in admin.lags(f"{topic}-group")] == [committed]


def test_a_stream_under_spark_without_admission_control(
    spark: "SparkSession", broker: EmbeddedBroker, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Newer versions of Spark use the old interface for a reader without the new one."""
    make_topic(broker, admin, topic, records=10)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    register_pickle_by_value(plain_source)  # type: ignore[no-untyped-call]
    spark.dataSource.register(PlainSource)

    def run(checkpoint: str, **more: str) -> list[int]:
        rows = spark.readStream.format(PlainSource.name()).options(**options, **more).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / checkpoint))
        if more.get("trigger") == "processing-time":
            query = writer.start()
            query.processAllAvailable()
            query.stop()
        else:
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(240)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    try:
        assert run("all") == [20]
        with producer(broker) as sender:
            sender.send(topic, b"more", partition=0)
        assert run("all") == [1]
        assert run("parts", trigger="processing-time", maxOffsetsPerTrigger="12") == [11, 10]
        with pytest.raises(StreamingQueryException, match=r"maxOffsetsPerTrigger, .* needs Spark 4\.2"):
            run("refused", maxOffsetsPerTrigger="12")
    finally:
        unregister_pickle_by_value(plain_source)  # type: ignore[no-untyped-call]
