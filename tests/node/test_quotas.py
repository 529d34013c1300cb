"""The quotas and throttles of a node follow its settings and the image."""

import asyncio

from rookery.base.clock import ManualClock
from rookery.base.codes import ResourceType
from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.base.types import TopicPartition
from rookery.metadata.image.quotas import quota_record
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.records import ConfigRecord, MetadataRecord, encode_record
from rookery.node.quotas import NodeQuotas
from rookery.node.settings import Settings

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


async def commit(metadata: MetadataPublisher, *records: MetadataRecord) -> None:
    await metadata.commit(metadata.image.offset + 1, [encode_record(record) for record in records])


def topic_config(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)


def broker_config(name: str, value: str | None, broker: str = "") -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=name, value=value)


def test_quotas_follow_the_image() -> None:
    async def main() -> None:
        metadata = MetadataPublisher()
        quotas = NodeQuotas(Settings.load(), metadata, ManualClock())
        clients = quotas.throttling.quotas
        assert not clients.is_active
        alice = QuotaEntity(user="alice")
        await commit(metadata, quota_record(alice, "producer_byte_rate", 100.0))
        assert clients.produce.limit_of("alice", "app") == 100
        await commit(metadata, quota_record(alice, "producer_byte_rate", None))
        assert not clients.is_active
        await commit(metadata, quota_record(QuotaEntity(ip=DEFAULT), "connection_creation_rate", 1.0))
        admissions = [quotas.connection_rates.admit("PLAINTEXT", "127.0.0.1", 0.0) for _ in range(11)]
        assert [each.reason is None for each in admissions] == [True] * 10 + [False]

    asyncio.run(main())


def test_windows_are_those_of_the_settings() -> None:
    async def main() -> None:
        overrides = ["quota.window.num=3", "quota.window.size.seconds=5", "controller.quota.window.num=2"]
        quotas = NodeQuotas(Settings.load(overrides=overrides), MetadataPublisher(), ManualClock())
        clients = quotas.throttling.quotas
        clients.configure({QuotaEntity(user=DEFAULT): {"producer_byte_rate": 1.0, "controller_mutation_rate": 1.0}})
        assert (clients.fetch_span_s, clients.request_throttle_max_ms) == (10, 5000)
        bucket = clients.mutation.find("u", "c", 0.0)
        assert bucket is not None
        assert bucket.tokens(0.0) == 2
        produced = clients.produce.find("u", "c", 0.0)
        assert produced is not None
        assert (produced.use(10, 0.0), produced.use(1, 0.0)) == (0, 1000)

    asyncio.run(main())


def test_replication_throttles_follow_topics_and_brokers() -> None:
    async def main() -> None:
        metadata = MetadataPublisher()
        settings = Settings.load(overrides=["node.id=1", "follower.replication.throttled.rate=10"])
        leader, follower = NodeQuotas(settings, metadata, ManualClock()).replication
        await commit(
            metadata,
            topic_config("leader.replication.throttled.replicas", "*"),
            topic_config("follower.replication.throttled.replicas", "0:1, 1:2"),
        )
        assert [leader.applies_to(FIRST), leader.applies_to(SECOND)] == [True, True]
        assert [follower.applies_to(FIRST), follower.applies_to(SECOND)] == [True, False]
        for throttle in (leader, follower):
            throttle.record(1000, 0.0)
        assert (leader.is_exceeded(0.0), follower.is_exceeded(0.0)) == (False, True)
        await commit(
            metadata,
            broker_config("leader.replication.throttled.rate", "10"),
            broker_config("follower.replication.throttled.rate", "2000", broker="1"),
        )
        assert (leader.is_exceeded(0.0), follower.is_exceeded(0.0)) == (True, False)
        await commit(
            metadata,
            broker_config("leader.replication.throttled.rate", None),
            topic_config("leader.replication.throttled.replicas", None),
        )
        assert (leader.is_exceeded(0.0), leader.is_active) == (False, False)

    asyncio.run(main())
