"""The records of `__consumer_offsets`, byte for byte as Kafka writes them, so that Kafka's tools can read this log.

A record's key is the number of its kind as 16 bits, then the key's fields; its value is a version as 16 bits, then the
value's fields. A record without a value is a tombstone. `docs/formats/offsets-topic.md` has a worked example. The
records of the new group protocol are in `consumer_records`.
"""

import struct
from typing import ClassVar, NamedTuple, TypeAlias

from rookery.base.errors import CorruptionError
from rookery.base.types import LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.coordinators.group.consumer_records import CONSUMER_RECORD_KINDS, ConsumerKey, ConsumerValue
from rookery.protocol import structures
from rookery.protocol.structures import Field, Schema

_INT16 = struct.Struct(">h")
_NEVER_FLEXIBLE = 2**15
NO_EXPIRY: TimestampMs = -1
_EXPIRY_VERSION = 1


@value_class
class OffsetCommitKey:
    KIND: ClassVar = 1
    SCHEMA: ClassVar = Schema(
        1,
        (Field("group_id", structures.STRING), Field("topic", structures.STRING), Field("partition", structures.INT32)),
        flexible_from=_NEVER_FLEXIBLE,
    )
    group_id: str
    topic: TopicName
    partition: PartitionIndex

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@value_class(kw_only=True)
class OffsetCommitValue:
    """`expire_timestamp_ms` serves clients that set a retention time; only version 1 has it."""

    SCHEMA: ClassVar = Schema(
        4,
        (
            Field("offset", structures.INT64),
            Field("leader_epoch", structures.INT32, since=3),
            Field("metadata", structures.STRING),
            Field("commit_timestamp_ms", structures.INT64),
            Field("expire_timestamp_ms", structures.INT64, since=1, until=1),
        ),
        flexible_from=4,
    )
    offset: Offset
    leader_epoch: LeaderEpoch = -1
    metadata: str
    commit_timestamp_ms: TimestampMs
    expire_timestamp_ms: TimestampMs = NO_EXPIRY

    @property
    def written_version(self) -> int:
        return 3 if self.expire_timestamp_ms == NO_EXPIRY else _EXPIRY_VERSION


@value_class
class GroupMetadataKey:
    KIND: ClassVar = 2
    SCHEMA: ClassVar = Schema(2, (Field("group_id", structures.STRING),), flexible_from=_NEVER_FLEXIBLE)
    group_id: str


@value_class(kw_only=True)
class StoredMember:
    SCHEMA: ClassVar = Schema(
        3,
        (
            Field("member_id", structures.STRING),
            Field("instance_id", structures.NULLABLE_STRING),
            Field("client_id", structures.STRING),
            Field("client_host", structures.STRING),
            Field("rebalance_timeout_ms", structures.INT32),
            Field("session_timeout_ms", structures.INT32),
            Field("subscription", structures.BYTES),
            Field("assignment", structures.BYTES),
        ),
        flexible_from=4,
    )
    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@value_class(kw_only=True)
class GroupMetadataValue:
    """A generation of a classic group. Kafka since 2.3 writes version 3, the only one that is read here."""

    SCHEMA: ClassVar = Schema(
        3,
        (
            Field("protocol_type", structures.STRING),
            Field("generation", structures.INT32),
            Field("protocol", structures.NULLABLE_STRING),
            Field("leader", structures.NULLABLE_STRING),
            Field("state_timestamp_ms", structures.INT64),
            Field("members", structures.array(structures.structure(StoredMember))),
        ),
        flexible_from=4,
    )
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: TimestampMs
    members: tuple[StoredMember, ...] = ()

    @property
    def written_version(self) -> int:
        return self.SCHEMA.version


Key: TypeAlias = OffsetCommitKey | GroupMetadataKey | ConsumerKey
Value: TypeAlias = OffsetCommitValue | GroupMetadataValue | ConsumerValue


class GroupRecord(NamedTuple):
    """A record; a `value` of None is a tombstone of `key`."""

    key: Key
    value: Value | None


_KINDS: dict[int, tuple[type[Key], type[Value]]] = {
    # Old versions of Kafka wrote the kind 0.
    0: (OffsetCommitKey, OffsetCommitValue),
    OffsetCommitKey.KIND: (OffsetCommitKey, OffsetCommitValue),
    GroupMetadataKey.KIND: (GroupMetadataKey, GroupMetadataValue),
    **CONSUMER_RECORD_KINDS,
}


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    key = _INT16.pack(record.key.KIND) + structures.encode(record.key)
    if record.value is None:
        return key, None
    version = record.value.written_version
    return key, _INT16.pack(version) + structures.encode(record.value, version=version)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return the record, or None if its kind is unknown. Raises CorruptionError if it is malformed."""
    if len(key) < _INT16.size or (value is not None and len(value) < _INT16.size):
        raise CorruptionError("a group record is truncated")
    kinds = _KINDS.get(_INT16.unpack_from(key)[0])
    if kinds is None:
        return None
    key_type, value_type = kinds
    decoded = structures.decode(key_type, key, _INT16.size)
    if value is None:
        return GroupRecord(decoded, None)
    version = _INT16.unpack_from(value)[0]
    return GroupRecord(decoded, structures.decode(value_type, value, _INT16.size, version=version))
