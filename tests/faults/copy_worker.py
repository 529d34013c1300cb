"""Copies a topic in transactions, in a process that may be killed: `python -m tests.faults.copy_worker {options}`.

The copied records and the group's offsets are committed together. After an error the copier goes back to the committed
offsets. If its producer cannot continue, because another process took over its transactional id or the error is fatal,
it creates a new one. Each confirmed commit is a line of its journal.
"""

import asyncio
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rookery.client import ApiError, Consumer, ConsumerRecords, Producer
from rookery.client.errors import ClientStateError, FatalProducerError, ProducerFencedError
from tests.faults.bank import ABORTED, COMMITTED, FAILED, Journal
from tests.faults.numbered import HASTY

SOURCE, TARGET, GROUP = "source", "target", "copiers"
_RECORDS_MAX = 30
_ABORTED_PART = 0.1
_SESSION_TIMEOUT_MS = 2_000
_TRANSACTION_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the process, on its command line as JSON."""

    name: str
    # How often the copier was started before.
    generation: int
    bootstrap: str
    journal: str
    seed: int
    group_protocol: str


class Copier:
    def __init__(self, options: Options) -> None:
        self.must_stop = False
        self._options = options
        self._random = Random(f"{options.seed}/{options.name}/{options.generation}")
        self._journal = Journal(Path(options.journal))
        self._transaction_count = 0
        self._producer: Producer[bytes, bytes]

    async def run(self) -> None:
        self._producer = await self._new_producer()
        async with Consumer[bytes, bytes](self._consumer_settings()) as consumer:
            consumer.subscribe([SOURCE])
            while not self.must_stop:
                records = await consumer.poll(0.2, max_records=self._random.randint(1, _RECORDS_MAX))
                if records and not await self._copy(consumer, records):
                    await _go_back(consumer)
        await self._producer.close()

    async def _copy(self, consumer: Consumer[bytes, bytes], records: ConsumerRecords[bytes, bytes]) -> bool:
        """Copy the records in one transaction; returns whether its commit was confirmed."""
        self._transaction_count += 1
        name = f"{self._options.name}.{self._options.generation}.{self._transaction_count}"
        try:
            self._producer.begin_transaction()
            for record in records:
                await self._producer.send(TARGET, record.value, key=record.key, partition=record.partition)
            offsets = {tp: some[-1].offset + 1 for tp, some in records.by_partition().items()}
            await self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if self._random.random() >= _ABORTED_PART:
                await self._producer.commit_transaction()
                self._journal.note(COMMITTED, name)
                return True
        except ApiError as error:
            self._journal.note(FAILED, name, repr(error))
        await self._abort(name)
        return False

    async def _abort(self, name: str) -> None:
        try:
            await self._producer.abort_transaction()
            self._journal.note(ABORTED, name)
        except (ApiError, ClientStateError) as error:
            self._journal.note(FAILED, name, repr(error))
            await self._producer.close(0)
            self._producer = await self._new_producer()

    async def _new_producer(self) -> Producer[bytes, bytes]:
        while True:
            producer: Producer[bytes, bytes] = Producer(
                {
                    **HASTY,
                    "bootstrap.servers": self._options.bootstrap,
                    "transactional.id": self._options.name,
                    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                }
            )
            try:
                await producer.init_transactions()
                return producer
            except ApiError as error:
                self._journal.note(FAILED, "init", repr(error))
                await producer.close(0)
                if isinstance(error, ProducerFencedError | FatalProducerError):
                    raise

    def _consumer_settings(self) -> dict[str, object]:
        settings: dict[str, object] = {
            **HASTY,
            "bootstrap.servers": self._options.bootstrap,
            "group.id": GROUP,
            "group.protocol": self._options.group_protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.max.wait.ms": 100,
        }
        if self._options.group_protocol == "classic":
            settings |= {"session.timeout.ms": _SESSION_TIMEOUT_MS, "heartbeat.interval.ms": _SESSION_TIMEOUT_MS // 10}
        return settings


async def _go_back(consumer: Consumer[bytes, bytes]) -> None:
    """Go back to the committed offsets, whatever the outcome: records that are not committed are consumed again."""
    assigned = consumer.assignment()
    committed = await consumer.committed(assigned)
    for tp in assigned & consumer.assignment():
        if tp in committed:
            consumer.seek(tp, committed[tp])
        else:
            consumer.seek_to_beginning(tp)


async def main() -> None:
    copier = Copier(Options(**json.loads(sys.argv[1])))

    def stop() -> None:
        copier.must_stop = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await copier.run()


if __name__ == "__main__":
    asyncio.run(main())
