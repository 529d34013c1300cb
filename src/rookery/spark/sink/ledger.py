"""Stores a sink's decisions: the last record with the sink's key in a compacted topic.

`Ledger` is one driver's access for one sink. The first call takes the sink over: it initializes a new producer with the
sink's transactional id, which fences older drivers and ends their unfinished writes, and reads the sink's last entry.
The entry is then cached as long as each write succeeds; after a write that failed, or may have failed, the next call
takes over again. Entries are written in transactions, so that only the current owner of the id can write them.

Reading ends where the topic ended when the sink was taken over. Open transactions of other sinks in the same partition
delay it. They last milliseconds, and after a crash at most `_TRANSACTION_TIMEOUT_MS`.

All methods run on the clients' event loop. `committer` calls this module.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin import LATEST, Admin, NewTopic
from rookery.client.consume.consumer import Consumer
from rookery.client.errors import ProducerFencedError
from rookery.client.produce.partitioners import partition_for_key
from rookery.client.produce.producer import Producer
from rookery.client.settings.admin import ADMIN_KEYS
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.client.settings.producer import PRODUCER_KEYS
from rookery.spark.sink.commit_protocol import Entry, SinkError
from rookery.spark.sink.ledger_records import decode_entry, encode_entry
from rookery.spark.sink.names import decisions_id

_PARTITION_COUNT: Final = 8
# Small segments are compacted soon, so that a starting driver has little to read.
_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}
_TRANSACTION_TIMEOUT_MS: Final = 10_000
_READ_TIMEOUT_S: Final = 60.0
# The entry for tens of thousands of tasks is a large record, so a larger limit of the user also applies here.
_SIZE_KEY: Final = "max.request.size"
_POLL_S: Final = 0.5
# Errors of a producer that was fenced, whose transaction timed out, or whose id has expired (idle for a week).
_LOCKED_OUT: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)

# Called with the name of each step of a commit. Tests use it to kill or pause the driver there.
StepHook: TypeAlias = Callable[[str], Awaitable[None]]


async def no_step_hook(step: str) -> None:
    """The default hook: do nothing."""


class LockedOutError(Exception):
    """Another driver may have taken the sink over, so the cached entry may be out of date."""


class Ledger:
    """The ledger entry of one sink. `config` has the keys of a producer; those that all clients share are used."""

    def __init__(self, config: Mapping[str, str], topic: str, sink: str) -> None:
        self.sink = sink
        self._topic = topic
        self._config = {
            key: value
            for key, value in config.items()
            if key in ADMIN_KEYS and key in CONSUMER_KEYS and key in PRODUCER_KEYS
        }
        self._size_config = {_SIZE_KEY: config[_SIZE_KEY]} if _SIZE_KEY in config else {}
        self.admin = Admin(self._config)
        self._producer: Producer[bytes, bytes] | None = None
        self._partition: TopicPartition | None = None
        self._entry: Entry | None = None

    @property
    def is_held(self) -> bool:
        """Whether `entry` returns the cached entry. Another driver may have taken over; only a write detects that."""
        return self._producer is not None

    async def entry(self) -> Entry | None:
        """Return the sink's last entry, or None if it has none."""
        if self._producer is None:
            await self._take_over()
        return self._entry

    async def write(self, entry: Entry | None, step: StepHook) -> None:
        """Write an entry; None deletes it. Raises LockedOutError. After any error, `entry` takes over again."""
        producer, partition = self._producer, self._partition
        assert producer is not None, "entry() must be called before write()"
        assert partition is not None
        value = None if entry is None else encode_entry(entry)
        try:
            producer.begin_transaction()
            sent = await producer.send(partition.topic, value, key=self.sink.encode(), partition=partition.partition)
            await step("written")
            await producer.commit_transaction()
            await sent
        except BaseException as error:
            await self.release()
            if isinstance(error, ProducerFencedError) or (isinstance(error, ApiError) and error.code in _LOCKED_OUT):
                raise LockedOutError(str(error)) from error
            raise
        self._entry = entry

    async def release(self) -> None:
        """Drop the cached entry and the producer.

        An unfinished write is left to the next takeover, which completes or aborts it; its outcome is known only then.
        """
        producer, self._producer, self._entry = self._producer, None, None
        if producer is not None:
            await producer.close(0)

    async def close(self) -> None:
        await self.release()
        await self.admin.close()

    async def _take_over(self) -> None:
        self._partition = await self._find_partition()
        producer: Producer[bytes, bytes] = Producer(
            {
                **self._config,
                **self._size_config,
                "transactional.id": decisions_id(self.sink),
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "compression.type": "gzip",
            }
        )
        try:
            await producer.init_transactions()
            self._entry = await self._read(self._partition)
        except BaseException:
            await producer.close(0)
            raise
        self._producer = producer

    async def _find_partition(self) -> TopicPartition:
        """Return the partition of the sink's key, creating the topic if it does not exist.

        The number of partitions must never change: entries would be looked up in the wrong partition.
        """
        (topic,) = await self.admin.describe_topics([self._topic])
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create()
            count = _PARTITION_COUNT
        elif topic.error is not ErrorCode.NONE:
            raise ApiError(topic.error, f"ledgerTopic {self._topic}")
        else:
            count = len(topic.partitions)
        return TopicPartition(self._topic, partition_for_key(self.sink.encode(), count))

    async def _create(self) -> None:
        wanted = NewTopic(self._topic, _PARTITION_COUNT, configs=_TOPIC_CONFIGS)
        (created,) = await self.admin.create_topics([wanted])
        if created.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise SinkError(
                f"the sink's ledger cannot be created: {created.error.name}, {created.message}. Create the topic "
                f"{self._topic} with cleanup.policy=compact, or set the option ledgerTopic to another topic"
            )

    async def _read(self, partition: TopicPartition) -> Entry | None:
        end = (await self.admin.list_offsets({partition: LATEST}))[partition]
        if end.error is not ErrorCode.NONE:
            raise ApiError(end.error, f"ledgerTopic, partition {partition}")
        value: bytes | None = None
        config = {**self._config, "isolation.level": "read_committed", "enable.auto.commit": "false"}
        async with Consumer[bytes, bytes](config) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            try:
                async with asyncio.timeout(_READ_TIMEOUT_S):
                    while await consumer.position(partition) < end.offset:
                        for record in await consumer.poll(_POLL_S):
                            if record.key == self.sink.encode():
                                value = record.value
            except TimeoutError:
                raise SinkError(
                    f"ledgerTopic, partition {partition} cannot be read up to {end.offset} within "
                    f"{_READ_TIMEOUT_S:g} s: look for an open transaction there (rookery transactions list), or use "
                    "another ledgerTopic"
                ) from None
        return None if value is None else decode_entry(self.sink, value)
