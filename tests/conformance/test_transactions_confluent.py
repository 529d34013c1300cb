"""Transactions with librdkafka: pending offsets, errors, and the last stable offset."""

from collections.abc import Iterator
from functools import partial

import confluent_kafka
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.conformance.clients import TIMEOUT_S, confluent_consumer
from tests.conformance.interfaces import READ_COMMITTED, READ_UNCOMMITTED
from tests.conformance.members import fill
from tests.conformance.players import create_topic
from tests.conformance.transactors import ConfluentSource, ConfluentTransactor, read_with_confluent
from tests.support.waiting import expect


@pytest.fixture
def source(bootstrap: str, topic: str) -> Iterator[ConfluentSource]:
    """Run a member of the group that has the topic's name; it has joined, because it has read a record."""
    fill(bootstrap, topic, partitions=1, count=1)
    made = ConfluentSource(bootstrap, topic, topic)
    assert made.take(1) == [b"0"]
    yield made
    made.close()


def committed(bootstrap: str, group_id: str, isolation: str, timeout_s: float = TIMEOUT_S) -> int:
    consumer = confluent_consumer(bootstrap, group_id=group_id, isolation_level=isolation)
    try:
        return consumer.committed([TopicPartition(group_id, 0)], timeout_s)[0].offset
    finally:
        consumer.close()


def test_offsets_are_unstable_while_the_transaction_is_open(
    bootstrap: str, topic: str, source: ConfluentSource
) -> None:
    producer = ConfluentTransactor(bootstrap, topic)
    for offset in (3, 5):
        producer.begin()
        producer.send_offsets({(topic, 0): offset}, source)
        assert committed(bootstrap, topic, READ_UNCOMMITTED) == (confluent_kafka.OFFSET_INVALID if offset == 3 else 3)
        with pytest.raises(KafkaException) as refused:
            committed(bootstrap, topic, READ_COMMITTED, 0.5)
        assert refused.value.args[0].code() in {KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT}
        producer.commit()
        expect(partial(committed, bootstrap, topic, READ_COMMITTED), offset)


def test_a_member_that_left_cannot_commit_offsets(bootstrap: str, topic: str, source: ConfluentSource) -> None:
    """The group's generation fences it, in addition to the producer's epoch; the transaction can be aborted."""
    producer = ConfluentTransactor(bootstrap, topic)
    metadata = source.consumer.consumer_group_metadata()
    source.close()
    producer.begin()
    with pytest.raises(KafkaException) as refused:
        producer.producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, TIMEOUT_S)
    assert refused.value.args[0].txn_requires_abort()
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    producer.abort()
    assert committed(bootstrap, topic, READ_COMMITTED) == confluent_kafka.OFFSET_INVALID


def test_the_last_stable_offset(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def ends() -> tuple[int, int]:
        """Return the end of the partition at read_committed, and at read_uncommitted."""
        place = TopicPartition(topic, 0)
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        found = [admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place] for level in levels]
        return found[0].result(TIMEOUT_S).offset, found[1].result(TIMEOUT_S).offset

    first, second = ConfluentTransactor(bootstrap, f"{topic}-1"), ConfluentTransactor(bootstrap, f"{topic}-2")
    first.begin()
    first.send(topic, 0, b"1", b"2")
    assert ends() == (0, 2)
    second.begin()
    second.send(topic, 0, b"3")
    second.commit()
    expect(ends, (0, 4))
    first.abort()
    expect(ends, (5, 5))


def test_a_waiting_reader_wakes_at_the_commit(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    consumer = confluent_consumer(bootstrap, isolation_level=READ_COMMITTED, fetch_wait_max_ms=20_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = ConfluentTransactor(bootstrap, topic)
    producer.begin()
    producer.send(topic, 0, b"value")
    assert consumer.poll(0.3) is None
    producer.commit()
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


def test_a_timeout_that_is_too_long(bootstrap: str, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        ConfluentTransactor(bootstrap, topic, timeout_ms=2_000_000)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_after_a_rejected_record_the_transaction_can_only_be_aborted(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, max_message_bytes="1000")
    producer = ConfluentTransactor(bootstrap, topic)
    producer.begin()
    producer.send(topic, 0, b"small")
    with pytest.raises(KafkaException) as refused:
        producer.send(topic, 0, bytes(5000))
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(KafkaException) as refused:
        producer.commit()
    assert refused.value.args[0].txn_requires_abort()
    producer.abort()
    assert read_with_confluent(bootstrap, topic) == []
