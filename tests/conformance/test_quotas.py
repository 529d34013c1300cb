"""Quotas as foreign clients see them: throttle times in responses, connections that are not read, rates that hold.

The long tests measure rates over a minute. A client that sends as fast as it can uses its quota of ten seconds at once,
and then waits until that has left the windows: they measure over a multiple of eleven windows.
"""

import re
import time
from collections.abc import Callable, Iterator

import kafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition

from rookery.client.admin import QuotaEntity
from rookery.client.sync import Admin
from tests.conformance.java_tools import run_tool

TIMEOUT_S = 60.0
# Throttled for some seconds by one request, so that a test sees it, and its client can be closed soon after.
RATE = 1000
BURST = 13_000

MEASURED_S = 66.0
MEASURED_RATE = 1_000_000


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as client:
        yield client


@pytest.fixture
def limit(admin: Admin, topic: str) -> Iterator[Callable[[str, float], str]]:
    """Set a quota of the client id that it returns; it is removed after the test."""
    entity, keys = QuotaEntity(client_id=topic), set()

    def apply(key: str, value: float) -> str:
        keys.add(key)
        for outcome in admin.alter_client_quotas({entity: {key: value}}):
            outcome.check()
        return topic

    yield apply
    admin.alter_client_quotas({entity: dict.fromkeys(keys)})


def wait_for(condition: Callable[[], bool], poll: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        poll()


class Throttles:
    """The throttle times that librdkafka reports."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, event: object) -> None:
        self.times_s.append(getattr(event, "throttle_time", 0.0))

    @property
    def longest_s(self) -> float:
        return max(self.times_s, default=0.0)


def librdkafka(bootstrap: str, client_id: str, throttles: Throttles | None = None) -> dict[str, object]:
    config: dict[str, object] = {"bootstrap.servers": bootstrap, "client.id": client_id}
    return config if throttles is None else {**config, "throttle_cb": throttles}


def test_a_producer_of_librdkafka_is_throttled(bootstrap: str, topic: str, limit: Callable[[str, float], str]) -> None:
    throttles = Throttles()
    producer = Producer(librdkafka(bootstrap, limit("producer_byte_rate", RATE), throttles))
    producer.produce(topic, b"a" * BURST)
    wait_for(lambda: throttles.longest_s > 0, lambda: producer.poll(0.1))
    # Not much more than the time that brings the rate down, in whatever unit the binding has.
    assert 1 <= throttles.longest_s < 10
    assert producer.flush(TIMEOUT_S) == 0


def test_a_consumer_of_librdkafka_is_throttled_and_reads_everything(
    bootstrap: str, topic: str, limit: Callable[[str, float], str]
) -> None:
    producer = Producer(librdkafka(bootstrap, "writer"))
    for _ in range(10):
        producer.produce(topic, b"a" * 1_500)
        assert producer.flush(TIMEOUT_S) == 0
    throttles, seen = Throttles(), list[object]()
    config = {**librdkafka(bootstrap, limit("consumer_byte_rate", RATE), throttles), "group.id": topic}
    consumer = Consumer({**config, "fetch.message.max.bytes": 2_000})
    consumer.assign([Partition(topic, 0, 0)])
    try:
        wait_for(lambda: len(seen) == 10, lambda: seen.extend(filter(None, [consumer.poll(0.1)])))
        wait_for(lambda: throttles.longest_s > 0, lambda: consumer.poll(0.1))
    finally:
        consumer.close()


def test_clients_of_kafka_python_are_throttled(
    bootstrap: str, topic: str, limit: Callable[[str, float], str], caplog: pytest.LogCaptureFixture
) -> None:
    client_id = limit("producer_byte_rate", RATE)
    limit("consumer_byte_rate", RATE)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id)
    producer.send(topic, b"a" * BURST).get(TIMEOUT_S)
    # The connection is muted: the response to this one comes later, and without an error.
    producer.send(topic, b"b").get(TIMEOUT_S)
    assert "ProduceResponse throttled by broker" in caplog.text
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, client_id=client_id)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    for _ in range(2):
        consumer.seek(partition, 0)
        wait_for(lambda: bool(consumer.poll(100)), lambda: None)
    assert "FetchResponse throttled by broker" in caplog.text
    consumer.close()


def test_a_throttled_client_does_not_slow_its_neighbours(
    bootstrap: str, topic: str, limit: Callable[[str, float], str]
) -> None:
    throttled = Producer(librdkafka(bootstrap, limit("producer_byte_rate", 100)))
    delivered: list[bytes] = []

    def note(_: object, message: object) -> None:
        delivered.append(message.value())  # type: ignore[attr-defined]

    # The first one is answered, and mutes the connection for minutes.
    throttled.produce(topic, b"first" + b"a" * BURST, on_delivery=note)
    assert throttled.flush(TIMEOUT_S) == 0
    throttled.produce(topic, b"second", on_delivery=note)
    neighbour = Producer(librdkafka(bootstrap, "neighbour"))
    for _ in range(200):
        neighbour.produce(topic, b"n")
        assert neighbour.flush(TIMEOUT_S) == 0
    throttled.poll(0)
    assert len(delivered) == 1
    throttled.purge()


def measure(count_bytes: Callable[[], int], step: Callable[[], object]) -> float:
    """Return the bytes per second over a minute, from the first byte on."""
    while not count_bytes():
        step()
    began = time.monotonic()
    while time.monotonic() < began + MEASURED_S:
        step()
    return count_bytes() / (time.monotonic() - began)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_rate_of_a_producer_holds_over_a_minute(
    bootstrap: str, topic: str, limit: Callable[[str, float], str]
) -> None:
    producer = Producer(
        {
            **librdkafka(bootstrap, limit("producer_byte_rate", MEASURED_RATE)),
            "batch.num.messages": 20,
            "queue.buffering.max.messages": 200,
            "linger.ms": 5,
        }
    )
    delivered = 0

    def note(_: object, message: object) -> None:
        nonlocal delivered
        delivered += len(message.value())  # type: ignore[attr-defined]

    def step() -> None:
        try:
            producer.produce(topic, b"a" * 1000, on_delivery=note)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)

    assert measure(lambda: delivered, step) == pytest.approx(MEASURED_RATE, rel=0.1)
    producer.purge()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_rate_of_a_consumer_holds_over_a_minute(
    bootstrap: str, topic: str, limit: Callable[[str, float], str]
) -> None:
    # Small batches: a response may end with a part of one, which is charged and of no use to the consumer.
    producer, received = Producer({**librdkafka(bootstrap, "writer"), "batch.num.messages": 10}), 0
    for _ in range(100):
        for _ in range(1000):
            producer.produce(topic, b"a" * 1000)
        assert producer.flush(TIMEOUT_S) == 0
    config = {**librdkafka(bootstrap, limit("consumer_byte_rate", MEASURED_RATE)), "group.id": topic}
    consumer = Consumer({**config, "fetch.message.max.bytes": 300_000, "fetch.queue.backoff.ms": 10})
    consumer.assign([Partition(topic, 0, 0)])

    def step() -> None:
        nonlocal received
        for message in consumer.consume(100, timeout=0.1):
            received += len(message.value() or b"")

    rate = measure(lambda: received, step)
    consumer.close()
    assert rate == pytest.approx(MEASURED_RATE, rel=0.1)


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_rate_of_the_java_producer_holds_over_a_minute(bootstrap: str, topic: str) -> None:
    """The quota is set by kafka-configs, and the whole run is measured.

    The burst at its beginning does not matter: the client has to wait until it has left the windows.
    """
    entity = ("--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients", "--entity-name", topic)
    run_tool("configs", *entity, "--add-config", f"producer_byte_rate={MEASURED_RATE}")
    try:
        count, size = 70_000, 1000
        began = time.monotonic()
        output = run_tool(
            "producer-perf-test",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(count), "--record-size", str(size)),
            *("--command-property", f"client.id={topic}", "delivery.timeout.ms=240000"),
        )
        elapsed_s = time.monotonic() - began
    finally:
        run_tool("configs", *entity, "--delete-config", "producer_byte_rate")
    rates = [float(found) for found in re.findall(r"([0-9.]+) records/sec", output)]
    assert elapsed_s == pytest.approx(count * size / MEASURED_RATE, rel=0.1), rates
