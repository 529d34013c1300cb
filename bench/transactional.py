"""Transactions of librdkafka (bench.librdkafka): as many as possible, at intervals, or at scheduled times.

A commit in librdkafka first flushes: it sends the queued records without lingering, waits for the acknowledgements and
then ends the transaction. So a transaction here is begin, records, commit, without a separate flush. An abort drops the
records that are not sent yet, which would leave nothing to abort, so the records are flushed before it.

Every error fails the load, even one that an application would retry. The expected content of the topic is part of the
measurements: the records, and one marker for each transaction in each partition, because every transaction writes to
all of them; one more transaction precedes the measurement.
"""

import time
from collections.abc import Mapping

from bench.librdkafka import ClientError, Messages, flush, new_producer, send
from bench.load import Measurements, await_go, run_action
from bench.paced import due_times, percentiles, wake_punctually

# A commit waits for deliveries, and only their reports wake it; without them it sleeps ten milliseconds at a time. The
# commit also reports failed deliveries.
PRODUCER_SETTINGS = {"delivery.report.only.error": "false"}
_TIMEOUT_MS = 60_000
_CHUNK_BYTES = 240_000
# The size of the Java client's `buffer.memory`: a commit at the end of an interval waits at most for this.
_QUEUE_BYTES = 33_554_432
_POLL_MS = 10


class Transactions:
    """A producer with a transactional id, ready to begin."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        self.client = new_producer(bootstrap, topic, {**PRODUCER_SETTINGS, **settings}, notes_deliveries=False)
        self._library, self._handle = self.client.library, self.client.handle
        self.client.check_error(self._library.rd_kafka_init_transactions(self._handle, _TIMEOUT_MS))

    def begin(self) -> None:
        self.client.check_error(self._library.rd_kafka_begin_transaction(self._handle))

    def commit(self) -> None:
        self.client.check_error(self._library.rd_kafka_commit_transaction(self._handle, _TIMEOUT_MS))

    def abort(self) -> None:
        flush(self.client)
        self.client.check_error(self._library.rd_kafka_abort_transaction(self._handle, _TIMEOUT_MS))

    def run(self, messages: Messages, records: int, *, commit: bool = True) -> None:
        """Run one whole transaction."""
        self.begin()
        send(self.client, messages, records)
        if commit:
            self.commit()
        else:
            self.abort()

    def await_queue_space(self, record_bytes: int) -> None:
        """Wait while the queue is full. It polls the reports, because a record leaves the queue with its report."""
        self._library.rd_kafka_poll(self._handle, 0)
        while self._library.rd_kafka_outq_len(self._handle) * record_bytes > _QUEUE_BYTES:
            self._library.rd_kafka_poll(self._handle, _POLL_MS)

    def close(self) -> None:
        if self.client.errors:
            raise ClientError(f"{len(self.client.errors)} records were not delivered: {self.client.errors[0]}")
        self.client.close()


def produce(
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    records: int,
    transactions: int,
    commit: bool,
    settings: Mapping[str, str],
) -> Measurements:
    """Run `transactions` transactions with `records` records each, one after the other, without pauses."""
    messages = Messages(record_bytes, partitions, records)
    producer = _warm(bootstrap, topic, messages, settings)
    await_go()
    started_s = time.perf_counter()
    for _ in range(transactions):
        producer.run(messages, records, commit=commit)
    elapsed_s = time.perf_counter() - started_s
    producer.close()
    return {
        "elapsed_s": elapsed_s,
        "transactions": transactions,
        "bytes": transactions * records * record_bytes,
        "offsets": _offsets(messages, partitions, records=transactions * records, transactions=transactions),
    }


def commit_every(
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    interval_s: float,
    duration_s: float,
    settings: Mapping[str, str],
) -> Measurements:
    """Send as fast as the client accepts records, and commit at the end of each interval."""
    messages = Messages(record_bytes, partitions, _CHUNK_BYTES // record_bytes)
    producer = _warm(bootstrap, topic, messages, settings)
    await_go()
    started_s = time.perf_counter()
    chunks = transactions = 0
    while time.perf_counter() < started_s + duration_s:
        chunks += _fill_interval(producer, messages, record_bytes, interval_s)
        transactions += 1
    elapsed_s = time.perf_counter() - started_s
    producer.close()
    return {
        "elapsed_s": elapsed_s,
        "bytes": chunks * messages.count * record_bytes,
        "offsets": _offsets(messages, partitions, records=chunks * messages.count, transactions=transactions),
    }


def _fill_interval(producer: Transactions, messages: Messages, record_bytes: int, interval_s: float) -> int:
    """Run one transaction; returns how often the messages were sent in it."""
    chunks = 0
    until_s = time.perf_counter() + interval_s
    producer.begin()
    while not chunks or time.perf_counter() < until_s:
        producer.await_queue_space(record_bytes)
        send(producer.client, messages, messages.count)
        chunks += 1
    producer.commit()
    return chunks


def commit_paced(
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    records: int,
    transactions: int,
    rate: int,
    skipped: int,
    settings: Mapping[str, str],
) -> Measurements:
    """Return percentiles in milliseconds from the due time of a transaction to its commit, without the first ones."""
    wake_punctually()
    messages = Messages(record_bytes, partitions, records)
    producer = _warm(bootstrap, topic, messages, settings)
    await_go()
    late_ns = []
    for due_ns in due_times(time.monotonic_ns(), transactions, rate):
        producer.run(messages, records)
        late_ns.append(time.monotonic_ns() - due_ns)
    producer.close()
    offsets = _offsets(messages, partitions, records=transactions * records, transactions=transactions)
    return {**percentiles(late_ns[skipped:]), "offsets": offsets}


def _warm(bootstrap: str, topic: str, messages: Messages, settings: Mapping[str, str]) -> Transactions:
    """Return a producer that has run one transaction, so that it knows its coordinator and the leaders."""
    producer = Transactions(bootstrap, topic, settings)
    producer.run(messages, messages.count)
    return producer


def _offsets(messages: Messages, partitions: int, *, records: int, transactions: int) -> int:
    """Return the number of offsets in the topic after these transactions and the one before them."""
    return messages.count + records + (1 + transactions) * partitions


if __name__ == "__main__":
    run_action({"produce": produce, "commit_every": commit_every, "commit_paced": commit_paced})
