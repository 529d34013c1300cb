"""A bank that uses transactions: a transfer is two records in two partitions, of which readers see both or none."""

import threading
from collections import defaultdict

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

ACCOUNTS = 4
ABORT_EVERY = 5
_TIMEOUT_S = 30
_STEP_S = 0.005


class Bank:
    """Moves money between accounts, one per partition, until `stop`; aborts every fifth transfer."""

    def __init__(self, address: str, topic: str) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.failure: Exception | None = None
        self._address = address
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            producer = self._new_producer()
            number = 0
            while not self._stop.wait(_STEP_S):
                number += 1
                try:
                    self._transfer(producer, number)
                except KafkaException as error:
                    producer = self._recover(producer, number, error)
        except Exception as error:
            self.failure = error

    def _new_producer(self) -> Producer:
        """Create the next instance of the producer, which aborts an open transaction of the one before."""
        producer = Producer({"bootstrap.servers": self._address, "transactional.id": "bank", "log_level": 0})
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def _transfer(self, producer: Producer, number: int) -> None:
        source, amount = number % ACCOUNTS, 1 + number % 9
        target = (source + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS
        producer.begin_transaction()
        producer.produce(self._topic, b"%d %d" % (number, -amount), partition=source)
        producer.produce(self._topic, b"%d %d" % (number, amount), partition=target)
        if number % ABORT_EVERY == 0:
            producer.flush(_TIMEOUT_S)
            producer.abort_transaction(_TIMEOUT_S)
            self.aborted.add(number)
        else:
            producer.commit_transaction(_TIMEOUT_S)
            self.committed.add(number)

    def _recover(self, producer: Producer, number: int, failure: KafkaException) -> Producer:
        if not failure.args[0].txn_requires_abort():
            return self._new_producer()
        producer.abort_transaction(_TIMEOUT_S)
        self.aborted.add(number)
        return producer


def read_transfers(address: str, topic: str, isolation_level: str) -> dict[int, list[int]]:
    """Return the amounts of each transfer, as a reader with this isolation level sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(ACCOUNTS)])
    transfers: dict[int, list[int]] = defaultdict(list)
    ended: set[int | None] = set()
    while len(ended) < ACCOUNTS:
        for message in consumer.consume(1000, 1.0):
            if message.error() is not None:
                ended.add(message.partition())
                continue
            number, amount = map(int, (message.value() or b"").split())
            transfers[number].append(amount)
    consumer.close()
    return transfers
