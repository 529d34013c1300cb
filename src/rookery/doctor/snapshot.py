"""What `rookery doctor` has seen of a cluster, and of this machine: the input of all checks. Pure values.

A part that could not be gathered is None (or empty), and `unseen` says why: its checks then find nothing.
"""

from collections.abc import Mapping
from dataclasses import field

from rookery.base.types import NodeId, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.client.admin import AclBinding, LogDirectory, OpenTransaction, QuotaEntity, ScramUser
from rookery.lag import LagReport


@value_class(kw_only=True)
class SeenBroker:
    node_id: NodeId
    address: str
    rack: str | None = None
    is_fenced: bool = False
    configs: Mapping[str, str | None] = field(default_factory=dict)


@value_class(kw_only=True)
class SeenPartition:
    """`newest_ms` is the largest timestamp, `oldest_ms` that of the first record; None if unknown or empty."""

    partition: TopicPartition
    leader: NodeId
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    newest_ms: TimestampMs | None = None
    oldest_ms: TimestampMs | None = None
    is_empty: bool = False


@value_class(kw_only=True)
class SeenTopic:
    name: TopicName
    is_internal: bool = False
    partitions: tuple[SeenPartition, ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def replication(self) -> int:
        """The number of replicas of the partition that has the fewest."""
        return min((len(each.replicas) for each in self.partitions), default=0)

    def number(self, key: str) -> int | None:
        """Return a config as a number; None if it could not be read."""
        text = self.configs.get(key)
        return None if text is None else int(text)


@value_class(kw_only=True)
class SeenCertificate:
    """The certificate of a listener."""

    address: str
    expires_ms: TimestampMs


@value_class(kw_only=True)
class SeenProcess:
    """A broker's process on this machine."""

    pid: int
    open_files: int
    open_files_max: int


@value_class(kw_only=True)
class Mount:
    """The file system of a log directory."""

    path: str
    file_system: str


@value_class(kw_only=True)
class SeenMachine:
    """This machine, if a broker runs on it. `vm` has the values of /proc/sys/vm."""

    vm: Mapping[str, int] = field(default_factory=dict)
    processes: tuple[SeenProcess, ...] = ()
    mounts: tuple[Mount, ...] = ()


@value_class(kw_only=True)
class ClusterSnapshot:
    at_ms: TimestampMs
    brokers: tuple[SeenBroker, ...]
    topics: tuple[SeenTopic, ...]
    log_dirs: tuple[LogDirectory, ...] = ()
    lags: LagReport | None = None
    hanging: tuple[OpenTransaction, ...] = ()
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: tuple[AclBinding, ...] = ()
    scram_users: tuple[ScramUser, ...] = ()
    certificates: tuple[SeenCertificate, ...] = ()
    machine: SeenMachine | None = None
    unseen: tuple[str, ...] = ()

    @property
    def live(self) -> frozenset[NodeId]:
        return frozenset(broker.node_id for broker in self.brokers if not broker.is_fenced)

    @property
    def partitions(self) -> list[SeenPartition]:
        return [each for topic in self.topics for each in topic.partitions]

    @property
    def user_topics(self) -> list[SeenTopic]:
        return [topic for topic in self.topics if not topic.is_internal and not topic.name.startswith("_")]
