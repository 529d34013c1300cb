"""Simulated users of a broker: producers that send for a while, readers that read continuously.

They use the real clients on the simulated network. Each has its own host and randomness, and records what it sees in
the history. `new_producer` and `new_consumer` create the clients of all simulated users: the clients use only the
world's clock and randomness.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from random import Random

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicId, TopicName, TopicPartition
from rookery.client import Consumer, ConsumerRecord, Producer, RecordMetadata
from rookery.client.admin import Admin, CreatedTopic, NewTopic
from rookery.client.cluster import Cluster
from tests.simulation.checkers import Fate, History, ReadRecord, Sent, check_renewed_topic
from tests.simulation.world import World

REQUEST_TIMEOUT_S = 4.0
_DELIVERY_TIMEOUT_S = 25.0
_AUDIT_TIMEOUT_S = 30.0
_PAUSE_AFTER_FAILURE_S = 0.2
# The names of the topics that are deleted and created again begin with it.
RENEWED_PREFIX = "draft-"
_REST_CHANCE = 0.2
_REST_S_MAX = 2.0
_RENEWED_READ_S_MAX = 60.0
_SIZES = (0, 10, 100, 1500)
# How long a reader reads before it starts again from the beginning.
_READING_S = (3.0, 40.0)


def new_producer(
    world: World, *, name: str, bootstrap: str, randomness: Random, settings: Mapping[str, object] | None = None
) -> Producer[bytes, bytes]:
    config = _client_config(name, bootstrap, REQUEST_TIMEOUT_S) | {
        "max.block.ms": int(REQUEST_TIMEOUT_S * 1000),
        "delivery.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
    }
    return Producer({**config, **(settings or {})}, clock=world.clock, randomness=randomness)


def new_consumer(
    world: World,
    *,
    name: str,
    bootstrap: str,
    timeout_s: float = REQUEST_TIMEOUT_S,
    settings: Mapping[str, object] | None = None,
) -> Consumer[bytes, bytes]:
    config = _client_config(name, bootstrap, timeout_s) | {
        "default.api.timeout.ms": int(timeout_s * 1000),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return Consumer({**config, **(settings or {})}, clock=world.clock, randomness=world.new_random())


def _client_config(name: str, bootstrap: str, timeout_s: float) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "client.id": name, "request.timeout.ms": int(timeout_s * 1000)}


class ProducerUser:
    """Sends records to random partitions; finished when every record is acknowledged or has failed.

    `may_lose`: acknowledged records may be lost, for example with acks=1.
    """

    def __init__(
        self,
        world: World,
        history: History,
        *,
        name: str,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        settings: Mapping[str, object] | None = None,
        may_lose: bool = False,
    ) -> None:
        self._settings = settings
        self._may_lose = may_lose
        self._world = world
        self._history = history
        self._name = name
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._random = world.new_random()

    async def run(self, record_count: int, mean_pause_s: float) -> None:
        producer = new_producer(
            self._world,
            name=self._name,
            bootstrap=self._bootstrap,
            randomness=self._random,
            settings=self._settings,
        )
        for number in range(record_count):
            # Bursts: most records follow immediately and share a batch.
            if self._random.random() < 0.5:
                await asyncio.sleep(self._random.expovariate(1 / mean_pause_s))
            await self._send(producer, number)
        await producer.close()
        self._world.note("has sent everything")

    async def _send(self, producer: Producer[bytes, bytes], number: int) -> None:
        partition = self._random.choice(self._partitions)
        value = f"{self._name}:{number} ".encode() + b"." * self._random.choice(_SIZES)
        sent = Sent(self._name, number, partition, value, may_be_lost=self._may_lose)
        while True:
            try:
                landed = await producer.send(partition.topic, value, partition=partition.partition)
                break
            except ApiError as error:
                self._world.note(f"cannot send: {error}")
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
        self._history.sent.append(sent)
        landed.add_done_callback(partial(self._settle, sent))

    def _settle(self, sent: Sent, landed: "asyncio.Future[RecordMetadata]") -> None:
        if landed.cancelled() or (error := landed.exception()) is not None:
            reason = "cancelled" if landed.cancelled() else str(error)
            self._world.note(f"{sent.number} for {sent.partition} may be lost: {reason}")
        else:
            sent.fate, sent.offset = Fate.ACKNOWLEDGED, landed.result().offset


class ReaderUser:
    """Reads all partitions from the beginning for a while, repeatedly."""

    def __init__(
        self, world: World, history: History, *, name: str, bootstrap: str, partitions: Sequence[TopicPartition]
    ) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._random = world.new_random()

    async def run(self) -> None:
        while True:
            end_s = self._world.loop.time() + self._random.uniform(*_READING_S)
            try:
                async with new_consumer(self._world, name=self._name, bootstrap=self._bootstrap) as consumer:
                    consumer.assign(self._partitions)
                    while self._world.loop.time() < end_s:
                        for record in await consumer.poll(1.0):
                            self._history.on_read(self._name, as_read(record))
            except ApiError as error:
                self._world.note(f"reads again from the beginning: {error}")
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)


class OperatorUser:
    """Creates a topic from time to time, and deletes some of them with `delete_chance`."""

    name = "operator"

    def __init__(self, world: World, history: History, *, bootstrap: str, delete_chance: float = 0.0) -> None:
        self._world = world
        self._history = history
        self._bootstrap = bootstrap
        self._delete_chance = delete_chance
        self._random = world.new_random()

    async def run(self) -> None:
        for number in count(1):
            await asyncio.sleep(self._random.uniform(0.5, 5))
            topic = NewTopic(name=f"extra-{number}", partitions=self._random.randint(1, 2))
            try:
                await create_topics(self._bootstrap, [topic])
            except ApiError as error:
                # The topic may exist anyway, if the response was lost.
                self._world.note(f"{topic.name} was not confirmed: {error}")
            else:
                self._history.confirmed[topic.name] = topic.partitions
            # Only confirmed ones: the creation of another may still be under way, and follow its deletion.
            if self._delete_chance and self._random.random() < self._delete_chance and self._history.confirmed:
                await self._delete(self._random.choice(sorted(self._history.confirmed)))

    async def _delete(self, topic: TopicName) -> None:
        # From now on it may be gone, even if no response confirms it.
        self._history.confirmed.pop(topic, None)
        try:
            await delete_topics(self._bootstrap, [topic])
        except ApiError as error:
            self._world.note(f"the deletion of {topic} was not confirmed: {error}")
        else:
            self._history.deleted.add(topic)


class RenewingUser:
    """Creates a topic, writes and reads it, deletes it, and creates it again under the same name.

    After a failure it goes on with another name: the topic of the old one may exist or not.
    """

    name = "renewer"

    def __init__(self, world: World, *, bootstrap: str) -> None:
        self._world = world
        self._bootstrap = bootstrap
        self._random = world.new_random()

    async def run(self) -> None:
        topic = f"{RENEWED_PREFIX}1"
        for version in count(1):
            await asyncio.sleep(self._random.uniform(0.2, 2))
            try:
                await self._renew(topic, version)
            except ApiError as error:
                self._world.note(f"leaves version {version} of {topic}: {error}")
                topic = f"{RENEWED_PREFIX}{version + 1}"

    async def _renew(self, topic: TopicName, version: int) -> None:
        (created,) = await create_topics(self._bootstrap, [NewTopic(name=topic, partitions=2)])
        assert created.topic_id is not None
        acknowledged, ends = await self._write(topic, version)
        read = await self._read(ends)
        check_renewed_topic(self._world.violations, f"version {version} of {topic}", acknowledged, read)
        # By its id: a request that arrives late must not delete the successor.
        await delete_topics(self._bootstrap, [created.topic_id])

    async def _write(self, topic: TopicName, version: int) -> tuple[list[bytes], dict[TopicPartition, Offset]]:
        """Write some records; return the acknowledged ones, and the ends of the partitions after them."""
        acknowledged, ends = [], {TopicPartition(topic, index): 0 for index in range(2)}
        async with new_producer(
            self._world, name=self.name, bootstrap=self._bootstrap, randomness=self._random
        ) as producer:
            for number in range(self._random.randint(1, 8)):
                # A topic that lives for a while meets brokers that were down when it was created.
                if self._random.random() < _REST_CHANCE:
                    await asyncio.sleep(self._random.uniform(0, _REST_S_MAX))
                value = f"{topic} version {version}: {number}".encode()
                partition = TopicPartition(topic, self._random.randrange(2))
                landed = await producer.send(topic, value, partition=partition.partition)
                ends[partition] = (await landed).offset + 1
                acknowledged.append(value)
        return acknowledged, ends

    async def _read(self, ends: Mapping[TopicPartition, Offset]) -> list[bytes]:
        """Read all records, at least up to `ends`.

        A broker that is cut off from the others, and does not know its successor, may report an earlier end.
        """
        async with new_consumer(
            self._world, name="auditor", bootstrap=self._bootstrap, timeout_s=_AUDIT_TIMEOUT_S
        ) as consumer:
            found = await consumer.end_offsets(ends)
            known = {partition: max(end, found[partition]) for partition, end in ends.items()}
            try:
                async with asyncio.timeout(_RENEWED_READ_S_MAX):
                    return [record.value for record in await read_up_to(consumer, known)]
            except TimeoutError:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"cannot read up to {known}") from None


@asynccontextmanager
async def open_admin(bootstrap: str) -> AsyncIterator[Admin]:
    cluster = Cluster.at(bootstrap, client_id="operator", timeout_s=REQUEST_TIMEOUT_S)
    try:
        yield Admin.over(cluster)
    finally:
        await cluster.close()


async def create_topics(bootstrap: str, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
    async with open_admin(bootstrap) as admin:
        created = await admin.create_topics(topics)
    for outcome in created:
        outcome.check()
    return created


async def delete_topics(bootstrap: str, topics: Sequence[TopicName | TopicId]) -> None:
    async with open_admin(bootstrap) as admin:
        for outcome in await admin.delete_topics(topics):
            outcome.check()


async def list_topics(bootstrap: str) -> dict[TopicName, int]:
    cluster = Cluster.at(bootstrap, client_id="auditor")
    topics = {topic.name: len(topic.partitions) for topic in await Admin.over(cluster).list_topics()}
    await cluster.close()
    return topics


async def read_everything(world: World, bootstrap: str, partitions: Sequence[TopicPartition]) -> list[ReadRecord]:
    """Return all records of the log, sorted by offset."""
    async with new_consumer(world, name="auditor", bootstrap=bootstrap, timeout_s=_AUDIT_TIMEOUT_S) as consumer:
        return await read_up_to(consumer, await consumer.end_offsets(partitions))


async def read_up_to(consumer: Consumer[bytes, bytes], ends: Mapping[TopicPartition, Offset]) -> list[ReadRecord]:
    """Return all records below these offsets, sorted by offset in each partition."""
    consumer.assign(ends)
    records: list[ReadRecord] = []
    while [partition for partition, end in ends.items() if await consumer.position(partition) < end]:
        records += [as_read(record) for record in await consumer.poll(1.0)]
    return records


def as_read(record: ConsumerRecord[bytes, bytes]) -> ReadRecord:
    return ReadRecord(TopicPartition(record.topic, record.partition), record.offset, record.value or b"")


def choose_names(random: Random, stem: str, most: int) -> list[str]:
    return [f"{stem}-{number}" for number in range(1, random.randint(1, most) + 1)]
