"""`rookery doctor` with Rookery and with Apache Kafka: everything is gathered, and planted faults are found."""

import asyncio
from collections.abc import Iterator

import pytest

from rookery.base.types import TopicPartition
from rookery.client import Admin, Producer
from rookery.client.admin import NewTopic, OffsetAndMetadata
from rookery.doctor import CHECKS, ClusterSnapshot, examine, gather
from tests.conformance import brokers


@pytest.fixture(scope="module", params=brokers.BOTH)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from brokers.start(request.param, tmp_path_factory.mktemp(request.param))


async def planted(bootstrap: str) -> ClusterSnapshot:
    config = {"bootstrap.servers": bootstrap}
    async with Admin(config) as admin:
        new = [
            NewTopic("unwritable", 1, 1, configs={"min.insync.replicas": "2"}),
            NewTopic("endless", 1, 1, configs={"retention.ms": "-1"}),
            NewTopic("lossy", 1, 1),
        ]
        for outcome in await admin.create_topics(new):
            outcome.check()
        async with Producer[bytes, bytes](config) as producer:
            for _ in range(3):
                await (await producer.send("lossy", b"x", partition=0))
        lossy = TopicPartition("lossy", 0)
        await admin.commit_offsets("billing", {lossy: OffsetAndMetadata(0)})
        await admin.delete_records({lossy: 2})
        return await gather(admin, observe_s=0.5, machine=True)


def test_planted_faults_are_found(bootstrap: str) -> None:
    snapshot = asyncio.run(planted(bootstrap))
    assert snapshot.unseen == ()
    assert snapshot.machine is not None
    assert len(snapshot.machine.processes) == 1
    found = {(each.check.id, each.subject) for each in examine(snapshot, CHECKS)}
    assert found >= {
        ("min-isr-above-replicas", "topic unwritable"),
        ("endless-retention", "topic endless"),
        ("unused-topics", "topic endless"),
        ("group-lost-records", "group billing"),
        ("group-stuck", "group billing"),
    }
    assert not {"offline-partitions", "under-replicated", "auto-creation"} & {check for check, _ in found}
