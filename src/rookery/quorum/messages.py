"""The control records that a quorum writes into its log, in Kafka's form."""

from collections.abc import Iterable
from typing import ClassVar, Final
from uuid import UUID

from rookery.base.types import Buffer, NodeId, TimestampMs
from rookery.base.values import value_class
from rookery.protocol import structures
from rookery.protocol.structures import Field, Schema
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from rookery.records.control import ControlType, control_key
from rookery.records.record import decode_records

# The voters of a quorum are in its log from this level of kraft.version on (KIP-853); before, in the configuration.
DYNAMIC_VOTERS: Final = 1
# Far above the tags of Kafka, which are numbered from 0 on.
_REMOVED_TAG: Final = 10_000


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


@value_class
class KraftVersion:
    """The level of `kraft.version`: only this record has it, no record of a feature."""

    SCHEMA: ClassVar = Schema(0, (Field("version", structures.INT16), Field("kraft_version", structures.INT16)))
    version: int
    kraft_version: int


@value_class
class VoterEndpoint:
    SCHEMA: ClassVar = Schema(
        0, (Field("name", structures.STRING), Field("host", structures.STRING), Field("port", structures.UINT16))
    )
    name: str
    host: str
    port: int


@value_class
class KraftVersionRange:
    SCHEMA: ClassVar = Schema(
        0, (Field("min_supported_version", structures.INT16), Field("max_supported_version", structures.INT16))
    )
    min_supported_version: int
    max_supported_version: int


@value_class
class RecordedVoter:
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("voter_id", structures.INT32),
            Field("voter_directory_id", structures.UUID),
            Field("endpoints", structures.array(structures.structure(VoterEndpoint))),
            Field("kraft_version_feature", structures.structure(KraftVersionRange)),
        ),
    )
    voter_id: NodeId
    voter_directory_id: UUID
    endpoints: tuple[VoterEndpoint, ...]
    kraft_version_feature: KraftVersionRange


@value_class
class RemovedVoter:
    SCHEMA: ClassVar = Schema(0, (Field("voter_id", structures.INT32), Field("voter_directory_id", structures.UUID)))
    voter_id: NodeId
    voter_directory_id: UUID


@value_class
class KraftVoters:
    """`removed` is a field of this project. Kafka's readers skip tagged fields that they do not know."""

    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("version", structures.INT16),
            Field("voters", structures.array(structures.structure(RecordedVoter))),
            Field("removed", structures.array(structures.structure(RemovedVoter)), tag=_REMOVED_TAG),
        ),
    )
    version: int
    voters: tuple[RecordedVoter, ...]
    removed: tuple[RemovedVoter, ...] = ()


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


def kraft_version_record(level: int) -> tuple[bytes, bytes]:
    """Return key and value of the record that sets the level of `kraft.version`."""
    return control_key(ControlType.KRAFT_VERSION), structures.encode(KraftVersion(0, level))


def voters_record(voters: VoterSet) -> tuple[bytes, bytes]:
    """Return key and value of the record that makes `voters` the voters of the quorum."""
    removed = tuple(RemovedVoter(*key) for key in sorted(voters.removed))
    record = KraftVoters(0, tuple(map(_recorded, voters)), removed)
    return control_key(ControlType.KRAFT_VOTERS), structures.encode(record)


def read_kraft_version(value: Buffer) -> int:
    """Return the level in the value of a record of `kraft_version_record`; CorruptionError if it is malformed."""
    return structures.decode(KraftVersion, value).kraft_version


def read_voters(value: Buffer) -> VoterSet:
    """Return the voters in the value of a record of `voters_record`; CorruptionError if it is malformed."""
    record = structures.decode(KraftVoters, value)
    removed = (ReplicaKey(voter.voter_id, voter.voter_directory_id) for voter in record.removed)
    return VoterSet(map(_voter, record.voters), removed)


def voters_in(control_batch: Buffer) -> VoterSet | None:
    """Return the voters in a control batch, None if it has none; CorruptionError if they are malformed."""
    for record in decode_records(control_batch):
        if record.key == control_key(ControlType.KRAFT_VOTERS):
            return read_voters(record.value or b"")
    return None


def _recorded(voter: Voter) -> RecordedVoter:
    endpoints = tuple(VoterEndpoint(name, *endpoint) for name, endpoint in voter.endpoints.items())
    versions = KraftVersionRange(*voter.kraft_versions)
    return RecordedVoter(voter.key.node_id, voter.key.directory_id, endpoints, versions)


def _voter(recorded: RecordedVoter) -> Voter:
    versions = recorded.kraft_version_feature
    return Voter(
        ReplicaKey(recorded.voter_id, recorded.voter_directory_id),
        {endpoint.name: Endpoint(endpoint.host, endpoint.port) for endpoint in recorded.endpoints},
        (versions.min_supported_version, versions.max_supported_version),
    )


def _ids(keys: Iterable[ReplicaKey]) -> tuple[VoterId, ...]:
    return tuple(VoterId(key.node_id) for key in keys)
