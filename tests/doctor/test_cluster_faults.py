"""A broker of a cluster is killed: its replicas, its partitions and itself are found."""

import asyncio

from rookery.client import Admin
from rookery.client.admin import NewTopic
from rookery.doctor import CHECKS, examine, gather
from rookery.testing import EmbeddedCluster

SHORT = {"request.timeout.ms": 5000, "default.api.timeout.ms": 5000}
EXPECTED = {
    ("under-replicated", "topic orders"),
    ("under-min-isr", "topic strict"),
    ("min-isr-equals-replicas", "topic strict"),
    ("offline-partitions", "topic alone"),
}


async def found(cluster: EmbeddedCluster) -> set[tuple[str, str]]:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers, **SHORT}) as admin:
        snapshot = await gather(admin, machine=False)
    return {(each.check.id, each.subject) for each in examine(snapshot, CHECKS)}


async def create(cluster: EmbeddedCluster, victim: int, others: list[int]) -> None:
    everywhere = [victim, *others]
    new = [
        NewTopic("orders", assignments={0: everywhere}, configs={"min.insync.replicas": "2"}),
        NewTopic("strict", assignments={0: everywhere}, configs={"min.insync.replicas": "3"}),
        NewTopic("alone", assignments={0: [victim]}),
    ]
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for outcome in await admin.create_topics(new):
            outcome.check()


async def wait_for(cluster: EmbeddedCluster, expected: set[tuple[str, str]]) -> None:
    while not expected <= await found(cluster):
        await asyncio.sleep(0.1)


def test_a_killed_broker() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        victim, *others = cluster.nodes
        asyncio.run(create(cluster, victim, others))
        before = asyncio.run(found(cluster))
        assert not (EXPECTED - {("min-isr-equals-replicas", "topic strict")}) & before
        assert ("single-replica", "topic alone") in before
        cluster.kill(victim)
        asyncio.run(wait_for(cluster, EXPECTED | {("fenced-brokers", f"broker {victim}")}))
