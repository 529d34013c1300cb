"""Numbers of the protocol that brokers and clients share: security protocols, config resources, permissions."""

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """How a listener protects its connections, with the numbers of broker registrations."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ResourceType(IntEnum):
    """The kinds of things that have a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does with a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Where a key's value comes from, most specific first; UNKNOWN for a source that only a newer broker has."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class KeyType(IntEnum):
    """What FindCoordinator finds the coordinator of."""

    GROUP = 0
    TRANSACTION = 1


class UpgradeType(IntEnum):
    """The direction of a feature change in UpdateFeatures (KIP-778); a safe downgrade loses no metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ElectionType(IntEnum):
    """Which replica ElectLeaders chooses."""

    PREFERRED = 0
    UNCLEAN = 1


class RecoveryState(IntEnum):
    """Whether a partition's leader was elected without being in sync, and has not confirmed its log since (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class EndpointType(IntEnum):
    """Which nodes DescribeCluster returns (KIP-919)."""

    BROKER = 1
    CONTROLLER = 2


class AclOperation(IntEnum):
    """What an ACL permits. KIP-430 answers with sets of operations: bit n stands for the operation with code n."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """What an ACL protects."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an ACL is compared with a resource's name. ANY and MATCH exist in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Whether an ACL allows or denies its operation. ANY exists in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
