"""Transactions of foreign clients that are written continuously while brokers fail, and the check of the result."""

import threading
import time
from collections.abc import Callable

from tests.conformance.interfaces import Transactor
from tests.faults.producers import TIMEOUT_S, read_partition

_ABORTED_EACH = 3


class SteadyTransactions:
    """Writes one record to each partition in every transaction, and aborts each third one.

    After an error the outcome of the transaction is unknown. A new producer with the same transactional id then ends it
    and continues with the next one, as an application that was restarted does.
    """

    def __init__(self, connect: Callable[[], Transactor], topic: str, *, partitions: int) -> None:
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self._connect = connect
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions")
        self._thread.start()

    def stop(self) -> None:
        """End the current transaction, then the writer."""
        self._stop.set()
        self._thread.join(TIMEOUT_S * 3)
        assert not self._thread.is_alive()

    def wait(self, more: int) -> None:
        """Wait until more transactions are committed."""
        goal, deadline = len(self.committed) + more, time.monotonic() + TIMEOUT_S
        while len(self.committed) < goal:
            assert self._thread.is_alive(), "the writer failed"
            assert time.monotonic() < deadline, f"no progress after {len(self.unknown)} errors"
            time.sleep(0.005)

    def _run(self) -> None:
        number, producer = 0, self._connect()
        while not self._stop.is_set():
            number += 1
            try:
                self._write(producer, number)
            except Exception:
                self.unknown.append(number)
                producer.close()
                producer = self._connect()
        producer.close()

    def _write(self, producer: Transactor, number: int) -> None:
        producer.begin()
        for partition in range(self._partitions):
            producer.send(self._topic, partition, b"%d" % number)
        if number % _ABORTED_EACH == 0:
            producer.abort()
            self.aborted.append(number)
        else:
            producer.commit()
            self.committed.append(number)

    def check(self, bootstrap: str) -> None:
        """Check what consumers with read_committed see: whole transactions, each committed one once, in order."""
        seen = [
            [int(record.value) for record in read_partition(bootstrap, self._topic, partition)]
            for partition in range(self._partitions)
        ]
        assert all(numbers == seen[0] for numbers in seen), "a transaction is torn"
        assert seen[0] == sorted(set(seen[0])), "in order, no transaction twice"
        lost, visible = set(self.committed) - set(seen[0]), set(self.aborted) & set(seen[0])
        assert not lost, f"{len(lost)} committed transactions are gone: {sorted(lost)[:3]}"
        assert not visible, f"{len(visible)} aborted transactions are visible: {sorted(visible)[:3]}"
