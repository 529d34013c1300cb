"""Every fault, as common clients observe it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing import ApiKey, EmbeddedBroker, ErrorCode
from tests.support.waiting import eventually

TIMEOUT_S = 30
HOUR_S = 3600.0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as embedded:
        embedded.create_topic("t", partitions=2)
        yield embedded


class Deliveries:
    """A producer, and the result of each record."""

    def __init__(self, broker: EmbeddedBroker, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.errors: dict[str, str | None] = {}
        self.producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, "linger.ms": 0, "log_level": 3}
            | named
        )

    def send(self, value: str, partition: int = 0) -> None:
        self.producer.produce("t", value, partition=partition, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self.errors[(message.value() or b"").decode()] = None if error is None else error.name()

    def flush(self, timeout_s: float = TIMEOUT_S) -> int:
        return self.producer.flush(timeout_s)


def assigned(broker: EmbeddedBroker) -> Consumer:
    settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 3}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers} | settings)
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    return consumer


def stored(broker: EmbeddedBroker) -> list[str]:
    """Return the values of partition 0."""
    consumer = assigned(broker)
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=TIMEOUT_S)
    values: list[str] = []
    while len(values) < end:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def send_with_confluent(broker: EmbeddedBroker) -> None:
    deliveries = Deliveries(broker)
    deliveries.send("v")
    assert deliveries.flush() == 0
    assert deliveries.errors == {"v": None}


def send_with_kafka_python(broker: EmbeddedBroker) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10)
    try:
        producer.send("t", b"v", partition=0).get(TIMEOUT_S)
    finally:
        producer.close(timeout=TIMEOUT_S)


def send_with_aiokafka(broker: EmbeddedBroker) -> None:
    async def send() -> None:
        servers = broker.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, retry_backoff_ms=10) as producer:
            await asyncio.wait_for(producer.send_and_wait("t", b"v", partition=0), TIMEOUT_S)

    asyncio.run(send())


SENDERS = [send_with_confluent, send_with_kafka_python, send_with_aiokafka]


@pytest.mark.parametrize("send", SENDERS)
def test_a_client_retries_after_an_error(broker: EmbeddedBroker, send: Callable[[EmbeddedBroker], None]) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    send(broker)
    assert fault.hits == 2
    assert fault.is_over
    assert stored(broker) == ["v"]


@pytest.mark.parametrize("send", SENDERS)
def test_a_client_reconnects(broker: EmbeddedBroker, send: Callable[[EmbeddedBroker], None]) -> None:
    fault = broker.faults.drop_connection("Produce", times=2)
    send(broker)
    assert fault.hits == 2
    assert stored(broker) == ["v"]


@pytest.mark.parametrize("send", SENDERS)
def test_a_client_waits_for_metadata(broker: EmbeddedBroker, send: Callable[[EmbeddedBroker], None]) -> None:
    fault = broker.faults.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, topic="t")
    send(broker)
    assert fault.hits == 1


def test_a_lost_acknowledgement_makes_no_duplicate(broker: EmbeddedBroker) -> None:
    fault = broker.faults.drop_connection("Produce", carry_out=True)
    deliveries = Deliveries(broker, enable_idempotence=True)
    deliveries.send("once")
    assert deliveries.flush() == 0
    assert fault.hits == 1
    assert stored(broker) == ["once"]


def test_an_error_that_cannot_be_retried_reaches_the_caller(broker: EmbeddedBroker) -> None:
    broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    deliveries = Deliveries(broker)
    deliveries.send("v")
    assert deliveries.flush() == 0
    assert deliveries.errors == {"v": "TOPIC_AUTHORIZATION_FAILED"}
    assert stored(broker) == []


def test_one_partition_fails_alone(broker: EmbeddedBroker) -> None:
    fault = broker.faults.fail("Produce", "MESSAGE_TOO_LARGE", topic="t", partition=1)
    deliveries = Deliveries(broker)
    deliveries.send("first")
    deliveries.send("second", partition=1)
    assert deliveries.flush() == 0
    assert deliveries.errors == {"first": None, "second": "MSG_SIZE_TOO_LARGE"}
    assert fault.hits == 1
    assert stored(broker) == ["first"]


def test_faults_of_other_topics_are_not_applied(broker: EmbeddedBroker) -> None:
    fault = broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="other", times=None)
    send_with_confluent(broker)
    assert fault.hits == 0


def test_a_delayed_response_arrives_after_its_delay(broker: EmbeddedBroker) -> None:
    fault = broker.faults.delay("Produce", HOUR_S)
    deliveries = Deliveries(broker)
    deliveries.send("slow")
    eventually(lambda: fault.hits == 1, "the request has arrived")
    assert deliveries.flush(0.2) == 1
    assert stored(broker) == ["slow"], "it was executed immediately"
    broker.advance_time(HOUR_S)
    assert deliveries.flush() == 0
    assert deliveries.errors == {"slow": None}


def test_a_delayed_response_can_also_fail(broker: EmbeddedBroker) -> None:
    broker.faults.delay("Produce", 0.01)
    broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    deliveries = Deliveries(broker)
    deliveries.send("v")
    assert deliveries.flush() == 0
    assert deliveries.errors == {"v": "TOPIC_AUTHORIZATION_FAILED"}


def test_a_fetch_fails(broker: EmbeddedBroker) -> None:
    send_with_confluent(broker)
    fault = broker.faults.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="t", partition=0)
    consumer = assigned(broker)
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.name() == "_AUTO_OFFSET_RESET"
    assert fault.hits == 1
    consumer.close()


def test_fetches_of_a_session_fail(broker: EmbeddedBroker) -> None:
    """kafka-python fetches in sessions; the requests that continue one name no partitions."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=None, retry_backoff_ms=10, fetch_max_wait_ms=50
    )
    partitions = [kafka.TopicPartition("t", index) for index in (0, 1)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    send_with_confluent(broker)
    assert [record.value for record in _poll(consumer)] == [b"v"]
    fault = broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="t", partition=0, times=2)
    send_with_confluent(broker)
    assert [record.value for record in _poll(consumer)] == [b"v"]
    assert fault.hits == 2
    consumer.close()


def _poll(consumer: Any) -> list[Any]:
    while True:
        records = [record for batch in consumer.poll(timeout_ms=1000).values() for record in batch]
        if records:
            return records


def test_an_admin_request_fails_with_a_message(broker: EmbeddedBroker) -> None:
    broker.faults.fail("CreateTopics", "POLICY_VIOLATION")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(KafkaException, match="injected by the test"):
        admin.create_topics([NewTopic("new", 1)])["new"].result(TIMEOUT_S)
    admin.create_topics([NewTopic("new", 1)])["new"].result(TIMEOUT_S)


def test_offsets_cannot_be_listed(broker: EmbeddedBroker) -> None:
    fault = broker.faults.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", topic="t", times=None)
    consumer = assigned(broker)
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=TIMEOUT_S)
    fault.cancel()
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=TIMEOUT_S) == (0, 0)
    consumer.close()


def test_a_produce_without_acknowledgement_loses_its_connection(broker: EmbeddedBroker) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    deliveries = Deliveries(broker, acks=0)
    deliveries.send("lost")
    assert deliveries.flush() == 0
    send_with_confluent(broker)
    assert fault.hits == 1
    assert stored(broker) == ["v"]


def test_faults_survive_a_restart_and_end_with_clear(broker: EmbeddedBroker) -> None:
    fault = broker.faults.fail("Produce", "INVALID_RECORD", times=None)
    broker.restart()
    deliveries = Deliveries(broker)
    deliveries.send("a")
    assert deliveries.flush() == 0
    broker.faults.clear()
    deliveries.send("b")
    assert deliveries.flush() == 0
    assert deliveries.errors == {"a": "INVALID_RECORD", "b": None}
    assert fault.hits == 1


def test_faults_are_applied_in_order(broker: EmbeddedBroker) -> None:
    broker.faults.fail("CreateTopics", "POLICY_VIOLATION")
    broker.faults.fail("CreateTopics", "INVALID_REQUEST")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = []
    for _ in range(2):
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([NewTopic("new", 1)])["new"].result(TIMEOUT_S)
        names.append(raised.value.args[0].name())
    assert names == ["POLICY_VIOLATION", "INVALID_REQUEST"]


class Member:
    """A consumer in a group, and the events of its assignment."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.events: list[str] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 100,
                "log_level": 3,
            }
        )
        self.consumer.subscribe(
            ["t"],
            on_assign=lambda *_: self.events.append("assigned"),
            on_lost=lambda *_: self.events.append("lost"),
        )

    def poll_until(self, *events: str) -> None:
        while self.events != list(events):
            self.consumer.poll(0.1)


def test_sessions_of_group_members_expire(broker: EmbeddedBroker) -> None:
    member = Member(broker)
    member.poll_until("assigned")
    while "lost" not in member.events:
        # A heartbeat that arrives together with the jump renews the session before it expires.
        broker.advance_time(46)
        member.consumer.poll(1.0)
    while member.events[-1] != "assigned":
        member.consumer.poll(0.1)
    member.consumer.close()


def test_group_requests_fail(broker: EmbeddedBroker) -> None:
    send_with_confluent(broker)
    member = Member(broker)
    faults = [
        broker.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        broker.faults.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        broker.faults.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        broker.faults.fail("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", topic="t"),
    ]
    message = member.consumer.poll(TIMEOUT_S)
    assert message is not None
    with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
        member.consumer.commit(message=message, asynchronous=False)
    member.consumer.commit(message=message, asynchronous=False)
    assert [fault.hits for fault in faults] == [1, 1, 1, 1]
    broker.faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
    member.poll_until("assigned", "assigned")
    member.consumer.close()


def test_invalid_faults_are_rejected_when_they_are_registered(broker: EmbeddedBroker) -> None:
    faults = broker.faults
    with pytest.raises(ValueError, match="did you mean PRODUCE"):
        faults.delay("Produced", 1)
    with pytest.raises(ValueError, match="did you mean NOT_LEADER_OR_FOLLOWER"):
        faults.fail("Produce", "NOT_LEADER_FOR_FOLLOWER")
    with pytest.raises(ValueError, match="not an error code"):
        faults.fail("Produce", ErrorCode.NONE)
    with pytest.raises(ValueError, match="not about topics"):
        faults.fail("InitProducerId", "COORDINATOR_NOT_AVAILABLE", topic="t")
    with pytest.raises(ValueError, match="times"):
        faults.drop_connection("Fetch", times=0)
