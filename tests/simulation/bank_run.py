"""Runs of the bank: its workers under faults, readers with isolation read_committed, and the final audit."""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import count
from typing import Any

from rookery.base.errors import ApiError
from rookery.base.types import Offset, TopicPartition
from rookery.client.admin import LATEST, Admin
from rookery.client.cluster import Cluster
from rookery.client.consumer import BEGINNING, Consumer
from rookery.client.producer import Producer
from rookery.client.transactions import TransactionAdmin
from tests.simulation.bank import GROUP, TRANSACTION_TIMEOUT_MS, Bank, Post
from tests.simulation.checkers import GroupHistory, History, ReadRecord, check_stable_log
from tests.simulation.ledger import (
    Ledger,
    check_confirmed,
    check_reads,
    check_requests,
    check_states,
    check_transfers,
    check_worker_order,
)
from tests.simulation.members import fetch_committed
from tests.simulation.run import Counts, Run, Scenario
from tests.simulation.users import REQUEST_TIMEOUT_S, as_read, choose_names
from tests.simulation.world import World
from tests.support.transactions import CommittedConsumer

REQUESTS = "requests"
OFFSETS_PARTITION_COUNT = 3
_REQUEST_PAUSE_S_MAX = 0.8
# Until the last transaction has timed out, and the coordinator has noticed.
_HANGING_S_MAX = TRANSACTION_TIMEOUT_MS / 1000 + 20


class BankRun(Run):
    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._requests = [partition for partition in self._partitions if partition.topic == REQUESTS]
        self._reads = History(world.violations)
        self._bank = Bank(
            world,
            self._machine.address,
            [partition for partition in self._partitions if partition.topic != REQUESTS],
            self._hosts,
            Ledger(world.violations),
            GroupHistory(world.violations),
        )
        self.posts = [Post(self._bank, name) for name in choose_names(self._random, "teller", 3)]
        self.posts += [Post(self._bank, f"clerk-{partition.partition}", partition) for partition in self._requests]

    @property
    def counts(self) -> Counts:
        return Counts(
            acknowledged=len(self._bank.ledger.confirmed),
            read=self._reads.read_count,
            commits=self._bank.offsets.commit_count,
            generations=sum(post.identity.producer_epoch for post in self.posts),
        )

    def _start_users(self) -> None:
        self._start("follower", self._follow())
        self._start("snapshots", self._take_snapshots())

    def _churn(self, duration_s: float) -> list[Coroutine[Any, Any, None]]:
        self._start("customer", self._ask(duration_s))
        return [post.staff(duration_s) for post in self.posts]

    async def _settle(self) -> None:
        self._bank.is_closing = True
        finishing = {post.name: self._world.loop.create_task(post.finish()) for post in self.posts}
        await self._await_users(finishing)

    # Users

    async def _ask(self, duration_s: float) -> None:
        """A customer writes requests; what is in the log counts, not what was acknowledged."""
        random, loop = self._world.new_random(), self._world.loop
        end_s = loop.time() + duration_s
        cluster = self._cluster("customer")
        producer = Producer(cluster, clock=self._world.clock, randomness=random)
        for number in count():
            if loop.time() >= end_s:
                break
            payer, payee = random.sample(self._bank.accounts, 2)
            value = f"request-{number} {payer} {payee} {random.randint(1, 100)}".encode()
            try:
                landed = await producer.send(REQUESTS, value, partition=random.randrange(len(self._requests)))
                landed.add_done_callback(lambda future: future.cancelled() or future.exception())
            except ApiError as error:
                self._world.tell(f"cannot ask: {error}")
            await asyncio.sleep(random.uniform(0, _REQUEST_PAUSE_S_MAX))
        await producer.abort()

    async def _follow(self) -> None:
        """Read what is committed, as it comes."""
        while True:
            cluster = self._cluster("follower")
            try:
                async with CommittedConsumer(cluster) as consumer:
                    await consumer.assign(dict.fromkeys(self._bank.partitions, BEGINNING))
                    while True:
                        for record in await consumer.poll():
                            self._reads.on_read("follower", as_read(record))
            except ApiError as error:
                self._world.tell(f"reads again from the beginning: {error}")
                await asyncio.sleep(0.2)
            finally:
                await cluster.close()

    async def _take_snapshots(self) -> None:
        """Read everything, again and again."""
        random = self._world.new_random()
        while True:
            await asyncio.sleep(random.uniform(0.1, 5))
            cluster = self._cluster("snapshots")
            try:
                confirmed = self._bank.ledger.confirmed
                ends = await stable_offsets(cluster, self._bank.partitions)
                log = await read_committed(cluster, ends)
            except ApiError as error:
                self._world.tell(f"no snapshot: {error}")
                continue
            finally:
                await cluster.close()
            for record in log:
                self._reads.on_read("snapshots", record)
            check_confirmed(self._bank.ledger, confirmed, ends, {record.value for record in log})

    def _cluster(self, client_id: str) -> Cluster:
        return Cluster.at(self._machine.address, client_id=client_id, timeout_s=REQUEST_TIMEOUT_S)

    # The end

    async def _audit(self) -> None:
        await self._start("auditor", self._check_all())

    async def _check_all(self) -> None:
        cluster = self._cluster("auditor")
        ledger = self._bank.ledger
        await self._check_hanging(cluster)
        log = await read_committed(cluster, await stable_offsets(cluster, self._bank.partitions))
        requests = await read_all(cluster, self._requests)
        committed = await cluster.retry(lambda: fetch_committed(cluster, GROUP, self._requests, self._bank.offsets))
        await cluster.close()
        check_transfers(ledger, log)
        check_worker_order(ledger, log)
        check_reads(ledger, self._reads.reads)
        check_stable_log(self._reads, log)
        check_requests(ledger, log, requests, committed)

    async def _check_hanging(self, cluster: Cluster) -> None:
        """Wait until no transaction holds any reader; not for ever."""
        offsets_topic = [TopicPartition("__consumer_offsets", index) for index in range(OFFSETS_PARTITION_COUNT)]
        partitions = [*self._partitions, *offsets_topic]
        end_s = self._world.loop.time() + _HANGING_S_MAX
        while True:
            stable = await stable_offsets(cluster, partitions)
            ends = await offsets_at_end(cluster, partitions, read_committed=False)
            if stable == ends or self._world.loop.time() >= end_s:
                break
            await asyncio.sleep(0.5)
        for partition in partitions:
            if stable[partition] != ends[partition]:
                self._violate(
                    "no-hanging-transactions",
                    f"{partition} ends at {ends[partition]}, but can be read up to {stable[partition]} only",
                )
        listed = await TransactionAdmin(cluster).list_transactions()
        check_states(self._bank.ledger, {each.transactional_id: each.state for each in listed})


async def stable_offsets(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
    return await offsets_at_end(cluster, partitions, read_committed=True)


async def offsets_at_end(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, Offset]:
    results = await Admin(cluster).list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    for partition, result in results.items():
        if result.error:
            raise ApiError(result.error, f"partition {partition}")
    return {partition: result.offset for partition, result in results.items()}


async def read_committed(cluster: Cluster, ends: dict[TopicPartition, Offset]) -> list[ReadRecord]:
    """What was committed before `ends`, in the order of the offsets of each partition."""
    async with CommittedConsumer(cluster) as consumer:
        return await _read(consumer, ends)


async def read_all(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[ReadRecord]:
    async with Consumer(cluster) as consumer:
        return await _read(consumer, await consumer.offsets_at(partitions, LATEST))


async def _read(consumer: Consumer, ends: dict[TopicPartition, Offset]) -> list[ReadRecord]:
    await consumer.assign(dict.fromkeys(ends, BEGINNING))
    records: list[ReadRecord] = []
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        records += [as_read(record) for record in await consumer.poll()]
    return records
