"""A producer drops an unacknowledged batch with its transaction, and gives its next batch the same sequence number.

librdkafka does so: a batch whose connection broke returns to its queue, an abort purges the queue, and the numbers of
the purged batches are used again. If the broker has written the batch, the number belongs to the aborted transaction.
If the broker treated the next batch as a retry, it would acknowledge it without storing it: its transaction would be
torn.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch
from tests.conformance.players import create_topic
from tests.conformance.transactors import read_with_confluent
from tests.support.broker import BrokerProcess, start_broker
from tests.support.waiting import eventually, expect
from tests.support.wire import WireClient, request_frame

TOPIC = "orders"
TRANSACTIONAL_ID = "t"
SETTINGS = ("transaction.state.log.num.partitions=1",)
LAST_PARTITION = 3
PRODUCE_VERSIONS = {10: ErrorCode.UNKNOWN_PRODUCER_ID, 11: ErrorCode.TRANSACTION_ABORTABLE}


class ClassicProducer:
    """Sends each request of the classic protocol, with the sequence numbers that the test chooses."""

    def __init__(self, address: str, produce_version: int) -> None:
        self._version = produce_version
        self.connect(address)

    def connect(self, address: str) -> None:
        self._wire = WireClient(address)
        self._repeat(
            lambda: self._wire.call(
                ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[TRANSACTIONAL_ID]
            ).coordinators[0]
        )

    def close(self) -> None:
        self._wire.socket.close()

    def init(self, producer_id: int = -1, epoch: int = -1) -> None:
        answer = self._repeat(
            lambda: self._wire.call(
                ApiKey.INIT_PRODUCER_ID,
                4,
                transactional_id=TRANSACTIONAL_ID,
                transaction_timeout_ms=60_000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self) -> None:
        def ask() -> Message:
            response = self._wire.call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id=TRANSACTIONAL_ID,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[Message(name=TOPIC, partitions=list(range(LAST_PARTITION + 1)))],
            )
            code = max(
                row.partition_error_code for row in response.results_by_topic_v3_and_below[0].results_by_partition
            )
            return Message(error_code=code)

        self._repeat(ask)

    def send(self, partition: int, sequence: int, value: bytes) -> None:
        """Send a batch without waiting for the response."""
        self._wire.send(request_frame(ApiKey.PRODUCE, self._version, **self._fields(partition, sequence, value)))

    def produce(self, partition: int, sequence: int, value: bytes) -> Message:
        self.send(partition, sequence, value)
        response = self._wire.read_response(ApiKey.PRODUCE, self._version)
        answer = response.responses[0].partition_responses[0]
        assert isinstance(answer, Message)
        return answer

    def end(self, *, commit: bool) -> None:
        self._repeat(
            lambda: self._wire.call(
                ApiKey.END_TXN,
                3,
                transactional_id=TRANSACTIONAL_ID,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
        )

    def _fields(self, partition: int, sequence: int, value: bytes) -> dict[str, Any]:
        data = build_batch(
            [Record(0, 1_700_000_000_000, None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topic = Message(name=TOPIC, partition_data=[Message(index=partition, records=bytes(data))])
        return {"transactional_id": TRANSACTIONAL_ID, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}

    @staticmethod
    def _repeat(ask: Callable[[], Message]) -> Message:
        """Send a request again while the coordinator is loading or still ends the previous transaction."""
        answers: list[Message] = []

        def is_final() -> bool:
            answers.append(ask())
            return not ErrorCode(answers[-1].error_code).retriable

        eventually(is_final, lambda: str(answers[-1]))
        assert answers[-1].error_code == ErrorCode.NONE
        return answers[-1]


def written(broker: BrokerProcess, partition: int) -> list[bytes]:
    return read_with_confluent(broker.address, TOPIC, partition, "read_uncommitted")


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_number_of_an_aborted_transaction_is_not_acknowledged(tmp_path: Path, version: int) -> None:
    """Repeat the steps of a real log: epoch and sequence 216 are the same in the aborted transaction and the next."""
    with start_broker(tmp_path / "data", *SETTINGS) as broker:
        create_topic(broker.address, TOPIC, LAST_PARTITION + 1)
        producer = ClassicProducer(broker.address, version)
        producer.init()
        producer.add()
        for partition in range(LAST_PARTITION + 1):
            for sequence in range(216):
                assert producer.produce(partition, sequence, b"%d" % sequence).error_code == ErrorCode.NONE
        producer.end(commit=True)
        producer.add()
        producer.send(LAST_PARTITION, 216, b"of 227")
        # The test does not read from the connection, so the acknowledgement is lost.
        eventually(lambda: b"of 227" in written(broker, LAST_PARTITION), "the batch is written")
        broker.kill()
        producer.close()
    with start_broker(tmp_path / "data", *SETTINGS, port=broker.port) as broker:
        producer.connect(broker.address)
        producer.end(commit=False)
        producer.add()
        for partition in range(LAST_PARTITION):
            assert producer.produce(partition, 216, b"of 228").error_code == ErrorCode.NONE
        refused = producer.produce(LAST_PARTITION, 216, b"of 228")
        assert (refused.error_code, refused.base_offset) == (PRODUCE_VERSIONS[version], -1)
        # Recover like clients (KIP-360): a new epoch, which also aborts the open transaction.
        former = producer.epoch
        producer.init(producer.producer_id, former)
        assert producer.epoch == former + 1
        producer.add()
        for partition in range(LAST_PARTITION + 1):
            assert producer.produce(partition, 0, b"of 229").error_code == ErrorCode.NONE
        producer.end(commit=True)
        before = [b"%d" % sequence for sequence in range(216)]
        for partition in range(LAST_PARTITION + 1):
            expect(partial(read_with_confluent, broker.address, TOPIC, partition), [*before, b"of 229"])
        producer.close()
