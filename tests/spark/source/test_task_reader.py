"""Lookups of the driver and reads of tasks, with a real broker, without Spark: ranges, bounds, lost data."""

import logging
import threading
from collections.abc import Mapping

import pyarrow as pa
import pytest

from rookery.base.types import TopicPartition
from rookery.client.sync import Admin
from rookery.spark.failures import DataLossError, SourceError
from rookery.spark.options import OptionError
from rookery.spark.source.batch_reader import BatchReader, RangePartition
from rookery.spark.source.ranges import OffsetRange
from rookery.spark.source.task_reader import ReadPlan
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source.sources import admin, make_topic, plan_for, producer

__all__ = ["admin"]


def ranges_of(broker: EmbeddedBroker, options: Mapping[str, str]) -> list[OffsetRange]:
    found = BatchReader(plan_for(broker, options)).partitions()
    return [each.range for each in found if isinstance(each, RangePartition)]


def whole(topic: str, bounds: Mapping[int, tuple[int, int]]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition(topic, index), *bound) for index, bound in bounds.items()]


def test_columns_are_those_of_sparks_source(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=0)
    with producer(broker) as sender:
        sender.send(topic, None, key=b"k", timestamp_ms=1500)
        sender.send(topic, b"v", headers=[("h", b"1"), ("h", None)], timestamp_ms=1501)
    (wanted,) = ranges_of(broker, {"subscribe": topic})
    rows = [row for batch in plan_for(broker, {"subscribe": topic}).read(wanted) for row in batch.to_pylist()]
    assert [list(row.values())[:5] for row in rows] == [[b"k", None, topic, 0, 0], [None, b"v", topic, 0, 1]]
    assert [row["timestamp"].timestamp() for row in rows] == [1.5, 1.501]
    assert [row["timestampType"] for row in rows] == [0, 0]
    assert "headers" not in rows[0]
    plan = plan_for(broker, {"subscribe": topic, "includeHeaders": "true"})
    (batch,) = plan.read(wanted)
    assert batch.schema == plan.arrow_schema
    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert batch.column("headers").to_pylist() == [[], [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]]


def test_bounds(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic)
    here = {"subscribe": topic}
    assert ranges_of(broker, here) == whole(topic, {0: (0, 10), 1: (0, 10)})
    offsets = {
        "startingOffsets": f'{{"{topic}": {{"0": 3, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": -1, "1": 5}}}}',
    }
    assert ranges_of(broker, {**here, **offsets}) == whole(topic, {0: (3, 10), 1: (0, 5)})
    times = {"startingTimestamp": "1004", "endingTimestamp": "1008"}
    assert ranges_of(broker, {**here, **times}) == whole(topic, {0: (4, 8), 1: (4, 8)})
    # No record is as late as this time: the batch ends at the latest offset.
    by_time = {"startingOffsetsByTimestamp": f'{{"{topic}": {{"0": 1009, "1": 1000}}}}', "endingTimestamp": "5000"}
    assert ranges_of(broker, {**here, **by_time}) == whole(topic, {0: (9, 10), 1: (0, 10)})
    assert (
        ranges_of(broker, {**here, "startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}) == []
    )
    assert ranges_of(broker, {"assign": f'{{"{topic}": [1]}}'}) == whole(topic, {1: (0, 10)})
    assert len(ranges_of(broker, {**here, "minPartitions": "4"})) == 4
    assert len(ranges_of(broker, {**here, "maxRecordsPerPartition": "4"})) == 6


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingOffsets": '{"TOPIC": {"0": 3}}'},
            "startingOffsets must name all partitions that are read; it lacks",
        ),
        ({"endingOffsets": '{"TOPIC": {"0": 3, "1": 3, "2": 3}}'}, "endingOffsets names TOPIC-2, which are not read"),
        ({"startingTimestamp": "5000"}, "startingTimestamp: no record of TOPIC-0 has the time 5000"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 3, "1": 3}}', "endingOffsets": '{"TOPIC": {"0": 3, "1": 2}}'},
            "TOPIC-1 would be read from offset 3 to 2: check the options startingOffsets and endingOffsets",
        ),
        ({"startingOffsets": '{"TOPIC": {"0": 99, "1": 3}}'}, "TOPIC-0 would be read from offset 99 to 10"),
        ({"subscribe": "missing"}, "no such topic: missing. Check the option subscribe"),
        ({"assign": '{"TOPIC": [0, 7]}'}, "no such partition: TOPIC-7. Check the option assign"),
    ],
)
def test_invalid_reads(broker: EmbeddedBroker, admin: Admin, topic: str, options: dict[str, str], text: str) -> None:
    make_topic(broker, admin, topic)
    named = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises((OptionError, SourceError)) as raised:
        ranges_of(broker, named if "assign" in named else {"subscribe": topic, **named})
    assert text.replace("TOPIC", topic) in str(raised.value)


def test_a_pattern_matches_whole_names_and_no_internal_topics(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    for name in (f"{topic}.a", f"{topic}.b", f"x.{topic}.a"):
        make_topic(broker, admin, name, partitions=1, records=1)
    found = ranges_of(broker, {"subscribePattern": f"{topic}[.].|__(consumer|transaction).*"})
    assert [each.partition.topic for each in found] == [f"{topic}.a", f"{topic}.b"]


def test_an_address_without_a_broker(broker: EmbeddedBroker) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.default.api.timeout.ms": "300"}
    with pytest.raises(SourceError, match=r"no broker answers at 127\.0\.0\.1:1: check the option kafka\.bootstrap"):
        ranges_of(broker, {**options, "kafka.request.timeout.ms": "300"})


def test_only_committed_records_with_read_committed(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=1)
    with producer(broker, **{"transactional.id": topic}) as sender:
        sender.init_transactions()
        sender.begin_transaction()
        sender.send(topic, b"aborted")
        sender.flush()
        sender.abort_transaction()
        sender.begin_transaction()
        sender.send(topic, b"committed")
        sender.commit_transaction()
    for level, expected in (
        ("read_uncommitted", [b"v0", b"aborted", b"committed"]),
        ("read_committed", [b"v0", b"committed"]),
    ):
        plan = plan_for(broker, {"subscribe": topic, "kafka.isolation.level": level})
        (task,) = BatchReader(plan).partitions()
        values = [value for batch in BatchReader(plan).read(task) for value in batch.column("value").to_pylist()]
        assert values == expected


def read_values(plan: ReadPlan, wanted: OffsetRange) -> list[bytes]:
    return [value for batch in plan.read(wanted) for value in batch.column("value").to_pylist()]


def test_lost_data_fails_the_task_or_is_skipped(
    broker: EmbeddedBroker, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, admin, topic, partitions=1)
    tp = TopicPartition(topic, 0)
    admin.delete_records({tp: 4})
    strict = plan_for(broker, {"subscribe": topic})
    lax = plan_for(broker, {"subscribe": topic, "failOnDataLoss": "false"})
    with pytest.raises(DataLossError, match=r"begins at 4, and .*set the option failOnDataLoss to false"):
        read_values(strict, OffsetRange(tp, 2, 8))
    with caplog.at_level(logging.WARNING):
        assert read_values(lax, OffsetRange(tp, 2, 8)) == [b"v4", b"v5", b"v6", b"v7"]
    assert "data loss" in caplog.text
    assert read_values(lax, OffsetRange(tp, 0, 3)) == []
    with pytest.raises(DataLossError, match="ends at 10"):
        read_values(strict, OffsetRange(tp, 8, 12))
    assert read_values(lax, OffsetRange(tp, 8, 12)) == [b"v8", b"v9"]
    assert read_values(lax, OffsetRange(tp, 20, 30)) == []
    admin.delete_topics([topic])
    with pytest.raises(DataLossError, match="no longer exists"):
        read_values(strict, OffsetRange(tp, 4, 8))
    assert read_values(lax, OffsetRange(tp, 4, 8)) == []


def test_ranges_cut_through_batches(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=100)
    plan = plan_for(broker, {"subscribe": topic, "minPartitions": "7"})
    parts = [
        part for each in BatchReader(plan).partitions() if isinstance(each, RangePartition) for part in [each.range]
    ]
    assert len(parts) == 7
    values = [read_values(plan, part) for part in parts]
    assert [value for part in values for value in part] == [f"v{index}".encode() for index in range(100)]
    assert {len(part) for part in values} == {14, 15}


def test_well_compressed_batches_are_split(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=0)
    sizes = {"compression.type": "zstd", "batch.size": "50000000", "max.request.size": "50000000", "linger.ms": "1000"}
    with producer(broker, **sizes) as sender:
        for _ in range(40):
            sender.send(topic, bytes(1_000_000))
    plan = plan_for(broker, {"subscribe": topic})
    batches = list(plan.read(OffsetRange(TopicPartition(topic, 0), 0, 40)))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) < 17_000_000


def test_a_task_waits_for_an_open_transaction(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=1)
    wanted = OffsetRange(TopicPartition(topic, 0), 0, 3)
    committed = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    with producer(broker, **{"transactional.id": topic}) as sender:
        sender.init_transactions()
        sender.begin_transaction()
        sender.send(topic, b"a")
        sender.send(topic, b"b")
        sender.flush()
        limits = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "2000"}
        quick = plan_for(broker, {**committed, **limits})
        with pytest.raises(SourceError, match=r"open transaction blocks .* at offset 1.*rookery transactions list"):
            read_values(quick, wanted)
        end = threading.Timer(0.5, sender.commit_transaction)
        end.start()
        # The task waits for existing records even if others are lost.
        lax = plan_for(broker, {**committed, "failOnDataLoss": "false"})
        assert read_values(lax, wanted._replace(end=9)) == [b"v0", b"a", b"b"]
        end.join()
        assert read_values(plan_for(broker, committed), wanted) == [b"v0", b"a", b"b"]
    with pytest.raises(DataLossError, match="ends at 4"):
        read_values(plan_for(broker, committed), wanted._replace(end=9))
