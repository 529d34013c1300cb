"""Every version of every API that the broker advertises, over a real socket, with a check of its effects.

The clients of the other modules use one version each, but brokers must serve older and newer clients too. The scenarios
accept any version: the codec leaves out the fields that a version does not have.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TOPIC_ID
from rookery.protocol.api import DEFINED, SERVED, ApiKey
from rookery.protocol.message import Message
from rookery.records.record import Record, build_batch, decode_records
from tests.support.apis import MULTI_REQUEST_APIS
from tests.support.wire import WireClient

TIMEOUT_MS = 30_000
TIMESTAMPS_MS = (1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000)
VALUES = (b"one", b"two", b"three")
TOPIC_RESOURCE = 2
FETCH_BY_ID = PRODUCE_BY_ID = 13


class Wire(SimpleNamespace):
    """A connection, and a topic with one partition that has `VALUES`."""

    client: WireClient
    topic: str
    topic_id: UUID

    def call(self, api_key: ApiKey, version: int, **fields: object) -> Message:
        return self.client.call(api_key, version, **fields)


@pytest.fixture
def wire(bootstrap: str, topic: str) -> Iterator[Wire]:
    with WireClient(bootstrap) as client:
        created = create_topic(client, 7, topic)
        assert created.error_code == 0
        wire = Wire(client=client, topic=topic, topic_id=created.topic_id)
        assert produce(wire, 9) == (ErrorCode.NONE, 0)
        yield wire


def create_topic(client: WireClient, version: int, name: str, **fields: object) -> Message:
    topic = Message(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    response = client.call(
        ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False, **fields
    )
    created: Message = response.topics[0]
    return created


def produce(wire: Wire, version: int) -> tuple[ErrorCode, int]:
    records = [
        Record(offset, timestamp_ms, b"key", value, ())
        for offset, (timestamp_ms, value) in enumerate(zip(TIMESTAMPS_MS, VALUES, strict=True))
    ]
    data = Message(
        name=wire.topic,
        topic_id=wire.topic_id,
        partition_data=[Message(index=0, records=bytes(build_batch(records)))],
    )
    response = wire.call(
        ApiKey.PRODUCE, version, transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data]
    )
    result = response.responses[0].partition_responses[0]
    return ErrorCode(result.error_code), result.base_offset


def check_produce(wire: Wire, version: int) -> None:
    assert produce(wire, version) == (ErrorCode.NONE, len(VALUES))


def check_fetch(wire: Wire, version: int) -> None:
    partition = Message(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=2**20,
    )
    response = wire.call(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2**20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=wire.topic, topic_id=wire.topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    assert response.get("error_code", 0) == 0
    fetched = response.responses[0].partitions[0]
    assert (fetched.error_code, fetched.high_watermark) == (0, len(VALUES))
    assert tuple(record.value for record in decode_records(fetched.records)) == VALUES
    if version >= FETCH_BY_ID:
        assert response.responses[0].topic_id == wire.topic_id


def check_list_offsets(wire: Wire, version: int) -> None:
    expected = {-1: 3, -2: 0, TIMESTAMPS_MS[1]: 1, TIMESTAMPS_MS[2] + 1: -1}
    if version >= 7:
        expected[-3] = 2
    for timestamp, offset in expected.items():
        partition = Message(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
        response = wire.call(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=-1,
            isolation_level=0,
            topics=[Message(name=wire.topic, partitions=[partition])],
            timeout_ms=TIMEOUT_MS,
        )
        found = response.topics[0].partitions[0]
        assert (found.error_code, found.offset) == (0, offset), timestamp


def check_metadata(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.METADATA,
        version,
        topics=[Message(topic_id=NO_TOPIC_ID, name=wire.topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, wire.topic)
    assert [partition.partition_index for partition in topic.partitions] == [0]
    assert topic.partitions[0].leader_id in [broker.node_id for broker in response.brokers]
    if version >= 10:
        assert topic.topic_id == wire.topic_id
    if version >= 12:
        by_id = wire.call(
            ApiKey.METADATA,
            version,
            topics=[Message(topic_id=wire.topic_id, name=None)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        assert by_id.topics[0].name == wire.topic


def check_api_versions(wire: Wire, version: int) -> None:
    response = wire.call(ApiKey.API_VERSIONS, version, client_software_name="wire", client_software_version="1")
    assert response.error_code == 0
    ranges = {found.api_key: (found.min_version, found.max_version) for found in response.api_keys}
    assert ranges[ApiKey.PRODUCE][0] == 0
    assert SERVED.keys() <= ranges.keys()


def check_create_topics(wire: Wire, version: int) -> None:
    created = create_topic(wire.client, version, wire.topic + "-new")
    assert created.error_code == 0
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (1, 1)
    again = create_topic(wire.client, version, wire.topic + "-new")
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def check_delete_topics(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.DELETE_TOPICS,
        version,
        topic_names=[wire.topic],
        topics=[Message(name=None, topic_id=wire.topic_id)],
        timeout_ms=TIMEOUT_MS,
    )
    assert [deleted.error_code for deleted in response.responses] == [0]


def check_delete_records(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.DELETE_RECORDS,
        version,
        topics=[Message(name=wire.topic, partitions=[Message(partition_index=0, offset=2)])],
        timeout_ms=TIMEOUT_MS,
    )
    deleted = response.topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (0, 2)


def check_init_producer_id(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id=None,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert response.error_code == 0
    assert response.producer_id >= 0
    assert response.producer_epoch == 0


def check_offset_for_leader_epoch(wire: Wire, version: int) -> None:
    partition = Message(partition=0, current_leader_epoch=-1, leader_epoch=0)
    response = wire.call(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-2,
        topics=[Message(topic=wire.topic, partitions=[partition])],
    )
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, len(VALUES))


def config_value(wire: Wire, version: int, name: str) -> str:
    resource = Message(resource_type=TOPIC_RESOURCE, resource_name=wire.topic, configuration_keys=[name])
    response = wire.call(
        ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = response.results
    assert result.error_code == 0
    assert [config.name for config in result.configs] == [name]
    value: str = result.configs[0].value
    return value


def check_describe_configs(wire: Wire, version: int) -> None:
    assert config_value(wire, version, "segment.bytes") == "1073741824"


def check_alter_configs(wire: Wire, version: int) -> None:
    resource = Message(
        resource_type=TOPIC_RESOURCE,
        resource_name=wire.topic,
        configs=[Message(name="segment.bytes", value="2000000")],
    )
    response = wire.call(ApiKey.ALTER_CONFIGS, version, resources=[resource], validate_only=False)
    assert [altered.error_code for altered in response.responses] == [0]
    assert config_value(wire, 4, "segment.bytes") == "2000000"


def check_incremental_alter_configs(wire: Wire, version: int) -> None:
    resource = Message(
        resource_type=TOPIC_RESOURCE,
        resource_name=wire.topic,
        configs=[Message(name="segment.bytes", config_operation=0, value="3000000")],
    )
    response = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[resource], validate_only=False)
    assert [altered.error_code for altered in response.responses] == [0]
    assert config_value(wire, 4, "segment.bytes") == "3000000"


def check_describe_log_dirs(wire: Wire, version: int) -> None:
    response = wire.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=[Message(topic=wire.topic, partitions=[0])])
    sizes = [
        partition.partition_size
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
    ]
    assert len(sizes) == 1
    assert sizes[0] > 0


def check_create_partitions(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[Message(name=wire.topic, count=3, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    assert [result.error_code for result in response.results] == [0]


def check_update_features(wire: Wire, version: int) -> None:
    """Use a change that is rejected, because other tests share the broker."""
    change = Message(feature="no.such.feature", max_version_level=1, allow_downgrade=False, upgrade_type=1)
    response = wire.call(ApiKey.UPDATE_FEATURES, version, timeout_ms=TIMEOUT_MS, feature_updates=[change])
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "no.such.feature" in response.error_message


def check_describe_cluster(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=True,
        endpoint_type=1,
        include_fenced_brokers=False,
    )
    assert response.error_code == 0
    assert len(response.brokers) == 1


def check_describe_producers(wire: Wire, version: int) -> None:
    response = wire.call(ApiKey.DESCRIBE_PRODUCERS, version, topics=[Message(name=wire.topic, partition_indexes=[0])])
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.active_producers) == (0, [])


def check_list_config_resources(wire: Wire, version: int) -> None:
    response = wire.call(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=[TOPIC_RESOURCE])
    assert response.error_code == 0
    # Version 0 lists only client metrics, of which there are none.
    if version >= 1:
        assert wire.topic in [resource.resource_name for resource in response.config_resources]


def check_describe_topic_partitions(wire: Wire, version: int) -> None:
    response = wire.call(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        version,
        topics=[Message(name=wire.topic)],
        response_partition_limit=100,
        cursor=None,
    )
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, wire.topic, wire.topic_id)
    assert response.next_cursor is None


def check_sasl_handshake(wire: Wire, version: int) -> None:
    response = wire.call(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


def check_sasl_authenticate(wire: Wire, version: int) -> None:
    response = wire.call(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"")
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


CHECKS: dict[ApiKey, Callable[[Wire, int], None]] = {
    ApiKey[name.removeprefix("check_").upper()]: check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


VERSIONS = [
    (key, version)
    for key in SERVED
    if key not in MULTI_REQUEST_APIS
    for version in range(DEFINED[key].minimum, DEFINED[key].maximum + 1)
]


@pytest.mark.parametrize(
    ("api_key", "version"),
    VERSIONS,
    ids=lambda value: value.name.lower() if isinstance(value, ApiKey) else f"v{value}",
)
def test_version(wire: Wire, api_key: ApiKey, version: int) -> None:
    CHECKS[api_key](wire, version)
