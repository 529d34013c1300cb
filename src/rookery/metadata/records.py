"""The records of the metadata log, byte for byte as Kafka 4 writes them, so that Kafka's tools can read the log.

The value of a record is: frame version (1), api key and version as unsigned varints, then the fields, then the tagged
fields. `docs/formats/metadata-log.md` has a worked example. The fields have the same meaning as in Kafka; `image` has
the effect of each record on the cluster.

The version of a record depends on the cluster's `metadata.version`: a node that supports only a lower level must be
able to read the log. A field that a version lacks has its default value in a cluster of that level.
"""

from dataclasses import field
from typing import ClassVar, TypeAlias
from uuid import UUID

from rookery.base.errors import CorruptionError, ProtocolError
from rookery.base.types import Buffer, LeaderEpoch, NodeId, PartitionIndex, ProducerId, TopicId, TopicName
from rookery.base.values import value_class
from rookery.protocol import structures, wire
from rookery.protocol.structures import Field, Schema

_FRAME_VERSION = 1
_NODE_IDS = structures.array(structures.INT32)
_UUIDS = structures.array(structures.UUID)

SAME_LEADER: NodeId = -2
SAME_RECOVERY_STATE = -1
# The newest `metadata.version`, Kafka's 4.3-IV0.
METADATA_VERSION_MAX = 30
# Stands for a replica's directory that the controller does not know (KIP-858).
UNASSIGNED_DIRECTORY = UUID(int=0)


@value_class
class BrokerEndpoint:
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("name", structures.STRING),
            Field("host", structures.STRING),
            Field("port", structures.UINT16),
            Field("security_protocol", structures.INT16),
        ),
    )
    name: str
    host: str
    port: int
    security_protocol: int = 0


@value_class
class BrokerFeature:
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("name", structures.STRING),
            Field("min_supported_version", structures.INT16),
            Field("max_supported_version", structures.INT16),
        ),
    )
    name: str
    min_supported_version: int
    max_supported_version: int


@value_class(kw_only=True)
class RegisterBrokerRecord:
    API_KEY: ClassVar = 0
    SCHEMA: ClassVar = Schema(
        4,
        (
            Field("broker_id", structures.INT32),
            Field("is_migrating", structures.BOOL, since=2),
            Field("incarnation_id", structures.UUID),
            Field("broker_epoch", structures.INT64),
            Field("endpoints", structures.array(structures.structure(BrokerEndpoint))),
            Field("features", structures.array(structures.structure(BrokerFeature))),
            Field("rack", structures.NULLABLE_STRING),
            Field("fenced", structures.BOOL),
            Field("in_controlled_shutdown", structures.BOOL, since=1),
            Field("log_directories", _UUIDS, since=3, tag=0),
            Field("cordoned_directories", _UUIDS, since=4, tag=1),
        ),
    )
    broker_id: NodeId
    is_migrating: bool = False
    incarnation_id: UUID
    broker_epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_directories: tuple[UUID, ...] = ()
    # None until the broker's first heartbeat.
    cordoned_directories: tuple[UUID, ...] | None = None


@value_class
class UnregisterBrokerRecord:
    API_KEY: ClassVar = 1
    SCHEMA: ClassVar = Schema(0, (Field("broker_id", structures.INT32), Field("broker_epoch", structures.INT64)))
    broker_id: NodeId
    broker_epoch: int


@value_class
class TopicRecord:
    API_KEY: ClassVar = 2
    SCHEMA: ClassVar = Schema(0, (Field("name", structures.STRING), Field("topic_id", structures.UUID)))
    name: TopicName
    topic_id: TopicId


@value_class(kw_only=True)
class PartitionRecord:
    """A new partition, or the state of one in a snapshot. `elr` and `last_known_elr` of None stand for empty ones."""

    API_KEY: ClassVar = 3
    SCHEMA: ClassVar = Schema(
        2,
        (
            Field("partition_id", structures.INT32),
            Field("topic_id", structures.UUID),
            Field("replicas", _NODE_IDS),
            Field("isr", _NODE_IDS),
            Field("removing_replicas", _NODE_IDS),
            Field("adding_replicas", _NODE_IDS),
            Field("leader", structures.INT32),
            Field("leader_recovery_state", structures.INT8, tag=0),
            Field("leader_epoch", structures.INT32),
            Field("partition_epoch", structures.INT32),
            Field("directories", _UUIDS, since=1),
            Field("elr", _NODE_IDS, since=2, tag=1),
            Field("last_known_elr", _NODE_IDS, since=2, tag=2),
        ),
    )
    partition_id: PartitionIndex
    topic_id: TopicId
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...] = ()
    adding_replicas: tuple[NodeId, ...] = ()
    leader: NodeId
    leader_recovery_state: int = 0
    leader_epoch: LeaderEpoch = 0
    partition_epoch: int = 0
    directories: tuple[UUID, ...] = ()
    elr: tuple[NodeId, ...] | None = None
    last_known_elr: tuple[NodeId, ...] | None = None


@value_class(kw_only=True)
class PartitionChangeRecord:
    """A change of a partition. Fields that are None, `SAME_LEADER` or `SAME_RECOVERY_STATE` keep their value."""

    API_KEY: ClassVar = 5
    SCHEMA: ClassVar = Schema(
        2,
        (
            Field("partition_id", structures.INT32),
            Field("topic_id", structures.UUID),
            Field("isr", _NODE_IDS, tag=0),
            Field("leader", structures.INT32, tag=1),
            Field("replicas", _NODE_IDS, tag=2),
            Field("removing_replicas", _NODE_IDS, tag=3),
            Field("adding_replicas", _NODE_IDS, tag=4),
            Field("leader_recovery_state", structures.INT8, tag=5),
            Field("elr", _NODE_IDS, since=2, tag=6),
            Field("last_known_elr", _NODE_IDS, since=2, tag=7),
            Field("directories", _UUIDS, since=1, tag=8),
        ),
    )
    partition_id: PartitionIndex
    topic_id: TopicId
    isr: tuple[NodeId, ...] | None = None
    leader: NodeId = SAME_LEADER
    replicas: tuple[NodeId, ...] | None = None
    removing_replicas: tuple[NodeId, ...] | None = None
    adding_replicas: tuple[NodeId, ...] | None = None
    leader_recovery_state: int = SAME_RECOVERY_STATE
    directories: tuple[UUID, ...] | None = None
    elr: tuple[NodeId, ...] | None = None
    last_known_elr: tuple[NodeId, ...] | None = None


@value_class
class ConfigRecord:
    """A config of a topic or broker. A value of None removes the key."""

    API_KEY: ClassVar = 4
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("resource_type", structures.INT8),
            Field("resource_name", structures.STRING),
            Field("name", structures.STRING),
            Field("value", structures.NULLABLE_STRING),
        ),
    )
    resource_type: int
    resource_name: str
    name: str
    value: str | None


@value_class
class FenceBrokerRecord:
    API_KEY: ClassVar = 7
    SCHEMA: ClassVar = Schema(0, (Field("broker_id", structures.INT32), Field("broker_epoch", structures.INT64)))
    broker_id: NodeId
    broker_epoch: int


@value_class
class UnfenceBrokerRecord:
    API_KEY: ClassVar = 8
    SCHEMA: ClassVar = Schema(0, (Field("broker_id", structures.INT32), Field("broker_epoch", structures.INT64)))
    broker_id: NodeId
    broker_epoch: int


@value_class
class RemoveTopicRecord:
    API_KEY: ClassVar = 9
    SCHEMA: ClassVar = Schema(0, (Field("topic_id", structures.UUID),))
    topic_id: TopicId


@value_class
class FeatureLevelRecord:
    API_KEY: ClassVar = 12
    SCHEMA: ClassVar = Schema(0, (Field("name", structures.STRING), Field("feature_level", structures.INT16)))
    name: str
    feature_level: int


@value_class
class ProducerIdsRecord:
    API_KEY: ClassVar = 15
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("broker_id", structures.INT32),
            Field("broker_epoch", structures.INT64),
            Field("next_producer_id", structures.INT64),
        ),
    )
    broker_id: NodeId
    broker_epoch: int
    next_producer_id: ProducerId


@value_class(kw_only=True)
class BrokerRegistrationChangeRecord:
    """A change of a broker's registration.

    `fenced`: 1 fences the broker, -1 unfences it, 0 changes nothing. `in_controlled_shutdown`: 1 begins the shutdown, 0
    changes nothing. `log_directories` are those that are online; empty if they did not change.
    """

    API_KEY: ClassVar = 17
    SCHEMA: ClassVar = Schema(
        3,
        (
            Field("broker_id", structures.INT32),
            Field("broker_epoch", structures.INT64),
            Field("fenced", structures.INT8, tag=0),
            Field("in_controlled_shutdown", structures.INT8, since=1, tag=1),
            Field("log_directories", _UUIDS, since=2, tag=2),
            Field("cordoned_directories", _UUIDS, since=3, tag=3),
        ),
    )
    broker_id: NodeId
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_directories: tuple[UUID, ...] = ()
    cordoned_directories: tuple[UUID, ...] | None = None


@value_class(kw_only=True)
class RegisterControllerRecord:
    API_KEY: ClassVar = 27
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("controller_id", structures.INT32),
            Field("incarnation_id", structures.UUID),
            Field("is_migration_ready", structures.BOOL),
            Field("endpoints", structures.array(structures.structure(BrokerEndpoint))),
            Field("features", structures.array(structures.structure(BrokerFeature))),
        ),
    )
    controller_id: NodeId
    incarnation_id: UUID
    is_migration_ready: bool = False
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()


@value_class
class ClearElrRecord:
    """Empties the eligible leader replicas of a topic's partitions, or of all topics if the name is empty."""

    API_KEY: ClassVar = 28
    SCHEMA: ClassVar = Schema(0, (Field("topic_name", structures.STRING),))
    topic_name: TopicName


@value_class(kw_only=True)
class AccessControlEntryRecord:
    API_KEY: ClassVar = 18
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("id", structures.UUID),
            Field("resource_type", structures.INT8),
            Field("resource_name", structures.STRING),
            Field("pattern_type", structures.INT8),
            Field("principal", structures.STRING),
            Field("host", structures.STRING),
            Field("operation", structures.INT8),
            Field("permission_type", structures.INT8),
        ),
    )
    id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@value_class
class RemoveAccessControlEntryRecord:
    API_KEY: ClassVar = 19
    SCHEMA: ClassVar = Schema(0, (Field("id", structures.UUID),))
    id: UUID


@value_class(kw_only=True)
class UserScramCredentialRecord:
    API_KEY: ClassVar = 11
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("name", structures.STRING),
            Field("mechanism", structures.INT8),
            Field("salt", structures.BYTES),
            Field("stored_key", structures.BYTES),
            Field("server_key", structures.BYTES),
            Field("iterations", structures.INT32),
        ),
    )
    name: str
    mechanism: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@value_class
class RemoveUserScramCredentialRecord:
    API_KEY: ClassVar = 22
    SCHEMA: ClassVar = Schema(0, (Field("name", structures.STRING), Field("mechanism", structures.INT8)))
    name: str
    mechanism: int


@value_class
class QuotaEntityPart:
    SCHEMA: ClassVar = Schema(
        0, (Field("entity_type", structures.STRING), Field("entity_name", structures.NULLABLE_STRING))
    )
    entity_type: str
    # None is the default of the type.
    entity_name: str | None


@value_class(kw_only=True)
class ClientQuotaRecord:
    """A quota of clients. `value` counts only if `remove` is false."""

    API_KEY: ClassVar = 14
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("entity", structures.array(structures.structure(QuotaEntityPart))),
            Field("key", structures.STRING),
            Field("value", structures.FLOAT64),
            Field("remove", structures.BOOL),
        ),
    )
    entity: tuple[QuotaEntityPart, ...]
    key: str
    value: float = 0.0
    remove: bool = False


@value_class(kw_only=True)
class DelegationTokenRecord:
    """A token, or the new expiry of one. Principals are texts as User:alice; times are in ms since 1970."""

    API_KEY: ClassVar = 10
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("owner", structures.STRING),
            Field("requester", structures.STRING),
            Field("renewers", structures.array(structures.STRING)),
            Field("issue_timestamp", structures.INT64),
            Field("max_timestamp", structures.INT64),
            Field("expiration_timestamp", structures.INT64),
            Field("token_id", structures.STRING),
        ),
    )
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


@value_class
class RemoveDelegationTokenRecord:
    API_KEY: ClassVar = 26
    SCHEMA: ClassVar = Schema(0, (Field("token_id", structures.STRING),))
    token_id: str


@value_class
class NoOpRecord:
    API_KEY: ClassVar = 20
    SCHEMA: ClassVar = Schema(0, ())


# The records about users and what they may do.
SecurityRecord: TypeAlias = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)

MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | NoOpRecord
    | SecurityRecord
)

RECORD_TYPES: tuple[type[MetadataRecord], ...] = MetadataRecord.__args__
_TYPES_BY_KEY = {kind.API_KEY: kind for kind in RECORD_TYPES}


# The record versions of lower levels of `metadata.version`: the level that brought the next version, and the version
# below it. The types that are not listed have one version at all supported levels.
_OLDER_VERSIONS: dict[type[MetadataRecord], tuple[int, int]] = {
    RegisterBrokerRecord: (30, 3),
    BrokerRegistrationChangeRecord: (30, 2),
    PartitionRecord: (23, 1),
    PartitionChangeRecord: (23, 1),
}


def encode_record(record: MetadataRecord, *, metadata_version: int = METADATA_VERSION_MAX) -> bytes:
    """Return the value of the log record for `record`, in the version that the cluster's `metadata_version` has."""
    version = record.SCHEMA.version
    if metadata_version < METADATA_VERSION_MAX:
        level, older = _OLDER_VERSIONS.get(type(record), (0, version))
        version = older if metadata_version < level else version
    out = bytearray((_FRAME_VERSION,))
    wire.write_varint(out, record.API_KEY)
    wire.write_varint(out, version)
    structures.write_fields(out, record, version=version)
    return bytes(out)


def decode_record(data: Buffer) -> MetadataRecord:
    """Decode the value of a log record; raises CorruptionError if it is malformed or of an unknown type."""
    try:
        frame_version, position = wire.read_varint(data, 0)
        api_key, position = wire.read_varint(data, position)
        version, position = wire.read_varint(data, position)
    except (ProtocolError, *wire.MALFORMED) as error:
        raise CorruptionError("a metadata record is cut off") from error
    if frame_version != _FRAME_VERSION or api_key not in _TYPES_BY_KEY:
        raise CorruptionError(f"unknown metadata record: frame version {frame_version}, type {api_key}")
    return structures.decode(_TYPES_BY_KEY[api_key], data, position, version=version)
