"""The stream reader as Spark 4.2 and newer call it. test_stream_reader tests which records it reads."""

import pytest

from rookery.client.sync import Admin
from rookery.spark.compat import Feature, has
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source.sources import admin, make_topic, plan_for, producer

if not has(Feature.ADMISSION_CONTROL):
    pytest.skip("this version of Spark has no admission control for sources in Python", allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from rookery.spark.source.admitting_reader import AdmittingReader

__all__ = ["admin"]


def open_stream(broker: EmbeddedBroker, topic: str, **options: str) -> AdmittingReader:
    chosen = {"subscribe": topic, "startingOffsets": "earliest", **options}
    return AdmittingReader(plan_for(broker, chosen, streaming=True))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"maxOffsetsPerTrigger": "6", "maxBytesPerTrigger": "1m"}, ReadMaxRows(6)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"maxBytesPerTrigger": "22k"}, ReadMaxBytes(22 * 1024)),
        # ReadAllAvailable would mean Trigger.Once.
        ({}, ReadMaxRows(2**63 - 1)),
    ],
)
def test_spark_gets_one_limit(broker: EmbeddedBroker, topic: str, options: dict[str, str], limit: ReadLimit) -> None:
    assert open_stream(broker, topic, **options).getDefaultReadLimit() == limit


def test_all_limits_apply_unless_spark_requests_everything(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=10)
    reader = open_stream(broker, topic, maxOffsetsPerTrigger="6")
    start = reader.initialOffset()
    assert reader.reportLatestOffset() is None
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {topic: {"0": 6}}
    assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 10}}
    assert reader.reportLatestOffset() == {topic: {"0": 10}}


def test_available_now_stops_at_the_ends_of_its_start(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=3)
    reader = open_stream(broker, topic)
    reader.prepareForTriggerAvailableNow()
    with producer(broker) as sender:
        sender.send(topic, b"late", partition=0)
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic: {"0": 3}}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end
