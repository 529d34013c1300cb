"""The broker stops and restarts on the same port while clients run: they recover by themselves."""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.client import Consumer, Producer, RecordMetadata
from rookery.client import TopicPartition as Partition
from tests.conformance.clients import CLIENTS, confluent_consumer, kafka_python_read
from tests.support.broker import BrokerProcess, start_broker

TOPIC = "restarted"
COUNT = 400
TIMEOUT_S = 90

Acknowledge = Callable[[int], None]


def produce_with_confluent(bootstrap: str, acknowledge: Acknowledge) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 200, "log_level": 0}
    )

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        acknowledge(int(message.value() or b""))

    for index in range(COUNT):
        producer.produce(TOPIC, b"%d" % index, partition=0, on_delivery=delivered)
        producer.poll(0.002)
    assert producer.flush(TIMEOUT_S) == 0


def produce_with_aiokafka(bootstrap: str, acknowledge: Acknowledge) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=50
        ) as producer:
            for index in range(COUNT):
                await asyncio.wait_for(producer.send_and_wait(TOPIC, b"%d" % index, partition=0), TIMEOUT_S)
                acknowledge(index)

    asyncio.run(run())


def produce_with_kafka_python(bootstrap: str, acknowledge: Acknowledge) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, reconnect_backoff_max_ms=200)
    for index in range(COUNT):
        producer.send(TOPIC, b"%d" % index, partition=0).get(TIMEOUT_S)
        acknowledge(index)
    producer.close(timeout=TIMEOUT_S)


def produce_with_rookery(bootstrap: str, acknowledge: Acknowledge) -> None:
    def delivered(index: int, sent: "asyncio.Future[RecordMetadata]") -> None:
        sent.result()
        acknowledge(index)

    async def run() -> None:
        producer: Producer[bytes, bytes] = Producer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200})
        async with asyncio.timeout(TIMEOUT_S), producer:
            for index in range(COUNT):
                sent = await producer.send(TOPIC, b"%d" % index, partition=0)
                sent.add_done_callback(partial(delivered, index))
                await asyncio.sleep(0.002)

    asyncio.run(run())


def consume_with_confluent(bootstrap: str, seen: Acknowledge) -> None:
    consumer = confluent_consumer(bootstrap, reconnect_backoff_max_ms=200)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    count = 0
    while count < COUNT:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{count} records, then none"
        # While the broker is down, librdkafka returns messages with an error and without a record.
        if message.error() is None:
            seen(int(message.value() or b""))
            count += 1
    consumer.close()


def consume_with_aiokafka(bootstrap: str, seen: Acknowledge) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None) as consumer:
            consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
            consumer.seek(aiokafka.TopicPartition(TOPIC, 0), 0)
            for _ in range(COUNT):
                seen(int((await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value))

    asyncio.run(run())


def consume_with_kafka_python(bootstrap: str, seen: Acknowledge) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, reconnect_backoff_max_ms=200)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.seek(kafka.TopicPartition(TOPIC, 0), 0)
    for _ in range(COUNT):
        seen(int(kafka_python_read(consumer, 1)[0].value))
    consumer.close()


def consume_with_rookery(bootstrap: str, seen: Acknowledge) -> None:
    async def run() -> None:
        config = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 200}
        consumer: Consumer[bytes, bytes] = Consumer(config)
        async with asyncio.timeout(TIMEOUT_S), consumer:
            consumer.assign([Partition(TOPIC, 0)])
            count = 0
            while count < COUNT:
                for record in await consumer.poll():
                    seen(int(record.value or b""))
                    count += 1

    asyncio.run(run())


PRODUCERS = {
    "confluent": produce_with_confluent,
    "aiokafka": produce_with_aiokafka,
    "kafka-python": produce_with_kafka_python,
    "rookery": produce_with_rookery,
}
CONSUMERS = {
    "confluent": consume_with_confluent,
    "aiokafka": consume_with_aiokafka,
    "kafka-python": consume_with_kafka_python,
    "rookery": consume_with_rookery,
}


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)


class Background:
    """A client that runs in a thread; `result` raises its failure."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._outcome: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._work())
        except BaseException as error:
            self._outcome.append(error)

    @property
    def is_done(self) -> bool:
        return bool(self._outcome)

    def result(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert self._outcome, "the client did not end"
        if isinstance(self._outcome[0], BaseException):
            raise self._outcome[0]


@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["sigterm", "sigkill"])
def test_a_client_recovers_from_a_restart(tmp_path: Path, client: str, end: Callable[[BrokerProcess], int]) -> None:
    acknowledged: list[int] = []
    consumed: list[int] = []
    with start_broker(tmp_path / "data") as broker:
        bootstrap = broker.address
        create_topic(bootstrap)
        producing = Background(lambda: PRODUCERS[client](bootstrap, acknowledged.append))
        consuming = Background(lambda: CONSUMERS[client](bootstrap, consumed.append))
        deadline = time.monotonic() + TIMEOUT_S
        while len(acknowledged) < COUNT // 4 or not consumed:
            assert time.monotonic() < deadline
            assert not producing.is_done or not consuming.is_done
            time.sleep(0.002)
        end(broker)
    with start_broker(tmp_path / "data", port=broker.port):
        producing.result()
        assert acknowledged == list(range(COUNT))
        consuming.result()
        assert consumed == list(range(COUNT))
        for reader in CLIENTS:
            assert [int(sample.value or b"") for sample in reader.consume(bootstrap, TOPIC, COUNT)] == acknowledged
