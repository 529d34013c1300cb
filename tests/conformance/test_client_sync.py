"""Rookery's synchronous client with Rookery and with Apache Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest

from rookery.client import NewTopic, TopicPartition
from rookery.client.sync import Admin, Consumer, Producer
from tests.conformance import brokers
from tests.support.waiting import eventually

COUNT = 20


@pytest.fixture(scope="module", params=brokers.BOTH)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from brokers.start(request.param, tmp_path_factory.mktemp(request.param))


def values(consumer: Consumer[Any, Any], count: int) -> list[bytes | None]:
    found: list[bytes | None] = []

    def is_enough() -> bool:
        found.extend(record.value for record in consumer.poll(0.5))
        return len(found) >= count

    eventually(is_enough, f"{count} records")
    return found


def test_a_group_reads_what_was_committed(bootstrap: str, topic: str) -> None:
    server = {"bootstrap.servers": bootstrap}
    tp = TopicPartition(topic, 0)
    with Admin(server) as admin:
        for outcome in admin.create_topics([NewTopic(name=topic, partitions=1)]):
            outcome.check()
        with Producer[bytes, bytes](server) as producer:
            futures = [producer.send(topic, b"%d" % number) for number in range(COUNT)]
            assert [future.result().offset for future in futures] == list(range(COUNT))
        reading = {**server, "group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        with (
            Consumer[bytes, bytes]({**reading, "enable.auto.commit": False}) as consumer,
            Producer[bytes, bytes]({**server, "transactional.id": topic}) as producer,
        ):
            consumer.subscribe([topic])
            assert values(consumer, COUNT) == [b"%d" % number for number in range(COUNT)]
            producer.init_transactions()
            for word in ("aborted", "committed"):
                producer.begin_transaction()
                producer.send(topic, word.encode())
                producer.send_offsets_to_transaction({tp: COUNT}, consumer.group_metadata())
                if word == "committed":
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
                    assert consumer.committed([tp]) == {}
            assert values(consumer, 1) == [b"committed"]
            assert consumer.committed([tp])[tp].offset == COUNT
        with Consumer[bytes, bytes](reading) as consumer:
            consumer.subscribe([topic])
            assert values(consumer, 1) == [b"committed"]
        (described,) = admin.describe_groups([topic])
        assert described.check().members == ()
