"""The APIs of Kafka's protocol: their keys, the defined versions, and the versions that nodes serve.

`DEFINED` repeats the version ranges of kio's schema as literals, so that no schema is imported only to check whether a
version is known or its header is flexible (KIP-482); a test compares it with the schema. `SERVED` and
`SERVED_BY_CONTROLLERS` are the content of the ApiVersions responses of the two kinds of listeners.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class ApiKey(IntEnum):
    """Kafka's API keys, with Kafka's names. The four that brokers used with ZooKeeper have no versions any more."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


# As `flexible_from`: no version is flexible. A version is an int16, so that none is as high.
NEVER: Final = 32_768


class ApiVersions(NamedTuple):
    """The defined versions of one API, both ends included, and the first flexible one."""

    minimum: int
    maximum: int
    flexible_from: int


class VersionRange(NamedTuple):
    """The advertised versions of one API, both ends included."""

    minimum: int
    maximum: int


DEFINED: Final[Mapping[int, ApiVersions]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ApiVersions(3, 13, 9),
        ApiKey.FETCH: ApiVersions(4, 18, 12),
        ApiKey.LIST_OFFSETS: ApiVersions(1, 11, 6),
        ApiKey.METADATA: ApiVersions(0, 13, 9),
        ApiKey.OFFSET_COMMIT: ApiVersions(2, 10, 8),
        ApiKey.OFFSET_FETCH: ApiVersions(1, 10, 6),
        ApiKey.FIND_COORDINATOR: ApiVersions(0, 6, 3),
        ApiKey.JOIN_GROUP: ApiVersions(0, 9, 6),
        ApiKey.HEARTBEAT: ApiVersions(0, 4, 4),
        ApiKey.LEAVE_GROUP: ApiVersions(0, 5, 4),
        ApiKey.SYNC_GROUP: ApiVersions(0, 5, 4),
        ApiKey.DESCRIBE_GROUPS: ApiVersions(0, 6, 5),
        ApiKey.LIST_GROUPS: ApiVersions(0, 5, 3),
        ApiKey.SASL_HANDSHAKE: ApiVersions(0, 1, NEVER),
        ApiKey.API_VERSIONS: ApiVersions(0, 4, 3),
        ApiKey.CREATE_TOPICS: ApiVersions(2, 7, 5),
        ApiKey.DELETE_TOPICS: ApiVersions(1, 6, 4),
        ApiKey.DELETE_RECORDS: ApiVersions(0, 2, 2),
        ApiKey.INIT_PRODUCER_ID: ApiVersions(0, 6, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiVersions(2, 4, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: ApiVersions(0, 5, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: ApiVersions(0, 4, 3),
        ApiKey.END_TXN: ApiVersions(0, 5, 3),
        ApiKey.WRITE_TXN_MARKERS: ApiVersions(1, 2, 1),
        ApiKey.TXN_OFFSET_COMMIT: ApiVersions(0, 5, 3),
        ApiKey.DESCRIBE_ACLS: ApiVersions(1, 3, 2),
        ApiKey.CREATE_ACLS: ApiVersions(1, 3, 2),
        ApiKey.DELETE_ACLS: ApiVersions(1, 3, 2),
        ApiKey.DESCRIBE_CONFIGS: ApiVersions(1, 4, 4),
        ApiKey.ALTER_CONFIGS: ApiVersions(0, 2, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: ApiVersions(1, 2, 2),
        ApiKey.DESCRIBE_LOG_DIRS: ApiVersions(1, 5, 2),
        ApiKey.SASL_AUTHENTICATE: ApiVersions(0, 2, 2),
        ApiKey.CREATE_PARTITIONS: ApiVersions(0, 3, 2),
        ApiKey.CREATE_DELEGATION_TOKEN: ApiVersions(1, 3, 2),
        ApiKey.RENEW_DELEGATION_TOKEN: ApiVersions(1, 2, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: ApiVersions(1, 2, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiVersions(1, 3, 2),
        ApiKey.DELETE_GROUPS: ApiVersions(0, 2, 2),
        ApiKey.ELECT_LEADERS: ApiVersions(0, 2, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiVersions(0, 1, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiVersions(0, 1, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiVersions(0, 0, 0),
        ApiKey.OFFSET_DELETE: ApiVersions(0, 0, NEVER),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiVersions(0, 1, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: ApiVersions(0, 1, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiVersions(0, 0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiVersions(0, 0, 0),
        ApiKey.VOTE: ApiVersions(0, 2, 0),
        ApiKey.BEGIN_QUORUM_EPOCH: ApiVersions(0, 1, 1),
        ApiKey.END_QUORUM_EPOCH: ApiVersions(0, 1, 1),
        ApiKey.DESCRIBE_QUORUM: ApiVersions(0, 2, 0),
        ApiKey.ALTER_PARTITION: ApiVersions(2, 3, 2),
        ApiKey.UPDATE_FEATURES: ApiVersions(0, 2, 0),
        ApiKey.ENVELOPE: ApiVersions(0, 0, 0),
        ApiKey.FETCH_SNAPSHOT: ApiVersions(0, 1, 0),
        ApiKey.DESCRIBE_CLUSTER: ApiVersions(0, 2, 0),
        ApiKey.DESCRIBE_PRODUCERS: ApiVersions(0, 0, 0),
        ApiKey.BROKER_REGISTRATION: ApiVersions(0, 4, 0),
        ApiKey.BROKER_HEARTBEAT: ApiVersions(0, 2, 0),
        ApiKey.UNREGISTER_BROKER: ApiVersions(0, 0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: ApiVersions(0, 0, 0),
        ApiKey.LIST_TRANSACTIONS: ApiVersions(0, 2, 0),
        ApiKey.ALLOCATE_PRODUCER_IDS: ApiVersions(0, 0, 0),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiVersions(0, 1, 0),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ApiVersions(0, 1, 0),
        ApiKey.CONTROLLER_REGISTRATION: ApiVersions(0, 0, 0),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiVersions(0, 0, 0),
        ApiKey.PUSH_TELEMETRY: ApiVersions(0, 0, 0),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiVersions(0, 0, 0),
        ApiKey.LIST_CONFIG_RESOURCES: ApiVersions(0, 1, 0),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiVersions(0, 0, 0),
        ApiKey.SHARE_GROUP_HEARTBEAT: ApiVersions(1, 1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: ApiVersions(1, 1, 1),
        ApiKey.SHARE_FETCH: ApiVersions(1, 2, 1),
        ApiKey.SHARE_ACKNOWLEDGE: ApiVersions(1, 2, 1),
        ApiKey.ADD_RAFT_VOTER: ApiVersions(0, 1, 0),
        ApiKey.REMOVE_RAFT_VOTER: ApiVersions(0, 0, 0),
        ApiKey.UPDATE_RAFT_VOTER: ApiVersions(0, 0, 0),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: ApiVersions(0, 0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: ApiVersions(0, 0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: ApiVersions(0, 1, 0),
        ApiKey.DELETE_SHARE_GROUP_STATE: ApiVersions(0, 0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ApiVersions(0, 1, 0),
        ApiKey.STREAMS_GROUP_HEARTBEAT: ApiVersions(0, 0, 0),
        ApiKey.STREAMS_GROUP_DESCRIBE: ApiVersions(0, 0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiVersions(0, 1, 0),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiVersions(0, 0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiVersions(0, 0, 0),
    }
)

_BROKER_KEYS: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DELETE_GROUPS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)

_CONTROLLER_KEYS: Final = (
    ApiKey.FETCH,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)

# The advertised minimum is below the served one: older librdkafka does not compress if v0 is missing (KAFKA-18659).
_ADVERTISED_MINIMUM: Final = MappingProxyType({ApiKey.PRODUCE: 0})

SERVED: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {
        key: VersionRange(_ADVERTISED_MINIMUM.get(key, DEFINED[key].minimum), DEFINED[key].maximum)
        for key in _BROKER_KEYS
    }
)
SERVED_BY_CONTROLLERS: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {key: VersionRange(DEFINED[key].minimum, DEFINED[key].maximum) for key in _CONTROLLER_KEYS}
)


# Sets and a dict for the checks that every request needs: one lookup each.
_DEFINED_VERSIONS: Final = frozenset(
    (key, version) for key, versions in DEFINED.items() for version in range(versions.minimum, versions.maximum + 1)
)
_SERVED_VERSIONS: Final = frozenset((key, version) for key, version in _DEFINED_VERSIONS if key in SERVED)
_FLEXIBLE_FROM: Final = {int(key): versions.flexible_from for key, versions in DEFINED.items()}


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, as in `CreateTopics`."""
    return "".join(part.capitalize() for part in ApiKey(api_key).name.split("_"))


def is_defined(api_key: int, version: int) -> bool:
    """Return whether the schema has this version, so that the codec can read and write it."""
    return (api_key, version) in _DEFINED_VERSIONS


def is_served(api_key: int, version: int) -> bool:
    """Return whether brokers handle requests of this version. A version may be advertised but not served."""
    return (api_key, version) in _SERVED_VERSIONS


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether this version has compact lengths and tagged fields. Versions newer than the defined ones count."""
    return version >= _FLEXIBLE_FROM.get(api_key, NEVER)
