"""Simulated users of a broker: producers that send for a while, readers that read all the time.

They are the real client on the simulated network. Each has its own host and randomness, and writes what it sees into
the history.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import count
from random import Random

from rookery.base.errors import ApiError
from rookery.base.types import TopicName, TopicPartition
from rookery.client.admin import LATEST, Admin, NewTopic
from rookery.client.cluster import Cluster
from rookery.client.consumer import BEGINNING, ConsumedRecord, Consumer
from rookery.client.producer import Landed, Producer
from tests.simulation.checkers import Fate, History, ReadRecord, Sent
from tests.simulation.world import World

REQUEST_TIMEOUT_S = 4.0
_DELIVERY_TIMEOUT_S = 25.0
_PAUSE_AFTER_FAILURE_S = 0.2
_SIZES = (0, 10, 100, 1500)


class ProducerUser:
    """Sends records to random partitions; finished when the fate of each is as clear as it will be."""

    def __init__(
        self, world: World, history: History, *, name: str, bootstrap: str, partitions: Sequence[TopicPartition]
    ) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._random = world.new_random()

    async def run(self, record_count: int, mean_pause_s: float) -> None:
        cluster = Cluster.at(self._bootstrap, client_id=self._name, timeout_s=REQUEST_TIMEOUT_S)
        producer = Producer(
            cluster, clock=self._world.clock, randomness=self._random, delivery_timeout_s=_DELIVERY_TIMEOUT_S
        )
        for number in range(record_count):
            # Bursts: most records follow at once and share a batch.
            if self._random.random() < 0.5:
                await asyncio.sleep(self._random.expovariate(1 / mean_pause_s))
            await self._send(producer, number)
        await producer.flush()
        self._world.tell("has sent everything")

    async def _send(self, producer: Producer, number: int) -> None:
        partition = self._random.choice(self._partitions)
        value = f"{self._name}:{number} ".encode() + b"." * self._random.choice(_SIZES)
        while True:
            try:
                landed = await producer.send(partition.topic, value, partition=partition.partition)
                break
            except ApiError as error:
                self._world.tell(f"cannot send: {error}")
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
        sent = Sent(self._name, number, partition, value)
        self._history.sent.append(sent)
        landed.add_done_callback(partial(self._settle, sent))

    def _settle(self, sent: Sent, landed: "asyncio.Future[Landed]") -> None:
        if landed.cancelled() or (error := landed.exception()) is not None:
            reason = "cancelled" if landed.cancelled() else str(error)
            self._world.tell(f"{sent.number} for {sent.partition} may be lost: {reason}")
        else:
            sent.fate, sent.offset = Fate.ACKNOWLEDGED, landed.result().offset


class ReaderUser:
    """Reads all partitions from their beginning on, again and again after longer failures."""

    def __init__(
        self, world: World, history: History, *, name: str, bootstrap: str, partitions: Sequence[TopicPartition]
    ) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._bootstrap = bootstrap
        self._partitions = partitions

    async def run(self) -> None:
        while True:
            cluster = Cluster.at(self._bootstrap, client_id=self._name, timeout_s=REQUEST_TIMEOUT_S)
            try:
                await self._read(cluster)
            except ApiError as error:
                self._world.tell(f"reads again from the beginning: {error}")
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
            finally:
                await cluster.close()

    async def _read(self, cluster: Cluster) -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign(dict.fromkeys(self._partitions, BEGINNING))
            while True:
                for record in await consumer.poll():
                    self._history.on_read(self._name, as_read(record))


class OperatorUser:
    """Makes a topic now and then."""

    name = "operator"

    def __init__(self, world: World, history: History, *, bootstrap: str) -> None:
        self._world = world
        self._history = history
        self._bootstrap = bootstrap
        self._random = world.new_random()

    async def run(self) -> None:
        for number in count(1):
            await asyncio.sleep(self._random.uniform(0.5, 5))
            topic = NewTopic(name=f"extra-{number}", partitions=self._random.randint(1, 2))
            try:
                await create_topics(self._bootstrap, [topic])
            except ApiError as error:
                # It may exist all the same: the answer was lost.
                self._world.tell(f"{topic.name} was not confirmed: {error}")
            else:
                self._history.confirmed[topic.name] = topic.partitions


async def create_topics(bootstrap: str, topics: Sequence[NewTopic]) -> None:
    cluster = Cluster.at(bootstrap, client_id="operator", timeout_s=REQUEST_TIMEOUT_S)
    try:
        for outcome in await Admin(cluster).create_topics(topics):
            outcome.check()
    finally:
        await cluster.close()


async def list_topics(bootstrap: str) -> dict[TopicName, int]:
    cluster = Cluster.at(bootstrap, client_id="auditor")
    topics = {topic.name: len(topic.partitions) for topic in await Admin(cluster).list_topics()}
    await cluster.close()
    return topics


async def read_everything(bootstrap: str, partitions: Sequence[TopicPartition]) -> list[ReadRecord]:
    """What is in the log, in the order of the offsets."""
    cluster = Cluster.at(bootstrap, client_id="auditor")
    records: list[ReadRecord] = []
    async with Consumer(cluster) as consumer:
        await consumer.assign(dict.fromkeys(partitions, BEGINNING))
        ends = await consumer.offsets_at(partitions, LATEST)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records += [as_read(record) for record in await consumer.poll()]
    await cluster.close()
    return records


def as_read(record: ConsumedRecord) -> ReadRecord:
    return ReadRecord(TopicPartition(record.topic, record.partition), record.offset, record.value or b"")


def choose_names(random: Random, stem: str, most: int) -> list[str]:
    return [f"{stem}-{number}" for number in range(1, random.randint(1, most) + 1)]
