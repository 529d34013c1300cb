"""confluent-kafka's AdminClient: topics, partitions, configs, offsets, records, the cluster."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conformance.clients import TIMEOUT_S, Confluent, confluent_consumer
from tests.conformance.samples import FIRST_TIMESTAMP_MS, TIMESTAMP_STEP_MS, make_samples


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, topic: str, **arguments: Any) -> None:
    admin.create_topics([NewTopic(topic, **{"num_partitions": 1, **arguments})])[topic].result(TIMEOUT_S)


def failure(call: Callable[..., object], *arguments: object, **named: object) -> int:
    """Return the error code with which a call fails."""
    with pytest.raises(KafkaException) as caught:
        call(*arguments, **named)
    code: int = caught.value.args[0].code()
    return code


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return found


def alter(admin: AdminClient, kind: ResourceType, name: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource(kind, name, incremental_configs=list(entries))
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def entry(name: str, value: str | None, operation: AlterConfigOpType = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def await_value(admin: AdminClient, topic: str, name: str, value: str) -> ConfigEntry:
    """Wait until a topic's config has a value: Kafka's brokers apply changes of their configs asynchronously."""
    deadline = time.monotonic() + TIMEOUT_S
    while (found := configs(admin, ResourceType.TOPIC, topic)[name]).value != value:
        assert time.monotonic() < deadline, f"{name} is still {found.value}"
        time.sleep(0.02)
    return found


def broker_id(admin: AdminClient) -> str:
    return str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))


def test_create_list_describe_delete(admin: AdminClient, topic: str) -> None:
    create(admin, topic, num_partitions=3)
    assert sorted(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == [0, 1, 2]
    description = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert description.name == topic
    assert not description.is_internal
    assert description.topic_id is not None
    assert [partition.id for partition in description.partitions] == [0, 1, 2]
    assert all(len(partition.isr) == 1 and partition.leader is not None for partition in description.partitions)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    described = admin.describe_topics(TopicCollection([topic]))[topic]
    assert failure(described.result, TIMEOUT_S) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_is_another_topic(admin: AdminClient, bootstrap: str, topic: str) -> None:
    client = Confluent()
    identities = set()
    for _ in range(3):
        create(admin, topic)
        identities.add(str(admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S).topic_id))
        assert client.produce(bootstrap, topic, make_samples(3)) == [0, 1, 2]
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert len(identities) == 3


def test_validate_only_creates_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2)], validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_manual_assignment(admin: AdminClient, topic: str) -> None:
    node = int(broker_id(admin))
    create(admin, topic, num_partitions=2, replica_assignment=[[node], [node]])
    partitions = admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions
    assert [partitions[index].replicas for index in (0, 1)] == [[node], [node]]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"num_partitions": 0}, KafkaError.INVALID_PARTITIONS),
        ({"replication_factor": 2}, KafkaError.INVALID_REPLICATION_FACTOR),
        ({"replica_assignment": [[12345]]}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
        ({"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
        ({"config": {"no.such.key": "1"}}, KafkaError.INVALID_CONFIG),
    ],
    ids=["no-partitions", "too-many-replicas", "unknown-node", "malformed-value", "unknown-key"],
)
def test_what_create_rejects(admin: AdminClient, topic: str, arguments: dict[str, Any], code: int) -> None:
    assert failure(create, admin, topic, **arguments) == code
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


@pytest.mark.parametrize("name", ["with space", "..", "x" * 250, "slash/ed"])
def test_bad_names_are_rejected(admin: AdminClient, name: str) -> None:
    assert failure(create, admin, name) == KafkaError.TOPIC_EXCEPTION


def test_creating_twice_and_deleting_twice(admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    assert failure(create, admin, topic) == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    deleting = admin.delete_topics([topic])[topic]
    assert failure(deleting.result, TIMEOUT_S) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_create_partitions(admin: AdminClient, bootstrap: str, topic: str) -> None:
    create(admin, topic)
    Confluent().produce(bootstrap, topic, make_samples(3))
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    assert sorted(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == [0, 1, 2, 3]
    consumer = confluent_consumer(bootstrap)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 3)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 3), TIMEOUT_S) == (0, 0)
    consumer.close()
    for count in (4, 2):
        adding = admin.create_partitions([NewPartitions(topic, count)])[topic]
        assert failure(adding.result, TIMEOUT_S) == KafkaError.INVALID_PARTITIONS
    trying = admin.create_partitions([NewPartitions(topic, 9)], validate_only=True)[topic]
    trying.result(TIMEOUT_S)
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == 4


def test_topic_configs(admin: AdminClient, topic: str) -> None:
    create(admin, topic, config={"retention.ms": "60000", "cleanup.policy": "compact"})
    found = configs(admin, ResourceType.TOPIC, topic)
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("60000", "compact")
    assert ConfigSource(found["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["segment.bytes"].value == "1073741824"
    assert ConfigSource(found["segment.bytes"].source) is ConfigSource.DEFAULT_CONFIG
    assert found["segment.bytes"].is_default
    assert "log.retention.ms" in found["retention.ms"].synonyms or "retention.ms" in found["retention.ms"].synonyms


def test_incremental_alter(admin: AdminClient, topic: str) -> None:
    create(admin, topic, config={"retention.ms": "60000"})
    alter(admin, ResourceType.TOPIC, topic, entry("segment.bytes", "2000000"), entry("retention.ms", "120000"))
    found = configs(admin, ResourceType.TOPIC, topic)
    assert (found["segment.bytes"].value, found["retention.ms"].value) == ("2000000", "120000")
    alter(admin, ResourceType.TOPIC, topic, entry("retention.ms", None, AlterConfigOpType.DELETE))
    assert configs(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"
    alter(admin, ResourceType.TOPIC, topic, entry("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    assert configs(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "delete,compact"
    alter(admin, ResourceType.TOPIC, topic, entry("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    assert configs(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "compact"


def test_what_alter_rejects(admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    for name, value in (("retention.ms", "soon"), ("no.such.key", "1"), ("cleanup.policy", "shred")):
        assert failure(alter, admin, ResourceType.TOPIC, topic, entry(name, value)) == KafkaError.INVALID_CONFIG
    code = failure(alter, admin, ResourceType.TOPIC, topic + "-none", entry("retention.ms", "1"))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_configs(admin: AdminClient) -> None:
    node = broker_id(admin)
    found = configs(admin, ResourceType.BROKER, node)
    assert found["node.id"].value == node
    assert found["node.id"].is_read_only
    assert not found["log.retention.ms"].is_read_only


def test_a_dynamic_broker_config_reaches_the_topics(admin: AdminClient, topic: str) -> None:
    """`log.cleaner.delete.retention.ms` is the broker's name for the topics' `delete.retention.ms`."""
    node = broker_id(admin)
    create(admin, topic)
    alter(admin, ResourceType.BROKER, node, entry("log.cleaner.delete.retention.ms", "3600000"))
    try:
        found = await_value(admin, topic, "delete.retention.ms", "3600000")
        assert ConfigSource(found.source) is ConfigSource.DYNAMIC_BROKER_CONFIG
    finally:
        undo = entry("log.cleaner.delete.retention.ms", None, AlterConfigOpType.DELETE)
        alter(admin, ResourceType.BROKER, node, undo)
    await_value(admin, topic, "delete.retention.ms", "86400000")


def test_a_read_only_broker_config_is_rejected(admin: AdminClient) -> None:
    code = failure(alter, admin, ResourceType.BROKER, broker_id(admin), entry("node.id", "77"))
    assert code == KafkaError.INVALID_REQUEST


def test_list_offsets(admin: AdminClient, bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, make_samples(20))

    def offset(spec: OffsetSpec) -> int:
        partition = TopicPartition(topic, 0)
        return int(admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 20
    assert offset(OffsetSpec.max_timestamp()) == 19
    assert offset(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 4 * TIMESTAMP_STEP_MS)) == 4
    assert offset(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 99 * TIMESTAMP_STEP_MS)) == -1


def test_delete_records(admin: AdminClient, bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, make_samples(20))
    partition = TopicPartition(topic, 0, 12)
    assert admin.delete_records([partition])[partition].result(TIMEOUT_S).low_watermark == 12
    consumer = confluent_consumer(bootstrap)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (12, 20)
    consumer.close()
    beyond = TopicPartition(topic, 0, 21)
    deleting = admin.delete_records([beyond])[beyond]
    assert failure(deleting.result, TIMEOUT_S) == KafkaError.OFFSET_OUT_OF_RANGE


def test_describe_cluster(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id == admin.list_topics(timeout=TIMEOUT_S).cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id
