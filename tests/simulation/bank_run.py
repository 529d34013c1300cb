"""Runs of the bank: its workers under faults, readers with isolation level read_committed, and the final audit."""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import count
from typing import Any

from rookery.base.codes import UpgradeType
from rookery.base.errors import ApiError
from rookery.base.types import Offset, TopicPartition
from rookery.client import Consumer
from rookery.client.admin import LATEST, Admin
from rookery.client.cluster import Cluster
from tests.simulation.bank import GROUP, TRANSACTION_TIMEOUT_MS, Bank, ClientKind, Post
from tests.simulation.checkers import GroupHistory, History, check_stable_log
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
from tests.simulation.users import REQUEST_TIMEOUT_S, as_read, choose_names, new_consumer, new_producer, read_up_to
from tests.simulation.world import World

REQUESTS = "requests"
OFFSETS_PARTITION_COUNT = 3
_REQUEST_PAUSE_S_MAX = 0.8
# Long enough for the last transaction to time out, and for the coordinator to notice it.
_HANGING_S_MAX = TRANSACTION_TIMEOUT_MS / 1000 + 20
# The kinds of clients by level of transaction.version, which sets the protocol of the whole client.
_CLIENT_KINDS = {1: (ClientKind.CLASSIC, ClientKind.REUSING, ClientKind.WHOLE_CLIENT), 2: tuple(ClientKind)}


class BankRun(Run):
    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._requests = [partition for partition in self._partitions if partition.topic == REQUESTS]
        self._reads = History(world.violations)
        self._transaction_version = self._random.choice((1, 2, 2))
        self._bank = Bank(
            world,
            self._site.bootstrap,
            [partition for partition in self._partitions if partition.topic != REQUESTS],
            self._hosts,
            Ledger(world.violations),
            GroupHistory(world.violations),
            self._client_kinds(),
            lambda: self._site.boots,
        )
        self.posts = [Post(self._bank, name) for name in choose_names(self._random, "teller", 3)]
        self.posts += [Post(self._bank, f"clerk-{partition.partition}", partition) for partition in self._requests]

    def _client_kinds(self) -> list[ClientKind]:
        """Return the kinds of clients. REUSING needs to know when its requests cannot arrive any more.

        That is after a restart of the only node; with several nodes they may be in flight to another one.
        """
        kinds = _CLIENT_KINDS[self._transaction_version]
        return [kind for kind in kinds if self._scenario.cluster is None or kind is not ClientKind.REUSING]

    @property
    def counts(self) -> Counts:
        return Counts(
            acknowledged=len(self._bank.ledger.confirmed),
            read=self._reads.read_count,
            commits=self._bank.offsets.commit_count,
            generations=sum(post.identity.producer_epoch for post in self.posts),
        )

    async def _prepare(self) -> None:
        await self._start("operator", self._set_transaction_version())

    async def _set_transaction_version(self) -> None:
        cluster = self._cluster("operator")
        level = {"transaction.version": self._transaction_version}
        await Admin.over(cluster).update_features(level, UpgradeType.SAFE_DOWNGRADE)
        await cluster.close()

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
        """Write requests as a customer. The requests in the log count, not only the acknowledged ones."""
        random, loop = self._world.new_random(), self._world.loop
        end_s = loop.time() + duration_s
        producer = new_producer(self._world, name="customer", bootstrap=self._site.bootstrap, randomness=random)
        for number in count():
            if loop.time() >= end_s:
                break
            payer, payee = random.sample(self._bank.accounts, 2)
            value = f"request-{number} {payer} {payee} {random.randint(1, 100)}".encode()
            try:
                partition = random.randrange(len(self._requests))
                await producer.send(REQUESTS, value, partition=partition, on_delivery=lambda landed, error: None)
            except ApiError as error:
                self._world.note(f"cannot ask: {error}")
            await asyncio.sleep(random.uniform(0, _REQUEST_PAUSE_S_MAX))
        await producer.close(timeout_s=0)

    async def _follow(self) -> None:
        """Read committed records continuously."""
        while True:
            try:
                async with self._consumer("follower", isolation="read_committed") as consumer:
                    consumer.assign(self._bank.partitions)
                    while True:
                        for record in await consumer.poll(1.0):
                            self._reads.on_read("follower", as_read(record))
            except ApiError as error:
                self._world.note(f"reads again from the beginning: {error}")
                await asyncio.sleep(0.2)

    async def _take_snapshots(self) -> None:
        """Read all records from the beginning, repeatedly."""
        random = self._world.new_random()
        while True:
            await asyncio.sleep(random.uniform(0.1, 5))
            try:
                confirmed = self._bank.ledger.confirmed
                async with self._consumer("snapshots", isolation="read_committed") as consumer:
                    ends = await consumer.end_offsets(self._bank.partitions)
                    log = await read_up_to(consumer, ends)
            except ApiError as error:
                self._world.note(f"no snapshot: {error}")
                continue
            for record in log:
                self._reads.on_read("snapshots", record)
            check_confirmed(self._bank.ledger, confirmed, ends, {record.value for record in log})

    def _cluster(self, client_id: str) -> Cluster:
        return Cluster.at(self._site.bootstrap, client_id=client_id, timeout_s=REQUEST_TIMEOUT_S)

    def _consumer(self, client_id: str, *, isolation: str) -> Consumer[bytes, bytes]:
        settings = {"isolation.level": isolation}
        return new_consumer(self._world, name=client_id, bootstrap=self._site.bootstrap, settings=settings)

    # The end

    async def _audit(self) -> None:
        await self._start("auditor", self._check_all())

    async def _check_all(self) -> None:
        cluster = self._cluster("auditor")
        ledger = self._bank.ledger
        await self._check_hanging(cluster)
        async with self._consumer("auditor", isolation="read_committed") as consumer:
            log = await read_up_to(consumer, await consumer.end_offsets(self._bank.partitions))
        async with self._consumer("auditor", isolation="read_uncommitted") as consumer:
            requests = await read_up_to(consumer, await consumer.end_offsets(self._requests))
        committed = await cluster.retry(lambda: fetch_committed(cluster, GROUP, self._requests, self._bank.offsets))
        await cluster.close()
        check_transfers(ledger, log)
        check_worker_order(ledger, log)
        check_reads(ledger, self._reads.reads)
        check_stable_log(self._reads, log)
        check_requests(ledger, log, requests, committed)

    async def _check_hanging(self, cluster: Cluster) -> None:
        """Wait, with a time-out, until no open transaction stops readers."""
        offsets_topic = [TopicPartition("__consumer_offsets", index) for index in range(OFFSETS_PARTITION_COUNT)]
        partitions = [*self._partitions, *offsets_topic]
        end_s = self._world.loop.time() + _HANGING_S_MAX
        while True:
            stable = await offsets_at_end(cluster, partitions, read_committed=True)
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
        listed = await Admin.over(cluster).list_transactions()
        check_states(self._bank.ledger, {each.transactional_id: each.state for each in listed})


async def offsets_at_end(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, Offset]:
    results = await Admin.over(cluster).list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    for partition, result in results.items():
        if result.error:
            raise ApiError(result.error, f"partition {partition}")
    return {partition: result.offset for partition, result in results.items()}
