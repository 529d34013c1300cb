"""The common part of the stream readers of all versions of Spark, with a real broker, without Spark."""

import logging
import pickle
import threading
import time
from collections.abc import Mapping

import pytest

from rookery.base.clock import Clock, ManualClock
from rookery.base.types import TopicPartition
from rookery.client.sync import Admin, Consumer
from rookery.spark.failures import DataLossError
from rookery.spark.offsets import OffsetJson, Selection
from rookery.spark.option_table import OptionError
from rookery.spark.source import stream_reader
from rookery.spark.source.batch_reader import RangePartition
from rookery.spark.source.lookups import Lookups
from rookery.spark.source.stream_reader import StreamReader
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source.sources import admin, make_topic, plan_for, producer

__all__ = ["admin"]

EARLIEST = {"startingOffsets": "earliest"}


class QuickClock:
    """A clock that advances 0.2 s with each call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 0.2
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


def open_stream(
    broker: EmbeddedBroker, topic: str, options: Mapping[str, str] | None = None, clock: Clock | None = None
) -> StreamReader:
    chosen = {**({} if options and "subscribePattern" in options else {"subscribe": topic}), **(options or {})}
    return StreamReader(plan_for(broker, chosen, streaming=True), clock=clock)


def send(broker: EmbeddedBroker, topic: str, values: list[bytes], partition: int = 0) -> None:
    with producer(broker) as sender:
        for value in values:
            sender.send(topic, value, partition=partition)


def begin(reader: StreamReader) -> OffsetJson:
    """Return the end of the first micro-batch, which is empty."""
    start = reader.initialOffset()
    assert step(reader, start) == (start, [])
    return start


def step(reader: StreamReader, start: OffsetJson) -> tuple[OffsetJson, list[bytes]]:
    """Run a micro-batch; return its end and its values."""
    end = reader.next_end(start, takes_all=False)
    return end, read_between(reader, start, end)


def read_between(reader: StreamReader, start: OffsetJson, end: OffsetJson) -> list[bytes]:
    tasks = reader.partitions(start, end)
    # Tasks get a pickled copy of the reader.
    copy = pickle.loads(pickle.dumps(reader))
    return [value for task in tasks for batch in copy.read(task) for value in batch.column("value").to_pylist()]


def test_a_stream_continues_at_its_position(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, records=2)
    reader = open_stream(broker, topic, EARLIEST)
    start = begin(reader)
    assert start == {topic: {"0": 0, "1": 0}}
    end, values = step(reader, start)
    assert (end, sorted(values)) == ({topic: {"0": 2, "1": 2}}, [b"v0", b"v0", b"v1", b"v1"])
    send(broker, topic, [b"new"], 1)
    assert step(reader, end) == ({topic: {"0": 2, "1": 3}}, [b"new"])
    assert reader.latest_seen() == {topic: {"0": 2, "1": 3}}
    assert reader.partitions(end, end) == []


def test_the_start_of_a_stream_is_looked_up_once(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=2)
    reader = open_stream(broker, topic)
    start = reader.initialOffset()
    send(broker, topic, [b"new"])
    assert reader.initialOffset() == start == {topic: {"0": 2}}


def test_a_stream_from_the_latest_starts_with_an_empty_batch(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    """Its end is in the checkpoint, so that no record is lost if the query dies before it reads any."""
    make_topic(broker, admin, topic, partitions=1, records=2)
    reader = open_stream(broker, topic)
    start = reader.initialOffset()
    send(broker, topic, [b"new"])
    end = begin(reader)
    assert end == start
    # Spark dies here and repeats the first batch: up to the end in its checkpoint, from where the reader says.
    send(broker, topic, [b"newer"])
    again = open_stream(broker, topic)
    assert again.initialOffset() == {topic: {"0": 4}}
    assert read_between(again, again.initialOffset(), end) == []
    assert step(again, end) == ({topic: {"0": 4}}, [b"new", b"newer"])


@pytest.mark.parametrize("options", [EARLIEST, {"startingTimestamp": "1002"}])
def test_retention_deletes_records_of_a_repeated_first_batch(
    broker: EmbeddedBroker, admin: Admin, topic: str, options: dict[str, str]
) -> None:
    make_topic(broker, admin, topic, partitions=1, records=10)
    end = begin(open_stream(broker, topic, options))
    admin.delete_records({TopicPartition(topic, 0): 5})
    # Spark died, and repeats the batch.
    again = open_stream(broker, topic, options)
    with pytest.raises(DataLossError, match="would now be read from 5 on, but the first micro-batch ended at"):
        again.partitions(again.initialOffset(), end)
    lax = open_stream(broker, topic, {**options, "failOnDataLoss": "false"})
    assert read_between(lax, lax.initialOffset(), end) == []
    assert len(step(lax, end)[1]) == 5


def test_partitions_added_before_the_first_batch_is_repeated(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    """The option named all partitions that existed when the query started; that must be enough."""
    make_topic(broker, admin, topic, partitions=1, records=3)
    named = {"startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}
    end = begin(open_stream(broker, topic, named))
    admin.create_partitions({topic: 2})
    send(broker, topic, [b"new"], 1)
    again = open_stream(broker, topic, named)
    assert read_between(again, again.initialOffset(), end) == []
    assert step(again, end) == ({topic: {"0": 3, "1": 1}}, [b"v1", b"v2", b"new"])
    first = open_stream(broker, topic, named)
    with pytest.raises(OptionError, match=f"it lacks {topic}-1"):
        step(first, first.initialOffset())


def test_trigger_once_reads_in_its_first_batch(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=3)
    reader = open_stream(broker, topic, EARLIEST)
    assert reader.next_end(reader.initialOffset(), takes_all=True) == {topic: {"0": 3}}


@pytest.mark.parametrize(
    "options", [{"startingOffsets": '{"TOPIC": {"0": -1}}'}, {"startingTimestamp": "9000000000000"}]
)
def test_other_ways_to_start_at_the_latest(
    broker: EmbeddedBroker, admin: Admin, topic: str, options: dict[str, str]
) -> None:
    make_topic(broker, admin, topic, partitions=1, records=2)
    named = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    reader = open_stream(broker, topic, {**named, "startingOffsetsByTimestampStrategy": "latest"})
    start = reader.initialOffset()
    send(broker, topic, [b"new"])
    assert step(reader, start) == (start, [])
    assert step(reader, start) == ({topic: {"0": 3}}, [b"new"])


def test_a_query_of_one_micro_batch_reads_partitions_that_do_not_start_at_the_latest(
    broker: EmbeddedBroker, admin: Admin, topic: str
) -> None:
    """The start may be a time, or the latest offset for partitions without a record as late as that."""
    make_topic(broker, admin, topic, partitions=2, records=0)
    for partition, timestamp_ms in ((0, 1000), (1, 3000)):
        with producer(broker) as sender:
            sender.send(topic, b"old", partition=partition, timestamp_ms=timestamp_ms)
    by_time = {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    reader = open_stream(broker, topic, by_time)
    start = reader.initialOffset()
    assert start == {topic: {"0": 1, "1": 0}}
    send(broker, topic, [b"new"])
    end = reader.next_end(start, takes_all=True)
    assert (end, read_between(reader, start, end)) == ({topic: {"0": 1, "1": 1}}, [b"old"])
    # The query died and is repeated: the same rows, then the others.
    again = open_stream(broker, topic, by_time)
    assert read_between(again, again.initialOffset(), end) == [b"old"]
    end = again.next_end(end, takes_all=True)
    assert end == {topic: {"0": 2, "1": 1}}


def test_an_idle_stream_waits_for_the_first_record(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=1)
    reader = open_stream(broker, topic, EARLIEST)
    start = {topic: {"0": 1}}
    began_s = time.monotonic()
    assert reader.next_end(start, takes_all=True) is start
    assert time.monotonic() - began_s > 0.4, "it must not spin"
    sender = threading.Timer(0.1, send, (broker, topic, [b"new"]))
    sender.start()
    # The clock stands still, so only the record ends the wait.
    patient = open_stream(broker, topic, EARLIEST, clock=ManualClock())
    assert patient.next_end(start, takes_all=True) == {topic: {"0": 2}}
    sender.join()


def test_limits_of_a_batch(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, records=10)
    reader = open_stream(broker, topic, {**EARLIEST, "maxOffsetsPerTrigger": "6"})
    start = begin(reader)
    end, values = step(reader, start)
    assert (end, len(values)) == ({topic: {"0": 3, "1": 3}}, 6)
    # Trigger.Once requests all records.
    assert reader.next_end(start, takes_all=True) == {topic: {"0": 10, "1": 10}}


def test_a_batch_with_too_few_records_waits_for_more(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    clock = QuickClock()
    make_topic(broker, admin, topic, partitions=1, records=3)
    options = {**EARLIEST, "minOffsetsPerTrigger": "3", "maxTriggerDelay": "100s"}
    reader = open_stream(broker, topic, options, clock=clock)
    end, _ = step(reader, begin(reader))
    assert end == {topic: {"0": 3}}
    send(broker, topic, [b"a", b"b"])
    assert step(reader, end) == (end, [])
    clock.now_s += 100
    assert step(reader, end) == ({topic: {"0": 5}}, [b"a", b"b"])


def test_a_limit_in_bytes(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=2, records=0)
    with producer(broker, **{"batch.size": "4096"}) as sender:
        for partition, size in ((0, 100), (1, 1000)):
            for _ in range(200):
                sender.send(topic, bytes(size), partition=partition)
    reader = open_stream(broker, topic, {**EARLIEST, "maxBytesPerTrigger": "22k"})
    start = begin(reader)
    _, values = step(reader, start)
    # About a tenth of each partition.
    assert 18_000 < sum(map(len, values)) < 24_000
    assert {len(value) for value in values} == {100, 1000}
    everything = open_stream(broker, topic, {**EARLIEST, "maxBytesPerTrigger": "1g"})
    assert len(step(everything, start)[1]) == 400


def test_available_now_ends_where_the_topic_ended(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, records=3)
    reader = open_stream(broker, topic, {**EARLIEST, "maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "4"})
    reader.stop_at_current_ends()
    send(broker, topic, [b"late"])
    position, values = begin(reader), []
    while (end := reader.next_end(position, takes_all=False)) != position:
        values += read_between(reader, position, end)
        position = end
    assert sorted(values) == sorted([b"v0", b"v1", b"v2"] * 2)


def test_available_now_after_a_crash_in_the_first_batch(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    """Spark ends the query at the first empty batch, so no batch before the end of the topic may be empty."""
    make_topic(broker, admin, topic, partitions=1, records=3)
    end = begin(open_stream(broker, topic, EARLIEST))
    again = open_stream(broker, topic, EARLIEST)
    again.stop_at_current_ends()
    assert read_between(again, again.initialOffset(), end) == []
    assert step(again, end) == ({topic: {"0": 3}}, [b"v0", b"v1", b"v2"])


class EmptyAtFirst(Lookups):
    """A broker that has just started: the first results are empty."""

    empty_results = 1

    def partitions(self, selection: Selection) -> frozenset[TopicPartition]:
        self.empty_results -= 1
        return super().partitions(selection) if self.empty_results < 0 else frozenset()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_available_now_survives_an_empty_lookup(
    broker: EmbeddedBroker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch, starting: str
) -> None:
    make_topic(broker, admin, topic, partitions=1, records=3)
    monkeypatch.setattr(stream_reader, "Lookups", EmptyAtFirst)
    reader = open_stream(broker, topic, {"startingOffsets": starting, "failOnDataLoss": "false"})
    reader.stop_at_current_ends()
    assert reader.initialOffset() == {topic: {"0": 0 if starting == "earliest" else 3}}
    end, _ = step(reader, begin(reader))
    assert end == {topic: {"0": 3}}


def test_positions_are_kept_while_the_topic_does_not_exist(
    broker: EmbeddedBroker, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, admin, topic, partitions=1, records=3)
    lax = open_stream(broker, topic, {**EARLIEST, "failOnDataLoss": "false"})
    strict = open_stream(broker, topic, EARLIEST)
    end, _ = step(lax, begin(lax))
    begin(strict)
    admin.delete_topics([topic])
    with pytest.raises(DataLossError, match=f"{topic}-0 no longer exists"):
        step(strict, end)
    with caplog.at_level(logging.WARNING):
        assert step(lax, end) == step(lax, end) == (end, [])
    assert caplog.text.count("no longer exists") == 1
    make_topic(broker, admin, topic, partitions=1, records=2)
    assert step(lax, end) == ({topic: {"0": 2}}, [b"v0", b"v1"])


def test_partitions_that_are_deleted_between_two_lookups(
    broker: EmbeddedBroker, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are neither read nor recorded as read."""
    make_topic(broker, admin, topic, partitions=1, records=3)
    reader = open_stream(broker, topic, EARLIEST)
    start = begin(reader)
    monkeypatch.setattr(reader, "_ends", lambda: {TopicPartition(topic, 0): 3, TopicPartition(topic, 9): 7})
    assert reader.next_end(start, takes_all=False) == {topic: {"0": 3}}
    with pytest.raises(DataLossError, match=f"{topic}-9 no longer exists; it was to be read up to 7"):
        reader.partitions(start, {topic: {"0": 3, "9": 7}})


def test_available_now_from_the_latest_reads_nothing(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=3)
    reader = open_stream(broker, topic)
    reader.stop_at_current_ends()
    send(broker, topic, [b"late"])
    admin.create_partitions({topic: 2})
    start = reader.initialOffset()
    assert start == {topic: {"0": 3}}
    assert step(reader, start) == step(reader, start) == (start, [])


def test_new_partitions_and_topics_are_read_from_their_beginning(
    broker: EmbeddedBroker, admin: Admin, topic: str
) -> None:
    make_topic(broker, admin, f"{topic}.a", partitions=1, records=1)
    reader = open_stream(broker, topic, {**EARLIEST, "subscribePattern": f"{topic}.*"})
    end, _ = step(reader, begin(reader))
    admin.create_partitions({f"{topic}.a": 2})
    make_topic(broker, admin, f"{topic}.b", partitions=1, records=1)
    send(broker, f"{topic}.a", [b"new"], 1)
    end, values = step(reader, end)
    assert (end, values) == ({f"{topic}.a": {"0": 1, "1": 1}, f"{topic}.b": {"0": 1}}, [b"new", b"v0"])


def test_a_pattern_that_matches_nothing_yet(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    reader = open_stream(broker, topic, {"subscribePattern": f"{topic}.*"})
    assert reader.initialOffset() == {}
    assert step(reader, {}) == ({}, [])
    assert step(reader, {}) == ({}, [])
    assert reader.latest_seen() == {}
    make_topic(broker, admin, f"{topic}.a", partitions=1, records=1)
    assert step(reader, {}) == ({f"{topic}.a": {"0": 1}}, [b"v0"])


def test_deleted_topics(broker: EmbeddedBroker, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        make_topic(broker, admin, f"{topic}.{name}", partitions=1, records=2)
    both = {**EARLIEST, "subscribe": f"{topic}.a,{topic}.b"}
    strict = open_stream(broker, topic, both)
    end, _ = step(strict, begin(strict))
    admin.delete_topics([f"{topic}.b"])
    with pytest.raises(DataLossError, match=f"{topic}.b-0 no longer exists"):
        step(strict, end)
    lax = open_stream(broker, topic, {**both, "failOnDataLoss": "false"})
    with caplog.at_level(logging.WARNING):
        assert step(lax, end) == ({f"{topic}.a": {"0": 2}}, [])
    assert "no longer exists" in caplog.text


def test_a_recreated_topic(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=5)
    strict = open_stream(broker, topic, EARLIEST)
    end, _ = step(strict, begin(strict))
    admin.delete_topics([topic])
    make_topic(broker, admin, topic, partitions=1, records=0)
    lax = open_stream(broker, topic, {**EARLIEST, "failOnDataLoss": "false"})
    # This is recorded immediately: the new topic may soon be longer than the old one.
    assert step(lax, end) == ({topic: {"0": 0}}, [])
    send(broker, topic, [b"again"])
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at 1, and the query is at 5"):
        step(strict, end)
    end, values = step(lax, end)
    assert (end, values) == ({topic: {"0": 1}}, [b"again"])
    assert step(lax, end) == (end, [])


@pytest.mark.parametrize("limits", [{}, {"minOffsetsPerTrigger": "100"}])
def test_a_recreated_topic_that_is_longer(
    broker: EmbeddedBroker, admin: Admin, topic: str, limits: dict[str, str]
) -> None:
    """A running query detects it by its id."""
    make_topic(broker, admin, topic, partitions=1, records=2)
    strict = open_stream(broker, topic, EARLIEST)
    lax = open_stream(broker, topic, {**EARLIEST, "failOnDataLoss": "false", **limits})
    end, _ = step(lax, begin(lax))
    step(strict, begin(strict))
    admin.delete_topics([topic])
    make_topic(broker, admin, topic, partitions=1, records=4)
    with pytest.raises(DataLossError, match=f"{topic}-0 was deleted and created again; the query is at 2"):
        step(strict, end)
    end, values = step(lax, end)
    assert (end, values) == ({topic: {"0": 0}}, [])
    if not limits:
        end, values = step(lax, end)
        assert (end, values) == ({topic: {"0": 4}}, [b"v0", b"v1", b"v2", b"v3"])
    assert step(lax, end) == (end, [])


def test_finished_batches_are_committed_to_the_group(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=5)
    reader = open_stream(broker, topic, {**EARLIEST, "groupId": f"{topic}-group", "maxOffsetsPerTrigger": "3"})

    def committed() -> dict[TopicPartition, int]:
        found = admin.committed_offsets(f"{topic}-group")
        return {tp: offset.offset for tp, offset in found.items()}

    tp = TopicPartition(topic, 0)
    end, _ = step(reader, begin(reader))
    assert committed() == {tp: 0}
    step(reader, end)
    assert committed() == {tp: 3}
    (lag,) = admin.lags(f"{topic}-group")
    assert (lag.committed, lag.end, lag.lag) == (3, 5, 2)


def test_a_failed_commit_is_logged(
    broker: EmbeddedBroker, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, admin, topic, partitions=1, records=1)
    reader = open_stream(broker, topic, {**EARLIEST, "groupId": f"{topic}-group"})
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{topic}-group"}) as member:
        member.subscribe([topic])
        deadline_s = time.monotonic() + 30
        while not member.assignment() and time.monotonic() < deadline_s:
            member.poll(0.1)
        with caplog.at_level(logging.WARNING):
            assert step(reader, begin(reader)) == ({topic: {"0": 1}}, [b"v0"])
    assert "offsets are not committed to group" in caplog.text


def test_a_stream_survives_a_restart_of_the_broker(topic: str) -> None:
    """The process keeps its clients, and they reconnect."""
    with EmbeddedBroker() as broker, Admin({"bootstrap.servers": broker.bootstrap_servers}) as owner:
        make_topic(broker, owner, topic, partitions=1, records=1)
        reader = open_stream(broker, topic, {**EARLIEST, "groupId": f"{topic}-group"})
        end, _ = step(reader, begin(reader))
        broker.restart()
        send(broker, topic, [b"new"])
        assert step(reader, end) == ({topic: {"0": 2}}, [b"new"])


def test_tasks_are_split(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=10)
    reader = open_stream(broker, topic, {**EARLIEST, "minPartitions": "2"})
    tasks = reader.partitions(reader.initialOffset(), {topic: {"0": 10}})
    assert [(task.range.start, task.range.end) for task in tasks if isinstance(task, RangePartition)] == [
        (0, 5),
        (5, 10),
    ]
