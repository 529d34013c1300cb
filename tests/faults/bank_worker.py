"""A worker of the bank, in a process that may be killed at any time: `python -m tests.faults.bank_worker {options}`.

    teller    makes random transfers, one transaction after the other; some are aborted on purpose
    clerk     consumes requests and makes their transfers, with the offsets in the same transaction
    drifter   a teller that waits before it commits, about as long as its transaction time-out
    appender  writes to the same four partitions in every transaction, and soon drops unacknowledged records

The workers in this module use librdkafka and follow its rules; those in `bank_own_worker` use Rookery's client. A call
whose error is retriable is made again, a few times. After any other error the transaction is aborted. If that fails too
(a fenced producer, a fatal error), a new producer with the same transactional id is created, and the outcome of the
transaction is unknown.
"""

import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.faults.bank import (
    ABORTED,
    ABORTING,
    ACCOUNTS,
    BEGUN,
    COMMITTED,
    FAILED,
    REQUESTS,
    Journal,
    Posting,
    Transfer,
    decode_transfer,
    postings,
)

CONFLUENT, ROOKERY = "confluent", "rookery"
TELLER, CLERK, DRIFTER, APPENDER = "teller", "clerk", "drifter", "appender"
GROUP = "bank-clerks"
CALL_TIMEOUT_S = 10.0
CALLS_MAX = 3
ABORT_PART = 0.2
TRANSFERS_MAX = 3
REQUESTS_MAX = 20
AMOUNT_MAX = 100
TRANSACTION_TIMEOUT_MS = 20_000
DRIFTER_TIMEOUT_MS = 2_000
DAWDLE_S = (0.5, 4.0)
# An appender aborts a fifth of its transactions on purpose, half of them without waiting for acknowledgements.
ABORTED_APPENDS_PART, EARLY_ABORT_PART = 0.1, 0.1
PATIENCE_S = (0.02, 0.6)
SESSION_TIMEOUT_MS = 2_000
CLIENT_SETTINGS: dict[str, Any] = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the process, on its command line as JSON."""

    client: str
    role: str
    name: str
    # How often the worker was started before: it makes the names of its transactions unique.
    generation: int
    bootstrap: str
    journal: str
    seed: int


class Worker:
    """Makes transactions with one transactional id, one after the other. A subclass has the client."""

    # The exception type of the client.
    failure: type[Exception]

    def __init__(self, options: Options) -> None:
        self.random = random.Random(f"{options.seed}/{options.name}/{options.generation}")
        self.must_stop = False
        self._options = options
        self._journal = Journal(Path(options.journal))
        self._count = 0
        self._open()

    def transact(
        self, transfers: Sequence[Transfer], finish: Callable[[], None] = lambda: None, *, will_abort: bool = False
    ) -> bool:
        """Make the transfers in one transaction; returns whether its commit was confirmed."""
        self._count += 1
        name = f"{self._options.name}.{self._options.generation}.{self._count}"
        self._journal.note(ABORTING if will_abort else BEGUN, name)
        try:
            self._fill(postings(name, transfers))
            finish()
            if not will_abort:
                self._commit()
                self._journal.note(COMMITTED, name)
                return True
        except self.failure as error:
            self._journal.note(FAILED, name, repr(error))
        self._abort(name)
        return False

    def _abort(self, name: str) -> None:
        try:
            self._abort_transaction()
            self._journal.note(ABORTED, name)
        except self.failure as error:
            self._journal.note(FAILED, name, repr(error))
            self._open()

    def _open(self) -> None:
        """Take over the transactional id, which ends an open transaction of the instance before."""
        while True:
            try:
                return self._take_over()
            except self.failure as error:
                self._journal.note(FAILED, "init", repr(error))

    @property
    def _timeout_ms(self) -> int:
        return DRIFTER_TIMEOUT_MS if self._options.role == DRIFTER else TRANSACTION_TIMEOUT_MS

    def _take_over(self) -> None:
        raise NotImplementedError

    def _fill(self, records: Iterable[Posting]) -> None:
        """Begin a transaction, and wait until all records are written, so that an abort has something to abort."""
        raise NotImplementedError

    def _commit(self) -> None:
        raise NotImplementedError

    def _abort_transaction(self) -> None:
        raise NotImplementedError


class ConfluentWorker(Worker):
    failure = KafkaException

    def send_offsets(self, offsets: list[TopicPartition], metadata: object) -> None:
        _retry(lambda timeout_s: self._producer.send_offsets_to_transaction(offsets, metadata, timeout_s))

    def _take_over(self) -> None:
        producer = Producer(
            {
                **CLIENT_SETTINGS,
                "bootstrap.servers": self._options.bootstrap,
                "transactional.id": self._options.name,
                "transaction.timeout.ms": self._timeout_ms,
                "linger.ms": 0,
            }
        )
        _retry(producer.init_transactions)
        self._producer = producer

    def _fill(self, records: Iterable[Posting]) -> None:
        self._producer.begin_transaction()
        for posting in records:
            topic, partition = posting.place
            self._producer.produce(topic, posting.encode(), str(posting.account), partition=partition)
        self._producer.flush(CALL_TIMEOUT_S)

    def _commit(self) -> None:
        _retry(self._producer.commit_transaction)

    def _abort_transaction(self) -> None:
        _retry(self._producer.abort_transaction)


class Appender(ConfluentWorker):
    """Aborts with unacknowledged batches in its queue: librdkafka then reuses their sequence numbers."""

    def _fill(self, records: Iterable[Posting]) -> None:
        self._producer.begin_transaction()
        for posting in records:
            topic, partition = posting.place
            self._producer.produce(topic, posting.encode(), str(posting.account), partition=partition)
        aborts_early = self.random.random() < EARLY_ABORT_PART
        left = self._producer.flush(0.0 if aborts_early else self.random.uniform(*PATIENCE_S))
        if left or aborts_early:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records are not acknowledged"))


def _retry(call: Callable[[float], None]) -> None:
    for _ in range(CALLS_MAX - 1):
        try:
            return call(CALL_TIMEOUT_S)
        except KafkaException as error:
            if not _reason(error).retriable():
                raise
    return call(CALL_TIMEOUT_S)


def _reason(error: KafkaException) -> KafkaError:
    reason = error.args[0]
    assert isinstance(reason, KafkaError)
    return reason


def run_teller(worker: Worker, dawdle_s: tuple[float, float] = (0.0, 0.0)) -> None:
    count = 0
    while not worker.must_stop:
        transfers = []
        for _ in range(worker.random.randint(1, TRANSFERS_MAX)):
            count += 1
            debited, credited = worker.random.sample(range(ACCOUNTS), 2)
            transfers.append(Transfer(f"own-{count}", debited, credited, worker.random.randint(1, AMOUNT_MAX)))
        pause_s = worker.random.uniform(*dawdle_s)
        will_abort = worker.random.random() < ABORT_PART
        worker.transact(transfers, partial(time.sleep, pause_s), will_abort=will_abort)


def run_appender(worker: Worker) -> None:
    """Make transfers between accounts 0 to 3, which are in four partitions of two topics."""
    while not worker.must_stop:
        transfers = [Transfer(f"append-{debited}", debited, debited + 1, 1) for debited in (0, 2)]
        worker.transact(transfers, will_abort=worker.random.random() < ABORTED_APPENDS_PART)


class Clerk:
    """Consumes requests and makes their transfers."""

    def __init__(self, worker: ConfluentWorker, bootstrap: str) -> None:
        self._worker = worker
        self._rebalanced = False
        self._consumer = Consumer(
            {
                **CLIENT_SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        # With these callbacks, rebalances happen only while this consumer polls, never during a transaction.
        self._consumer.subscribe([REQUESTS], on_assign=self._note, on_revoke=self._note, on_lost=self._note)

    def run(self) -> None:
        while not self._worker.must_stop:
            self._rebalanced = False
            messages = [each for each in self._consumer.consume(REQUESTS_MAX, 0.2) if each.error() is None]
            if messages and (self._rebalanced or not self._apply(messages)):
                self._go_back()
        self._consumer.close()

    def _note(self, *_: object) -> None:
        """Record a rebalance: the messages of the same call may belong to partitions that are no longer assigned."""
        self._rebalanced = True

    def _apply(self, messages: Sequence[Message]) -> bool:
        offsets, metadata = _offsets_after(messages), self._consumer.consumer_group_metadata()
        transfers = [decode_transfer(message.value() or b"") for message in messages]
        will_abort = self._worker.random.random() < ABORT_PART
        return self._worker.transact(
            transfers, partial(self._worker.send_offsets, offsets, metadata), will_abort=will_abort
        )

    def _go_back(self) -> None:
        """Go back to the committed offsets, whatever the outcome: uncommitted requests are consumed again."""
        while not self._worker.must_stop and (assigned := self._consumer.assignment()):
            try:
                self._consumer.assign(self._consumer.committed(assigned, CALL_TIMEOUT_S))
                return
            except KafkaException:
                # The broker is down, or offsets of a transaction are pending. Poll meanwhile: the group may rebalance.
                self._consumer.consume(1, 0.05)


def _offsets_after(messages: Sequence[Message]) -> list[TopicPartition]:
    last: dict[int, int] = {}
    for message in messages:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        last[partition] = offset
    return [TopicPartition(REQUESTS, partition, offset + 1) for partition, offset in last.items()]


def start_worker(options: Options) -> tuple[Worker, Callable[[], None]]:
    """Return the worker, and the function that runs it."""
    if options.client == ROOKERY:
        # Each process has one client.
        from tests.faults.bank_own_worker import OwnClerk, OwnWorker

        own = OwnWorker(options)
        worker: Worker = own
        serve = lambda: OwnClerk(own, options.bootstrap).run()  # noqa: E731
    elif options.role == APPENDER:
        worker = Appender(options)
        return worker, partial(run_appender, worker)
    else:
        confluent = ConfluentWorker(options)
        worker = confluent
        serve = lambda: Clerk(confluent, options.bootstrap).run()  # noqa: E731
    if options.role != CLERK:
        serve = partial(run_teller, worker, DAWDLE_S if options.role == DRIFTER else (0.0, 0.0))
    return worker, serve


def main() -> None:
    worker, work = start_worker(Options(**json.loads(sys.argv[1])))

    def stop(*_: object) -> None:
        worker.must_stop = True

    signal.signal(signal.SIGTERM, stop)
    work()


if __name__ == "__main__":
    main()
