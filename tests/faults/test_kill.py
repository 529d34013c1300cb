"""Producers run while the broker is killed with SIGKILL again and again on the same port and data directory.

Afterwards every acknowledged record is there, in the order of its producer, and nothing is there twice: recovery
truncates only what was torn, and rebuilds the producers' state, without which a retry would be stored a second time.
"""

import threading
import time
from collections import defaultdict
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess, start_broker

TOPIC = "survivors"
PARTITIONS = 3
TIMEOUT_S = 60
# Enough that segments roll between two kills, and that batches are in flight when the kill comes.
VALUE_FILL = b"." * 1_500
ACKNOWLEDGED_BETWEEN_KILLS = 300


class SteadyProducer:
    """An idempotent producer that never stops; remembers what was acknowledged, by partition."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.count = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 5_000,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Let what is in flight be acknowledged, then end."""
        self._stop.set()
        self._thread.join(TIMEOUT_S * 2)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        index = 0
        while not self._stop.is_set():
            try:
                self._send(index)
                index += 1
            except BufferError:
                self._producer.poll(0.01)
            if index % 20 == 0:
                self._producer.poll(0)
                # A few megabytes a second: the disk shall not fill during the long run.
                self._stop.wait(0.004)
        if self._producer.flush(TIMEOUT_S):
            self.failures.append("not everything was acknowledged after the last restart")

    def _send(self, index: int) -> None:
        value = f"{self.name}:{index}:".encode() + VALUE_FILL
        self._producer.produce(TOPIC, value, partition=index % PARTITIONS, on_delivery=self._delivered)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None and partition is not None and offset is not None  # noqa: PT018
        self.acknowledged[partition].append((int(value.split(b":")[1]), offset))
        self.count += 1


def wait_for_acknowledgements(producers: list[SteadyProducer], more: int) -> None:
    goals = [producer.count + more for producer in producers]
    deadline = time.monotonic() + TIMEOUT_S
    while any(producer.count < goal for producer, goal in zip(producers, goals, strict=True)):
        assert time.monotonic() < deadline, "the producers do not get on"
        assert not any(producer.failures for producer in producers), [producer.failures for producer in producers]
        time.sleep(0.005)


def read_all(bootstrap: str) -> dict[int, list[tuple[str, int, int]]]:
    """What the broker serves, as (producer, index, offset) by partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True, "enable.auto.commit": False}
    )
    found: dict[int, list[tuple[str, int, int]]] = {}
    for partition in range(PARTITIONS):
        start, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), TIMEOUT_S)
        assert start == 0
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        records = found.setdefault(partition, [])
        while not records or records[-1][2] < end - 1:
            messages = consumer.consume(5_000, 1)
            for message in messages:
                error = message.error()
                assert error is None, error
                name, index, _ = (message.value() or b"").split(b":")
                records.append((name.decode(), int(index), message.offset() or 0))
    consumer.close()
    return found


def check(producers: list[SteadyProducer], found: dict[int, list[tuple[str, int, int]]]) -> None:
    for producer in producers:
        assert producer.failures == []
        for partition in range(PARTITIONS):
            stored = [(index, offset) for name, index, offset in found[partition] if name == producer.name]
            indexes = [index for index, _ in stored]
            assert indexes == sorted(set(indexes)), "in order, nothing twice"
            lost = set(producer.acknowledged[partition]) - set(stored)
            assert not lost, f"{len(lost)} acknowledged records are gone: {sorted(lost)[:5]}"


@pytest.mark.parametrize(
    "kills", [4, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(1_200)])], ids=["short", "long"]
)
def test_acknowledged_records_survive_sigkill(tmp_path: Path, kills: int) -> None:
    data_dir = tmp_path / "data"
    broker: BrokerProcess = start_broker(data_dir)
    producers: list[SteadyProducer] = []
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topic = NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": "1048576"})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        producers += [SteadyProducer(broker.address, name) for name in ("first", "second")]
        for _ in range(kills):
            wait_for_acknowledgements(producers, ACKNOWLEDGED_BETWEEN_KILLS)
            broker.kill()
            broker = start_broker(data_dir, port=broker.port)
        wait_for_acknowledgements(producers, ACKNOWLEDGED_BETWEEN_KILLS)
        for producer in producers:
            producer.stop()
        check(producers, read_all(broker.address))
        assert broker.stop() == 0
    finally:
        for producer in producers:
            producer.stop()
        if broker.process.poll() is None:
            broker.kill()
