"""kafka-python: producing, fetching, offsets, and its admin client."""

import threading
from collections.abc import Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka import TopicPartition
from kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)

from tests.conformance.clients import TIMEOUT_S, KafkaPython, kafka_python_read
from tests.conformance.samples import FIRST_TIMESTAMP_MS, TIMESTAMP_STEP_MS, make_samples

CLIENT = KafkaPython()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Any]:
    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none")
    yield client
    client.close()


def topic_configs(admin: Any, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found: dict[str, Any] = admin.describe_configs([resource], config_filter="all", include_synonyms=True)
    configs: dict[str, Any] = found["topic"][topic]
    return configs


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, topic: str, acks: int | str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False)
    producer.send(topic, b"value", partition=0).get(TIMEOUT_S)
    producer.close(timeout=TIMEOUT_S)
    assert [sample.value for sample in CLIENT.consume(bootstrap, topic, 1)] == [b"value"]


def test_idempotent_producer_in_small_batches(bootstrap: str, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=200)
    futures = [producer.send(topic, b"%d" % index, partition=0) for index in range(300)]
    assert [future.get(TIMEOUT_S).offset for future in futures] == list(range(300))
    producer.close(timeout=TIMEOUT_S)
    assert [sample.value for sample in CLIENT.consume(bootstrap, topic, 300)] == [b"%d" % index for index in range(300)]


def test_rejected_records(bootstrap: str, topic: str, admin: Any) -> None:
    config = {"max.message.bytes": "2000", "cleanup.policy": "compact"}
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs=config)])
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    too_large = producer.send(topic, bytes(5000), key=b"k")
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        too_large.get(TIMEOUT_S)
    keyless = producer.send(topic, b"v")
    with pytest.raises(kafka.errors.InvalidRecordError):
        keyless.get(TIMEOUT_S)
    producer.close(timeout=TIMEOUT_S)


def test_fetch_sizes(bootstrap: str, topic: str) -> None:
    samples = make_samples(60, value_size=2_000)
    for start in range(0, 60, 10):
        CLIENT.produce(bootstrap, topic, samples[start : start + 10])
    for fetch_bytes in (1, 500, 5_000, 1_000_000):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, max_partition_fetch_bytes=fetch_bytes, fetch_max_bytes=30_000
        )
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        values = [record.value for record in kafka_python_read(consumer, 60)]
        consumer.close()
        assert values == [sample.value for sample in samples]


def test_a_long_poll_ends_with_the_record(bootstrap: str, topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, fetch_max_wait_ms=20_000, request_timeout_ms=40_000
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    assert consumer.poll(timeout_ms=300) == {}
    writing = threading.Thread(target=CLIENT.produce, args=(bootstrap, topic, make_samples(1)))
    writing.start()
    assert kafka_python_read(consumer, 1)[0].offset == 0
    writing.join()
    consumer.close()


def test_positions(bootstrap: str, topic: str, consumer: Any) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(50))
    partition = TopicPartition(topic, 0)
    assert consumer.partitions_for_topic(topic) == {0}
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 50}
    consumer.assign([partition])
    for offset in (49, 0, 20):
        consumer.seek(partition, offset)
        assert kafka_python_read(consumer, 1)[0].offset == offset
    assert consumer.highwater(partition) == 50
    consumer.seek(partition, 1_000)
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        kafka_python_read(consumer, 1)


def test_offsets_for_times(bootstrap: str, topic: str, consumer: Any) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(50), codec="snappy")
    partition = TopicPartition(topic, 0)

    def offset_at(timestamp_ms: int) -> tuple[int, int] | None:
        found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
        return found and (found.offset, found.timestamp)

    assert offset_at(0) == (0, FIRST_TIMESTAMP_MS)
    wanted_ms = FIRST_TIMESTAMP_MS + 17 * TIMESTAMP_STEP_MS
    assert offset_at(wanted_ms) == (17, wanted_ms)
    assert offset_at(wanted_ms - 1) == (17, wanted_ms)
    assert offset_at(FIRST_TIMESTAMP_MS + 50 * TIMESTAMP_STEP_MS) is None


def test_topics(admin: Any, topic: str) -> None:
    created = admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "60000"})])["topics"][0]
    assert (created["error_code"], created["num_partitions"], created["replication_factor"]) == (0, 3, 1)
    assert created["configs"]["retention.ms"]["value"] == "60000"
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert described["topic_id"] == created["topic_id"]
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2]
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 3, 1)])
    assert admin.delete_topics([topic])["topics"][0]["error_code"] == 0
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_validate_only(admin: Any, topic: str) -> None:
    created = admin.create_topics([NewTopic(topic, 3, 1)], validate_only=True)["topics"][0]
    assert (created["error_code"], created["num_partitions"]) == (0, 3)
    assert topic not in admin.list_topics()


def test_describe_topic_partitions(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 5, 1)])
    found = admin.describe_topic_partitions([topic])["topics"][0]
    assert (found["name"], found["error_code"], found["is_internal"]) == (topic, 0, False)
    assert [partition["partition_index"] for partition in found["partitions"]] == [0, 1, 2, 3, 4]


def test_create_partitions(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.create_partitions({topic: NewPartitions(3)})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 3
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_partitions({topic: NewPartitions(2)})


@pytest.mark.parametrize("incremental", [False, True])
def test_alter_and_reset_configs(admin: Any, topic: str, incremental: bool) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "70000", "segment.bytes": "2000000"})
    admin.alter_configs([change], incremental=incremental)
    found = topic_configs(admin, topic)
    assert (found["retention.ms"]["value"], found["segment.bytes"]["value"]) == ("70000", "2000000")
    assert found["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert found["retention.ms"]["synonyms"][0]["value"] == "70000"
    assert found["retention.ms"]["config_type"] == "LONG"
    reset = ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])
    admin.reset_configs([reset], incremental=incremental)
    found = topic_configs(admin, topic)
    assert (found["retention.ms"]["value"], found["segment.bytes"]["value"]) == ("604800000", "2000000")


def test_validate_only_alters_nothing(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    change = ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})
    admin.alter_configs([change], validate_only=True)
    assert topic_configs(admin, topic)["cleanup.policy"]["value"] == "delete"


def test_list_offsets(bootstrap: str, admin: Any, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(20))
    partition = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        found: int = admin.list_partition_offsets({partition: spec})[partition].offset
        return found

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 20
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 19
    assert offset(OffsetSpec.EARLIEST_LOCAL) == 0
    assert offset(OffsetSpec.LATEST_TIERED) == -1
    assert offset(OffsetTimestamp(FIRST_TIMESTAMP_MS + 5 * TIMESTAMP_STEP_MS)) == 5


def test_delete_records(bootstrap: str, admin: Any, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(20))
    partition = TopicPartition(topic, 0)
    admin.delete_records({partition: 7})
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 7
    assert CLIENT.consume(bootstrap, topic, 13) == make_samples(20)[7:]
    admin.delete_records({partition: -1})
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 20
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        admin.delete_records({partition: 21})


def test_log_directories(bootstrap: str, admin: Any, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, make_samples(20))
    directories = [directory for broker in admin.describe_log_dirs() for directory in broker["log_dirs"]]
    assert all(directory["error_code"] == 0 for directory in directories)
    partitions = [
        partition
        for directory in directories
        for found in directory["topics"]
        if found["name"] == topic
        for partition in found["partitions"]
    ]
    assert [partition["partition_index"] for partition in partitions] == [0]
    assert partitions[0]["partition_size"] > 2_000


def test_the_cluster_and_its_config_resources(bootstrap: str, admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    cluster = admin.describe_cluster()
    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
    assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"]
    resources = admin.list_config_resources()
    assert topic in resources["topic"]
    assert resources["broker"] == [str(cluster["brokers"][0]["broker_id"])]


def test_active_producers(bootstrap: str, admin: Any, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for _ in range(3):
        producer.send(topic, b"v", partition=0).get(TIMEOUT_S)
    producer.close(timeout=TIMEOUT_S)
    partition = TopicPartition(topic, 0)
    states = admin.describe_producers([partition])[partition].active_producers
    assert [state.last_sequence for state in states] == [2]
