"""Rookery's synchronous client with the interfaces of `transactors`."""

from collections.abc import Mapping
from typing import Any

from rookery.client import ApiError, ErrorCode, OffsetAndMetadata, TopicPartition
from rookery.client.errors import ProducerFencedError
from rookery.client.sync import Consumer, Producer
from tests.conformance.interfaces import READ_COMMITTED, FencedError, Partition
from tests.conformance.members import HEARTBEAT_MS, SESSION_MS

TIMEOUT_S = 30
_WAIT_MS = 10


class RookerySource:
    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        self.consumer: Consumer[bytes, bytes] = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": READ_COMMITTED,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        self.consumer.subscribe([topic])

    def take(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        while len(values) < count:
            found = self.consumer.poll(TIMEOUT_S, max_records=count - len(values))
            assert found, f"{len(values)} of {count} records, then none for {TIMEOUT_S} s"
            values += [record.value or b"" for record in found]
        return values

    def positions(self) -> dict[Partition, int]:
        return {(tp.topic, tp.partition): self.consumer.position(tp) for tp in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class RookeryTransactor:
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none") -> None:
        self.producer: Producer[bytes, bytes] = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "compression.type": codec,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        def send() -> None:
            sent = [self.producer.send(topic, value, partition=partition) for value in values]
            for future in sent:
                future.result(TIMEOUT_S)

        self._call(send)

    def send_offsets(self, offsets: Mapping[Partition, int], source: Any) -> None:
        places = {TopicPartition(*place): OffsetAndMetadata(offset) for place, offset in offsets.items()}
        self._call(self.producer.send_offsets_to_transaction, places, source.consumer.group_metadata())

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(0)

    @staticmethod
    def _call(method: Any, *arguments: object) -> None:
        try:
            method(*arguments)
        except ApiError as error:
            # A leader only knows that the epoch is old, as in Java's InvalidProducerEpochException.
            if isinstance(error, ProducerFencedError) or error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
                raise FencedError(str(error)) from error
            raise


def read_with_rookery(bootstrap: str, topic: str, partition: int = 0, isolation: str = READ_COMMITTED) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "isolation.level": isolation, "fetch.max.wait.ms": _WAIT_MS}
    place = TopicPartition(topic, partition)
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        values: list[bytes] = []
        while consumer.position(place) < end:
            values += [record.value or b"" for record in consumer.poll(0.1)]
        return values
