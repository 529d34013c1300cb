"""Rookery's transactional producer whose connections are cut at any byte, in both protocols.

Committed records are read once and in order, aborted ones are not, and no transaction stays open. If the response to a
commit is lost, the producer sends the request again and never guesses the outcome.
"""

import asyncio
from random import Random

import pytest

from rookery.client import Consumer, Producer, TopicPartition
from rookery.client.cluster import Cluster
from rookery.client.errors import TransactionAbortableError
from tests.client.produce.transaction_stage import CLASSIC, V2, set_transaction_version
from tests.faults.numbered import DEADLINE_S, HASTY, create_topic, partitions_of
from tests.faults.proxy import Proxy, proxied_broker

PARTITIONS = 3
GROUP = "group"
SEEDS = [*range(1, 4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))]
BROKER_SETTINGS = {"transaction_state_log_num_partitions": "2"}


class Transactor:
    """Runs transactions one after the other, and keeps the records of the committed ones."""

    def __init__(self, producer: Producer[bytes, bytes], randomness: Random) -> None:
        self.committed: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        # The group's offset after the committed transactions.
        self.group_offset: int | None = None
        self._producer = producer
        self._random = randomness
        self._count = 0

    async def transact(self) -> None:
        self._count += 1
        sent: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self._producer.begin_transaction()
        try:
            for number in range(self._random.randrange(10)):
                partition = self._random.randrange(PARTITIONS)
                value = f"{self._count}.{number}".encode().ljust(self._random.choice((10, 500)), b".")
                await self._producer.send("t", value, partition=partition)
                sent[partition].append(value)
                if self._random.random() < 0.2:
                    await asyncio.sleep(self._random.random() / 100)
            with_offsets = self._random.random() < 0.3
            if with_offsets:
                place = TopicPartition("t", 0)
                await self._producer.send_offsets_to_transaction({place: self._count}, GroupWithoutMembers())
            if self._random.random() < 0.7:
                await self._producer.commit_transaction()
                for partition, values in sent.items():
                    self.committed[partition] += values
                self.group_offset = self._count if with_offsets else self.group_offset
                return
        except TransactionAbortableError:
            pass
        await self._producer.abort_transaction()


class GroupWithoutMembers:
    """The metadata of a group without members."""

    group_id = GROUP
    generation_id = -1
    member_id = ""
    group_instance_id = None


@pytest.mark.parametrize("level", [CLASSIC, V2], ids=["classic", "v2"])
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_recover_from_cut_connections(seed: int, level: int) -> None:
    randomness = Random(seed)

    async def run() -> None:
        async with Proxy() as proxy, proxied_broker(proxy, **BROKER_SETTINGS):
            await create_topic(proxy.address, "t", PARTITIONS)
            if level != V2:
                async with Cluster.at(proxy.address) as cluster:
                    await set_transaction_version(cluster, level)
            settings = {
                "bootstrap.servers": proxy.address,
                "transactional.id": "transactor",
                "linger.ms": randomness.choice((0, 3)),
                "batch.size": randomness.choice((200, 16_384)),
                **HASTY,
            }
            proxy.cut_at_random(randomness, cuts=25, after_bytes_max=8_000)
            async with asyncio.timeout(DEADLINE_S), Producer[bytes, bytes](settings, randomness=randomness) as producer:
                await producer.init_transactions()
                transactor = Transactor(producer, randomness)
                while proxy.cuts_left > 0:
                    await transactor.transact()
            await check(proxy.address, transactor)

    asyncio.run(run())


async def check(bootstrap: str, transactor: Transactor) -> None:
    places = partitions_of("t", PARTITIONS)
    config = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "group.id": GROUP}
    uncommitted = Consumer[bytes, bytes](config)
    committed = Consumer[bytes, bytes](config | {"isolation.level": "read_committed"})
    async with asyncio.timeout(DEADLINE_S), uncommitted, committed:
        ends = await committed.end_offsets(places)
        assert ends == await uncommitted.end_offsets(places), "nothing is open"
        committed.assign(places)
        committed.seek_to_beginning()
        found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        while {tp: await committed.position(tp) for tp in places} != ends:
            for record in await committed.poll(0.1):
                found[record.partition].append(record.value or b"")
        assert found == transactor.committed
        offsets = await committed.committed([places[0]])
        assert [offset.offset for offset in offsets.values()] == [
            offset for offset in (transactor.group_offset,) if offset is not None
        ]
