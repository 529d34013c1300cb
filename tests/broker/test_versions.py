"""Every version of every served API: a request as a client of that version sends it succeeds."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.protocol.api import DEFINED, SERVED, ApiKey
from rookery.protocol.message import Message
from tests.broker.harness import CLUSTER_ID, NODE_ID, Broker, batch, running
from tests.support.apis import MULTI_REQUEST_APIS

Check = Callable[[Broker, int], Awaitable[None]]

CHECKS: dict[ApiKey, Check] = {}


VERSIONS = [
    (key, version)
    for key in SERVED
    if key not in MULTI_REQUEST_APIS
    for version in range(DEFINED[key].minimum, DEFINED[key].maximum + 1)
]


def check(api_key: ApiKey) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS[api_key] = function
        return function

    return register


@pytest.mark.parametrize(
    ("api_key", "version"),
    VERSIONS,
    ids=lambda value: value.name if isinstance(value, ApiKey) else f"v{value}",
)
def test_success(tmp_path: Path, api_key: ApiKey, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            broker.append("orders", b"a", b"b", b"c")
            await CHECKS[api_key](broker, version)

    asyncio.run(main())


def topic_of(broker: Broker, version: int, ids_since: int, name_field: str = "name") -> dict[str, Any]:
    if version >= ids_since:
        return {"topic_id": broker.services.image.topics["orders"].topic_id}
    return {name_field: "orders"}


@check(ApiKey.PRODUCE)
async def check_produce(broker: Broker, version: int) -> None:
    for acks in (-1, 1):
        response = broker.call_now(
            ApiKey.PRODUCE,
            version,
            acks=acks,
            timeout_ms=60_000,
            topic_data=[
                Message(**topic_of(broker, version, 13), partition_data=[Message(index=1, records=batch(b"x", b"y"))])
            ],
        )
        (result,) = response.responses[0].partition_responses
        assert (result.index, result.error_code, result.base_offset) == (1, 0, 0 if acks == -1 else 2)
        assert result.log_append_time_ms == -1
        assert result.get("log_start_offset", 0) == 0
        assert result.get("record_errors", []) == []


@check(ApiKey.FETCH)
async def check_fetch(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=1,
        session_id=0,
        session_epoch=0,
        topics=[
            Message(
                **topic_of(broker, version, 13, "topic"),
                partitions=[Message(partition=0, fetch_offset=1, partition_max_bytes=1_000_000)],
            )
        ],
        forgotten_topics_data=[],
    )
    (result,) = response.responses[0].partitions
    assert (result.partition_index, result.error_code, result.high_watermark) == (0, 0, 3)
    assert (result.last_stable_offset, result.get("log_start_offset", 0)) == (3, 0)
    assert result.aborted_transactions == []
    assert result.get("preferred_read_replica", -1) == -1
    # The batch that holds offset 1 begins at 0.
    assert result.records[:8] == bytes(8)
    assert (response.get("session_id", 0) != 0) == (version >= 7)


@check(ApiKey.SASL_HANDSHAKE)
async def check_sasl_handshake(broker: Broker, version: int) -> None:
    """Logins do not reach the handler; a handshake that does has come at the wrong time."""
    response = broker.call_now(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@check(ApiKey.SASL_AUTHENTICATE)
async def check_sasl_authenticate(broker: Broker, version: int) -> None:
    response = broker.call_now(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"x")
    assert (response.error_code, response.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert response.error_message == "SaslAuthenticate request received after successful authentication"


@check(ApiKey.LIST_OFFSETS)
async def check_list_offsets(broker: Broker, version: int) -> None:
    expected = {-1: (3, -1), -2: (0, -1), 1_700_000_000_001: (1, 1_700_000_000_001), 1_800_000_000_000: (-1, -1)}
    if version >= 7:
        expected[-3] = (2, 1_700_000_000_002)
    if version >= 8:
        expected[-4] = (0, -1)
    if version >= 9:
        expected[-5] = (-1, -1)
    if version >= 11:
        expected[-6] = (-1, -1)
    for timestamp, (offset, timestamp_ms) in expected.items():
        response = broker.call_now(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=-1,
            isolation_level=0,
            topics=[Message(name="orders", partitions=[Message(partition_index=0, timestamp=timestamp)])],
            timeout_ms=60_000,
        )
        (result,) = response.topics[0].partitions
        assert (result.error_code, result.offset, result.timestamp) == (0, offset, timestamp_ms)
        if version >= 4 and offset >= 0:
            assert result.leader_epoch == 0


@check(ApiKey.METADATA)
async def check_metadata(broker: Broker, version: int) -> None:
    everything: dict[str, Any] = {
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    for topics in ([] if version == 0 else None, [Message(name="orders", topic_id=NO_TOPIC_ID)]):
        response = broker.call_now(ApiKey.METADATA, version, topics=topics, **everything)
        assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(NODE_ID, "localhost", 9092)]
        assert response.get("controller_id", NODE_ID) == NODE_ID
        assert response.get("cluster_id", CLUSTER_ID) == CLUSTER_ID
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.get("is_internal", False)) == (0, "orders", False)
        assert [partition.leader_id for partition in topic.partitions] == [NODE_ID, NODE_ID]
        assert [partition.replica_nodes for partition in topic.partitions] == [[NODE_ID], [NODE_ID]]
        if version >= 8:
            assert topic.topic_authorized_operations == 3576
            assert response.get("cluster_authorized_operations", 8096) == 8096
        if version >= 10:
            assert topic.topic_id == broker.services.image.topics["orders"].topic_id


@check(ApiKey.API_VERSIONS)
async def check_api_versions(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.API_VERSIONS, version, client_software_name="librdkafka", client_software_version="2.11.0-rc1"
    )
    assert response.error_code == 0
    table = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert table == {int(key): tuple(versions) for key, versions in SERVED.items()}
    if version >= 3:
        finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
        assert finalized == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "transaction.version": 2,
        }
        assert response.finalized_features_epoch >= 0
        assert broker.connection.client_software_name == "librdkafka"


@check(ApiKey.CREATE_TOPICS)
async def check_create_topics(broker: Broker, version: int) -> None:
    response = await broker.call(
        ApiKey.CREATE_TOPICS,
        version,
        topics=[
            Message(
                name="new",
                num_partitions=3,
                replication_factor=1,
                assignments=[],
                configs=[Message(name="retention.ms", value="1000")],
            )
        ],
        timeout_ms=60_000,
        validate_only=False,
    )
    (topic,) = response.topics
    assert (topic.name, topic.error_code) == ("new", 0)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert {config.name: config.value for config in topic.configs}["retention.ms"] == "1000"
    assert broker.replica("new", 2).log.config.retention_ms == 1000


@check(ApiKey.DELETE_TOPICS)
async def check_delete_topics(broker: Broker, version: int) -> None:
    topic_id = broker.services.image.topics["orders"].topic_id
    by_id = Message(name=None, topic_id=topic_id)
    response = await broker.call(
        ApiKey.DELETE_TOPICS, version, topic_names=["orders"], topics=[by_id], timeout_ms=60_000
    )
    (topic,) = response.responses
    assert (topic.name, topic.error_code) == ("orders", 0)
    assert topic.get("topic_id", topic_id) == topic_id
    assert "orders" not in broker.services.image.topics


@check(ApiKey.DELETE_RECORDS)
async def check_delete_records(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.DELETE_RECORDS,
        version,
        topics=[Message(name="orders", partitions=[Message(partition_index=0, offset=2)])],
        timeout_ms=60_000,
    )
    (result,) = response.topics[0].partitions
    assert (result.partition_index, result.low_watermark, result.error_code) == (0, 2, 0)


@check(ApiKey.INIT_PRODUCER_ID)
async def check_init_producer_id(broker: Broker, version: int) -> None:
    taken = []
    for _ in range(2):
        response = await broker.call(
            ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=60_000
        )
        assert (response.error_code, response.producer_epoch) == (0, 0)
        taken.append(response.producer_id)
    assert taken == [0, 1]


@check(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def check_offset_for_leader_epoch(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[Message(topic="orders", partitions=[Message(partition=0, current_leader_epoch=0, leader_epoch=0)])],
    )
    (result,) = response.topics[0].partitions
    assert (result.error_code, result.partition, result.leader_epoch, result.end_offset) == (0, 0, 0, 3)


@check(ApiKey.DESCRIBE_CONFIGS)
async def check_describe_configs(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[
            Message(resource_type=2, resource_name="orders", configuration_keys=["retention.ms"]),
            Message(resource_type=4, resource_name=str(NODE_ID), configuration_keys=None),
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    topic, broker_result = response.results
    (config,) = topic.configs
    assert (topic.error_code, config.name, config.value, config.config_source) == (0, "retention.ms", "604800000", 5)
    if version >= 3:
        assert config.config_type == 5
        assert config.documentation
    assert broker_result.error_code == 0
    assert {config.name for config in broker_result.configs} >= {"log.retention.hours", "num.partitions"}


@check(ApiKey.ALTER_CONFIGS)
async def check_alter_configs(broker: Broker, version: int) -> None:
    response = await broker.call(
        ApiKey.ALTER_CONFIGS,
        version,
        resources=[Message(resource_type=2, resource_name="orders", configs=[Message(name="retention.ms", value="5")])],
        validate_only=False,
    )
    (result,) = response.responses
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, "orders")
    assert broker.replica("orders").log.config.retention_ms == 5


@check(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def check_incremental_alter_configs(broker: Broker, version: int) -> None:
    change = Message(name="max.message.bytes", config_operation=0, value="100")
    response = await broker.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version,
        resources=[Message(resource_type=2, resource_name="orders", configs=[change])],
        validate_only=False,
    )
    assert response.responses[0].error_code == 0
    assert broker.replica("orders").policy.batch_size_max == 100


@check(ApiKey.DESCRIBE_LOG_DIRS)
async def check_describe_log_dirs(broker: Broker, version: int) -> None:
    response = broker.call_now(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    (directory,) = response.results
    assert directory.error_code == 0
    assert [(topic.name, len(topic.partitions)) for topic in directory.topics] == [("orders", 2)]
    assert max(partition.partition_size for partition in directory.topics[0].partitions) > 0
    if version >= 4:
        assert directory.total_bytes >= directory.usable_bytes > 0


@check(ApiKey.CREATE_PARTITIONS)
async def check_create_partitions(broker: Broker, version: int) -> None:
    response = await broker.call(
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[Message(name="orders", count=4, assignments=None)],
        timeout_ms=60_000,
        validate_only=False,
    )
    assert [(result.name, result.error_code) for result in response.results] == [("orders", 0)]
    assert broker.replica("orders", 3).log.end_offset == 0


@check(ApiKey.UPDATE_FEATURES)
async def check_update_features(broker: Broker, version: int) -> None:
    change = Message(feature="transaction.version", max_version_level=1, allow_downgrade=True, upgrade_type=2)
    response = await broker.call(ApiKey.UPDATE_FEATURES, version, timeout_ms=60_000, feature_updates=[change])
    assert (response.error_code, response.error_message) == (0, None)
    assert [row.feature for row in response.get("results", [])] == ([] if version >= 2 else ["transaction.version"])
    assert broker.services.image.features["transaction.version"] == 1


@check(ApiKey.DESCRIBE_CLUSTER)
async def check_describe_cluster(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True, include_fenced_brokers=False
    )
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, NODE_ID)
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [(NODE_ID, "localhost", 9092)]
    assert response.cluster_authorized_operations == 8096


@check(ApiKey.DESCRIBE_PRODUCERS)
async def check_describe_producers(broker: Broker, version: int) -> None:
    broker.append("orders", b"a", b"b", partition=1, producer_id=9, producer_epoch=2, base_sequence=0)
    response = broker.call_now(
        ApiKey.DESCRIBE_PRODUCERS, version, topics=[Message(name="orders", partition_indexes=[0, 1])]
    )
    first, second = response.topics[0].partitions
    assert (first.error_code, first.active_producers) == (0, [])
    (producer,) = second.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 2, 1)
    assert producer.current_txn_start_offset == -1


@check(ApiKey.LIST_CONFIG_RESOURCES)
async def check_list_config_resources(broker: Broker, version: int) -> None:
    response = broker.call_now(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=[])
    assert response.error_code == ErrorCode.NONE
    listed = [(resource.get("resource_type", 16), resource.resource_name) for resource in response.config_resources]
    assert listed == ([] if version == 0 else [(2, "orders"), (4, "1"), (8, "1")])


@check(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def check_describe_topic_partitions(broker: Broker, version: int) -> None:
    response = broker.call_now(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, topics=[], response_partition_limit=2000, cursor=None
    )
    (topic,) = response.topics
    assert (topic.name, len(topic.partitions), response.next_cursor) == ("orders", 2, None)
