"""The control records that a quorum writes into its log, in Kafka's form."""

from collections.abc import Iterable
from typing import ClassVar

from rookery.base.types import NodeId, TimestampMs
from rookery.base.values import value_class
from rookery.protocol import structures
from rookery.protocol.structures import Field, Schema
from rookery.quorum.voters import ReplicaKey
from rookery.records.control import ControlType, control_key


@value_class
class VoterId:
    SCHEMA: ClassVar = Schema(0, (Field("voter_id", structures.INT32),))
    voter_id: NodeId


@value_class
class LeaderChange:
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("version", structures.INT16),
            Field("leader_id", structures.INT32),
            Field("voters", structures.array(structures.structure(VoterId))),
            Field("granting_voters", structures.array(structures.structure(VoterId))),
        ),
    )
    version: int
    leader_id: NodeId
    voters: tuple[VoterId, ...]
    granting_voters: tuple[VoterId, ...]


@value_class
class SnapshotHeader:
    """The first record of a snapshot; the time is that of the last log record in it."""

    SCHEMA: ClassVar = Schema(
        0, (Field("version", structures.INT16), Field("last_contained_log_timestamp", structures.INT64))
    )
    version: int
    last_contained_log_timestamp: TimestampMs


@value_class
class SnapshotFooter:
    """The last record of a snapshot: without it, the file is incomplete."""

    SCHEMA: ClassVar = Schema(0, (Field("version", structures.INT16),))
    version: int


def leader_change_record(
    leader_id: NodeId, *, voters: Iterable[ReplicaKey], granting: Iterable[ReplicaKey]
) -> tuple[bytes, bytes]:
    """Return key and value of the record with which a leader begins its epoch: it exists in the log from then on."""
    change = LeaderChange(0, leader_id, _ids(voters), _ids(granting))
    return control_key(ControlType.LEADER_CHANGE), structures.encode(change)


def snapshot_header_record(last_timestamp_ms: TimestampMs) -> tuple[bytes, bytes]:
    """Return key and value of the record that begins a snapshot."""
    return control_key(ControlType.SNAPSHOT_HEADER), structures.encode(SnapshotHeader(0, last_timestamp_ms))


def snapshot_footer_record() -> tuple[bytes, bytes]:
    """Return key and value of the record that ends a snapshot."""
    return control_key(ControlType.SNAPSHOT_FOOTER), structures.encode(SnapshotFooter(0))


def _ids(keys: Iterable[ReplicaKey]) -> tuple[VoterId, ...]:
    return tuple(VoterId(key.node_id) for key in keys)
