"""Tables of topics of a real broker, read by tasks as Spark runs them, but without Spark: which offsets are fetched."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from rookery.base.clock import ManualClock
from rookery.base.types import TopicPartition
from rookery.client.sync import Admin, Consumer
from rookery.pipelines import table_reader
from rookery.pipelines.table_cache import TableCache
from rookery.pipelines.tables import TableSource
from rookery.spark.options import ReadOptions
from rookery.spark.source import task_reader
from rookery.spark.source.ranges import OffsetRange
from rookery.spark.source.row_shape import DecodingError
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source.sources import admin, producer

__all__ = ["admin"]

Record: TypeAlias = tuple[bytes | None, bytes | None]
# Partition, first offset, and the offset before which the read ends.
Fetched: TypeAlias = list[tuple[int, int, int]]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """The ranges that were fetched from the broker since the last call of `take_fetched`."""
    found: Fetched = []
    fetch = task_reader.fetch

    def recording_fetch(options: ReadOptions, wanted: OffsetRange) -> Iterator[Any]:
        if wanted.size:
            found.append((wanted.partition.partition, wanted.start, wanted.end))
        return fetch(options, wanted)

    monkeypatch.setattr(task_reader, "fetch", recording_fetch)
    return found


def take_fetched(fetched: Fetched) -> Fetched:
    found = list(fetched)
    fetched.clear()
    return found


class Table:
    """A query that joins with a topic: it is planned once, and its tasks run with each micro-batch."""

    def __init__(self, broker: EmbeddedBroker, topic: str, **options: str) -> None:
        source = TableSource(
            {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "kafka.isolation.level": "read_committed",
                "subscribe": topic,
                **options,
            }
        )
        self._reader = source.reader(source.schema())
        self._shares = self._reader.partitions()

    def rows(self) -> list[dict[str, Any]]:
        return [row for share in self._shares for batch in self._reader.read(share) for row in batch.to_pylist()]

    def latest(self) -> dict[Any, Any]:
        """Return what `latest_per_key` returns for the rows."""
        rows = sorted(self.rows(), key=lambda row: row["offset"])
        latest = {row["key"]: row["value"] for row in rows if row["key"] is not None}
        return {key: value for key, value in latest.items() if value is not None}


def send(broker: EmbeddedBroker, topic: str, *records: Record, partition: int = 0) -> None:
    with producer(broker) as sender:
        for key, value in records:
            sender.send(topic, value, key=key, partition=partition)


def test_a_micro_batch_fetches_only_new_records(broker: EmbeddedBroker, topic: str, fetched: Fetched) -> None:
    broker.create_topic(topic)
    send(broker, topic, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"x"), (b"", b"empty"))
    table = Table(broker, topic)
    assert table.latest() == {b"a": b"2", b"b": b"1", b"": b"empty"}
    assert take_fetched(fetched) == [(0, 0, 5)]
    assert table.latest() == {b"a": b"2", b"b": b"1", b"": b"empty"}
    assert take_fetched(fetched) == [], "nothing is new"
    send(broker, topic, (b"b", None), (b"c", b"3"), (b"a", b"4"))
    assert table.latest() == {b"a": b"4", b"": b"empty", b"c": b"3"}
    assert take_fetched(fetched) == [(0, 5, 8)]
    assert {row["offset"] for row in table.rows()} == {3, 4, 5, 6, 7}, "replaced records are not in the table"
    other = Table(broker, topic, includeHeaders="true", minPartitions="4")
    assert len(other.rows()[0]) == len(table.rows()[0]) + 1
    assert take_fetched(fetched) == [(0, 0, 8)], "other options have other tables; partitions are read whole"


def test_a_topic_that_was_created_again_is_read_from_its_beginning(
    broker: EmbeddedBroker, admin: Admin, topic: str, fetched: Fetched
) -> None:
    broker.create_topic(topic)
    send(broker, topic, (b"a", b"1"), (b"b", b"1"))
    table = Table(broker, topic)
    assert table.latest() == {b"a": b"1", b"b": b"1"}
    admin.delete_topics([topic])
    broker.create_topic(topic)
    assert table.latest() == {}
    send(broker, topic, (b"c", b"1"), (b"d", b"1"), (b"e", b"1"))
    take_fetched(fetched)
    assert table.latest() == {b"c": b"1", b"d": b"1", b"e": b"1"}
    assert take_fetched(fetched) == [(0, 0, 3)]


def test_deleted_records_leave_the_table(broker: EmbeddedBroker, admin: Admin, topic: str, fetched: Fetched) -> None:
    broker.create_topic(topic)
    tp = TopicPartition(topic, 0)
    send(broker, topic, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    table = Table(broker, topic)
    assert len(table.latest()) == 3
    admin.delete_records({tp: 2})
    send(broker, topic, (b"d", b"1"))
    assert table.latest() == {b"c": b"1", b"d": b"1"}
    assert take_fetched(fetched) == [(0, 0, 3), (0, 3, 4)]
    send(broker, topic, (b"e", b"1"), (b"f", b"1"))
    admin.delete_records({tp: 5})
    assert table.latest() == {b"f": b"1"}
    assert take_fetched(fetched) == [(0, 5, 6)], "records that were deleted before they were read are skipped"
    admin.delete_records({tp: 6})
    assert table.latest() == {}


def test_partitions_that_are_added(broker: EmbeddedBroker, admin: Admin, topic: str, fetched: Fetched) -> None:
    broker.create_topic(topic)
    send(broker, topic, (b"a", b"old"), (b"b", b"1"))
    table = Table(broker, topic)
    assert table.latest() == {b"a": b"old", b"b": b"1"}
    admin.create_partitions({topic: 2})
    # The keys move to the new partition, as with a producer that hashes keys over all partitions.
    send(broker, topic, *((b"c", b"1"),) * 2, (b"a", b"new"), (b"b", None), partition=1)
    take_fetched(fetched)
    assert table.latest() == {b"a": b"new", b"c": b"1"}
    assert take_fetched(fetched) == [(1, 0, 4)]
    assert table.latest() == {b"a": b"new", b"c": b"1"}
    assert take_fetched(fetched) == []


def test_a_read_ends_before_open_transactions(broker: EmbeddedBroker, topic: str, fetched: Fetched) -> None:
    broker.create_topic(topic)
    send(broker, topic, (b"a", b"1"))
    table = Table(broker, topic)
    with producer(broker, **{"transactional.id": topic}) as sender:
        sender.init_transactions()
        for value, end in ((b"committed", sender.commit_transaction), (b"aborted", sender.abort_transaction)):
            sender.begin_transaction()
            sender.send(topic, value, key=b"b")
            sender.flush()
            send(broker, topic, (b"a", value))
            before = table.latest()
            assert value not in before.values()
            end()
            assert table.latest() == {b"a": value, b"b": b"committed"}
    # Each record and each marker is fetched once.
    assert take_fetched(fetched) == [(0, 0, 1), (0, 1, 4), (0, 4, 7)]


def json_table(broker: EmbeddedBroker, topic: str, **options: str) -> Table:
    return Table(broker, topic, keyFormat="string", valueFormat="json", valueSchema="id int", **options)


def test_a_bad_record_fails_every_read(broker: EmbeddedBroker, topic: str, fetched: Fetched) -> None:
    broker.create_topic(topic)
    send(broker, topic, (b"a", b'{"id": 1}'))
    table, lax = json_table(broker, topic), json_table(broker, topic, onError="null")
    assert table.latest() == lax.latest() == {"a": {"id": 1}}
    send(broker, topic, (b"b", b'{"id": 2}'), (b"a", b"bad"))
    for _ in range(2):
        with pytest.raises(DecodingError, match="offset 2: the value cannot be decoded"):
            table.latest()
    assert lax.latest() == {"b": {"id": 2}}, "a null value removes the key"


def test_records_with_errors_are_kept_in_addition_to_decoded_ones(
    broker: EmbeddedBroker, topic: str, fetched: Fetched
) -> None:
    """`sources` decides later whether they count."""
    broker.create_topic(topic)
    send(broker, topic, (b"a", b'{"id": 1}'), (b"b", b'{"id": 1}'))
    table = json_table(broker, topic, keyDetails="true", valueDetails="true")
    table.rows()
    send(broker, topic, (b"a", b"bad"), (b"b", b"bad"), (b"b", b'{"id": 2}'), (b"a", b"worse"))
    rows = {row["offset"]: (row["key"]["value"], row["value"]["value"]) for row in table.rows()}
    assert rows == {0: ("a", {"id": 1}), 3: ("b", None), 4: ("b", {"id": 2}), 5: ("a", None)}
    assert take_fetched(fetched) == [(0, 0, 2), (0, 2, 6)]


def test_a_dead_letter_is_written_once_when_its_record_is_read(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    send(broker, topic, (b"a", b'{"id": 1}'), (b"a", b"bad"))
    table = json_table(broker, topic, onError="dead-letter")
    assert [table.latest() for _ in range(3)] == [{"a": {"id": 1}}] * 3
    with Consumer[bytes, bytes]({"bootstrap.servers": broker.bootstrap_servers}) as consumer:
        assert consumer.read_arrow(f"{topic}.dlq").column("value").to_pylist() == [b"bad"]


def test_a_table_that_is_too_large_is_not_cached(
    broker: EmbeddedBroker, topic: str, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    for value in (b"1", b"2", b"3"):
        send(broker, topic, (b"a", value), (b"b", value))
    monkeypatch.setattr(table_reader, "TABLES", TableCache(clock=ManualClock(), size_bytes_max=1))
    small = Table(broker, topic, **{"kafka.max.partition.fetch.bytes": "1"})
    assert small.latest() == {b"a": b"3", b"b": b"3"}
    assert len(small.rows()) == 2, "the table is complete before its size is checked"
    monkeypatch.setattr(table_reader, "_CHUNK_BYTES", 1)
    assert len(small.rows()) == 6
    assert small.latest() == {b"a": b"3", b"b": b"3"}
    assert take_fetched(fetched) == [(0, 0, 6)] * 4


def test_keys_that_differ_only_in_bytes_are_both_kept(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic)
    send(broker, topic, *((key, b"v") for key in (b'{"id":1}', b'{"id": 1}', b'{"id":1}')))
    table = Table(broker, topic, keyFormat="json", keySchema="id int")
    assert [(row["key"], row["offset"]) for row in table.rows()] == [({"id": 1}, 1), ({"id": 1}, 2)]
