"""kafka-python's admin client, which can find and end a hanging transaction."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka import TopicPartition
from kafka.admin._transactions import AbortTransactionSpec, TransactionState

from tests.conformance.players import create_topic
from tests.conformance.transactors import KafkaPythonTransactor, read_with_kafka_python
from tests.support.waiting import expect


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def producer(bootstrap: str, topic: str) -> Iterator[KafkaPythonTransactor]:
    """Run a producer that has written one record to each of the two partitions, in a transaction that is open."""
    create_topic(bootstrap, topic, 2)
    made = KafkaPythonTransactor(bootstrap, topic, timeout_ms=45_000)
    made.begin()
    made.send(topic, 0, b"value")
    made.send(topic, 1, b"value")
    yield made
    made.close()


def test_transactions_are_listed_and_described(admin: Any, topic: str, producer: KafkaPythonTransactor) -> None:
    def listed(**filters: Any) -> list[Any]:
        return [row for rows in admin.list_transactions(**filters).values() for row in rows]

    def states() -> tuple[TransactionState, TransactionState]:
        (row,) = [row for row in listed() if row.transactional_id == topic]
        return row.state, admin.describe_transactions([topic])[topic].state

    assert states() == (TransactionState.ONGOING,) * 2
    described = admin.describe_transactions([topic])[topic]
    assert described.topic_partitions == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert described.transaction_timeout_ms == 45_000
    assert described.transaction_start_time_ms > 0
    (ongoing,) = listed(state_filters=["Ongoing"], producer_id_filters=[described.producer_id])
    assert ongoing.transactional_id == topic
    assert listed(state_filters=["CompleteAbort"], producer_id_filters=[described.producer_id]) == []
    assert [row.transactional_id for row in listed(transactional_id_pattern=f"{topic[:-2]}.*")] == [topic]
    assert topic not in {row.transactional_id for row in listed(duration_filter_ms=600_000)}
    producer.commit()
    expect(states, (TransactionState.COMPLETE_COMMIT,) * 2)
    assert admin.describe_transactions([topic])[topic].topic_partitions == set()


def test_an_unknown_transactional_id(admin: Any, bootstrap: str, topic: str) -> None:
    with pytest.raises(kafka.errors.TransactionalIdNotFoundError):
        admin.describe_transactions([topic])


def test_an_open_transaction_is_ended_by_an_operator(
    admin: Any, bootstrap: str, topic: str, producer: KafkaPythonTransactor
) -> None:
    """It is ended on one partition, as if the coordinator had forgotten it there."""
    place = TopicPartition(topic, 0)
    (state,) = admin.describe_producers([place])[place].active_producers
    assert (state.current_transaction_start_offset, state.last_sequence) == (0, 0)
    assert topic not in {one["transactional_id"] for one in admin.find_hanging_transactions()}
    # It reports transactions as hanging if they are five minutes older than this.
    hanging = admin.find_hanging_transactions(max_transaction_timeout_ms=-300_000)
    assert topic in {one["transactional_id"] for one in hanging}
    assert read_with_kafka_python(bootstrap, topic) == []
    admin.abort_transaction(AbortTransactionSpec(place, state.producer_id, state.producer_epoch))
    (state,) = admin.describe_producers([place])[place].active_producers
    assert state.current_transaction_start_offset == -1
    producer.commit()
    assert read_with_kafka_python(bootstrap, topic, 0) == []
    expect(partial(read_with_kafka_python, bootstrap, topic, 1), [b"value"])
