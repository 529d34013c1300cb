"""Workers of the bank that use Rookery's synchronous client. `bank_worker` starts them.

A call that timed out is made again, as the documentation of `max.block.ms` demands. After any other error the
transaction is aborted; if that fails too, a new producer with the same transactional id is created.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from rookery.base.errors import RookeryError
from rookery.client import ApiError, ConsumerGroupMetadata, ConsumerRecord, ErrorCode, TopicPartition
from rookery.client.sync import Consumer, Producer
from tests.faults.bank import REQUESTS, Posting, decode_transfer
from tests.faults.bank_worker import (
    ABORT_PART,
    CALL_TIMEOUT_S,
    CALLS_MAX,
    CLIENT_SETTINGS,
    GROUP,
    REQUESTS_MAX,
    SESSION_TIMEOUT_MS,
    Options,
    Worker,
)


class OwnWorker(Worker):
    failure = RookeryError

    def __init__(self, options: Options) -> None:
        self._producer: Producer[bytes, bytes] | None = None
        super().__init__(options)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: ConsumerGroupMetadata) -> None:
        _retry(partial(self._own.send_offsets_to_transaction, offsets, group))

    @property
    def _own(self) -> Producer[bytes, bytes]:
        assert self._producer is not None
        return self._producer

    def _take_over(self) -> None:
        if self._producer is not None:
            self._producer.close(0)
        self._producer = Producer(
            {
                **CLIENT_SETTINGS,
                "bootstrap.servers": self._options.bootstrap,
                "transactional.id": self._options.name,
                "transaction.timeout.ms": self._timeout_ms,
                "max.block.ms": int(CALL_TIMEOUT_S * 1000),
                "linger.ms": 0,
            }
        )
        _retry(self._producer.init_transactions)

    def _fill(self, records: Iterable[Posting]) -> None:
        self._own.begin_transaction()
        for posting in records:
            topic, partition = posting.place
            self._own.send(topic, posting.encode(), key=str(posting.account).encode(), partition=partition)
        self._own.flush(CALL_TIMEOUT_S)

    def _commit(self) -> None:
        _retry(self._own.commit_transaction)

    def _abort_transaction(self) -> None:
        _retry(self._own.abort_transaction)


class OwnClerk:
    """Consumes requests and makes their transfers. Rebalances happen only in a poll, never during a transaction."""

    def __init__(self, worker: OwnWorker, bootstrap: str) -> None:
        self._worker = worker
        self._consumer: Consumer[bytes, bytes] = Consumer(
            {
                **CLIENT_SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.max.wait.ms": 100,
            }
        )
        self._consumer.subscribe([REQUESTS])

    def run(self) -> None:
        while not self._worker.must_stop:
            records = self._consumer.poll(0.2, max_records=REQUESTS_MAX)
            if records and not self._apply(records):
                self._go_back()
        self._consumer.close()

    def _apply(self, records: list[ConsumerRecord[bytes, bytes]]) -> bool:
        offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        transfers = [decode_transfer(record.value or b"") for record in records]
        will_abort = self._worker.random.random() < ABORT_PART
        finish = partial(self._worker.send_offsets, offsets, self._consumer.group_metadata())
        return self._worker.transact(transfers, finish, will_abort=will_abort)

    def _go_back(self) -> None:
        """Go back to the committed offsets, whatever the outcome: uncommitted requests are consumed again."""
        while not self._worker.must_stop and (assigned := self._consumer.assignment()):
            try:
                committed = self._consumer.committed(assigned, timeout_s=CALL_TIMEOUT_S)
            except ApiError:
                # The broker is down, or offsets of a transaction are pending. Poll meanwhile: the group may rebalance.
                self._consumer.poll(0.05, max_records=1)
                continue
            for tp in assigned:
                if tp in committed:
                    self._consumer.seek(tp, committed[tp])
                else:
                    self._consumer.seek_to_beginning(tp)
            return


def _retry(call: Callable[[], None]) -> None:
    for _ in range(CALLS_MAX - 1):
        try:
            return call()
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
    return call()
