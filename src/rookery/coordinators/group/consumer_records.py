"""The records of a consumer group in `__consumer_offsets`, in Kafka's formats; `records` has their framing.

See group-coordinator/src/main/resources/common/message in apache/kafka for the fields.

    kind  key                                value
    ----  ---------------------------------  ------------------------------------------------------------
    3     group                              the group's epoch
    4     group                              the subscribed topics: id, name, number of partitions
    5     group, member                      the member's metadata and subscription
    6     group                              the epoch of the target assignment
    7     group, member                      the member's part of the target assignment
    8     group, member                      the member's current assignment: epochs, state, partitions
    16    group, regular expression          the topics that the expression matches
"""

from typing import ClassVar, TypeAlias
from uuid import UUID

from rookery.base.values import value_class
from rookery.protocol import structures
from rookery.protocol.structures import Field, Schema, array, nullable, structure

_NEVER_FLEXIBLE = 2**15


class _Value:
    """Every value has one version so far."""

    __slots__ = ()

    @property
    def written_version(self) -> int:
        return 0


def _group_key(kind: int) -> Schema:
    return Schema(kind, (Field("group_id", structures.STRING),), flexible_from=_NEVER_FLEXIBLE)


def _named_key(kind: int, name: str) -> Schema:
    fields = (Field("group_id", structures.STRING), Field(name, structures.STRING))
    return Schema(kind, fields, flexible_from=_NEVER_FLEXIBLE)


@value_class
class GroupKey:
    KIND: ClassVar = 3
    SCHEMA: ClassVar = _group_key(KIND)
    group_id: str


@value_class
class TopicsKey:
    KIND: ClassVar = 4
    SCHEMA: ClassVar = _group_key(KIND)
    group_id: str


@value_class
class MemberKey:
    KIND: ClassVar = 5
    SCHEMA: ClassVar = _named_key(KIND, "member_id")
    group_id: str
    member_id: str


@value_class
class TargetEpochKey:
    KIND: ClassVar = 6
    SCHEMA: ClassVar = _group_key(KIND)
    group_id: str


@value_class
class TargetKey:
    KIND: ClassVar = 7
    SCHEMA: ClassVar = _named_key(KIND, "member_id")
    group_id: str
    member_id: str


@value_class
class CurrentKey:
    KIND: ClassVar = 8
    SCHEMA: ClassVar = _named_key(KIND, "member_id")
    group_id: str
    member_id: str


@value_class
class RegexKey:
    KIND: ClassVar = 16
    SCHEMA: ClassVar = _named_key(KIND, "pattern")
    group_id: str
    pattern: str


ConsumerKey: TypeAlias = GroupKey | TopicsKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey | RegexKey


@value_class
class GroupValue(_Value):
    SCHEMA: ClassVar[Schema] = Schema(0, (Field("epoch", structures.INT32),))
    epoch: int


@value_class
class PartitionRacks:
    """Written by Kafka before 4.0; read, never written."""

    SCHEMA: ClassVar[Schema] = Schema(
        0, (Field("partition", structures.INT32), Field("racks", array(structures.STRING)))
    )
    partition: int
    racks: tuple[str, ...]


@value_class
class SubscribedTopic:
    SCHEMA: ClassVar[Schema] = Schema(
        0,
        (
            Field("topic_id", structures.UUID),
            Field("name", structures.STRING),
            Field("partition_count", structures.INT32),
            Field("racks", array(structure(PartitionRacks))),
        ),
    )
    topic_id: UUID
    name: str
    partition_count: int
    racks: tuple[PartitionRacks, ...] = ()


@value_class
class TopicsValue(_Value):
    SCHEMA: ClassVar[Schema] = Schema(0, (Field("topics", array(structure(SubscribedTopic))),))
    topics: tuple[SubscribedTopic, ...]


@value_class
class ClassicProtocolValue:
    SCHEMA: ClassVar[Schema] = Schema(0, (Field("name", structures.STRING), Field("metadata", structures.BYTES)))
    name: str
    metadata: bytes


@value_class
class ClassicMemberValue:
    SCHEMA: ClassVar[Schema] = Schema(
        0, (Field("session_timeout_ms", structures.INT32), Field("protocols", array(structure(ClassicProtocolValue))))
    )
    session_timeout_ms: int
    protocols: tuple[ClassicProtocolValue, ...]


@value_class(kw_only=True)
class MemberValue(_Value):
    SCHEMA: ClassVar[Schema] = Schema(
        0,
        (
            Field("instance_id", structures.NULLABLE_STRING),
            Field("rack_id", structures.NULLABLE_STRING),
            Field("client_id", structures.STRING),
            Field("client_host", structures.STRING),
            Field("topic_names", array(structures.STRING)),
            Field("topic_regex", structures.NULLABLE_STRING),
            Field("rebalance_timeout_ms", structures.INT32),
            Field("server_assignor", structures.NULLABLE_STRING),
            Field("classic", nullable(structure(ClassicMemberValue)), tag=0),
        ),
    )
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberValue | None = None


@value_class
class TargetEpochValue(_Value):
    SCHEMA: ClassVar[Schema] = Schema(0, (Field("epoch", structures.INT32),))
    epoch: int


@value_class
class TopicPartitions:
    SCHEMA: ClassVar[Schema] = Schema(
        0, (Field("topic_id", structures.UUID), Field("partitions", array(structures.INT32)))
    )
    topic_id: UUID
    partitions: tuple[int, ...]


@value_class
class TargetValue(_Value):
    SCHEMA: ClassVar[Schema] = Schema(0, (Field("topics", array(structure(TopicPartitions))),))
    topics: tuple[TopicPartitions, ...]


@value_class(kw_only=True)
class CurrentValue(_Value):
    SCHEMA: ClassVar[Schema] = Schema(
        0,
        (
            Field("member_epoch", structures.INT32),
            Field("previous_member_epoch", structures.INT32),
            Field("state", structures.INT8),
            Field("assigned", array(structure(TopicPartitions))),
            Field("pending_revocation", array(structure(TopicPartitions))),
        ),
    )
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[TopicPartitions, ...]
    pending_revocation: tuple[TopicPartitions, ...]


@value_class
class RegexValue(_Value):
    """`version` is the metadata offset at which Kafka matched the topics, 0 here; `timestamp_ms` is the time of it."""

    SCHEMA: ClassVar[Schema] = Schema(
        0,
        (
            Field("topics", array(structures.STRING)),
            Field("version", structures.INT64),
            Field("timestamp_ms", structures.INT64),
        ),
    )
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


ConsumerValue: TypeAlias = (
    GroupValue | TopicsValue | MemberValue | TargetEpochValue | TargetValue | CurrentValue | RegexValue
)

CONSUMER_RECORD_KINDS: dict[int, tuple[type[ConsumerKey], type[ConsumerValue]]] = {
    GroupKey.KIND: (GroupKey, GroupValue),
    TopicsKey.KIND: (TopicsKey, TopicsValue),
    MemberKey.KIND: (MemberKey, MemberValue),
    TargetEpochKey.KIND: (TargetEpochKey, TargetEpochValue),
    TargetKey.KIND: (TargetKey, TargetValue),
    CurrentKey.KIND: (CurrentKey, CurrentValue),
    RegexKey.KIND: (RegexKey, RegexValue),
}
