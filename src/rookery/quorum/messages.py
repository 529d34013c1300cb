"""What the quorum itself writes: the leader-change control record and the `quorum-state` file, both in Kafka's form.

Theory in short: a leader begins its epoch with a control batch that names it, so that the epoch exists in the log
before any record of it; `quorum-state` remembers the epoch and the vote, so that no node leads two terms in one epoch.
"""

import json
from typing import ClassVar
from uuid import UUID

from rookery.base.errors import CorruptionError
from rookery.base.types import LeaderEpoch, NodeId, encode_uuid
from rookery.base.values import value_class
from rookery.protocol import structures
from rookery.protocol.structures import Field, Schema
from rookery.records.control import ControlType, control_key

_STATE_VERSION = 1
NO_NODE: NodeId = -1


@value_class
class Voter:
    SCHEMA: ClassVar = Schema(0, (Field("voter_id", structures.INT32),))
    voter_id: NodeId


@value_class
class LeaderChange:
    SCHEMA: ClassVar = Schema(
        0,
        (
            Field("version", structures.INT16),
            Field("leader_id", structures.INT32),
            Field("voters", structures.array(structures.structure(Voter))),
            Field("granting_voters", structures.array(structures.structure(Voter))),
        ),
    )
    version: int
    leader_id: NodeId
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]


@value_class
class QuorumState:
    leader_id: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = 0
    voted_id: NodeId = NO_NODE


def leader_change_record(leader_id: NodeId) -> tuple[bytes, bytes]:
    """Key and value of the control record with which a quorum's only voter begins to lead."""
    voters = (Voter(leader_id),)
    return control_key(ControlType.LEADER_CHANGE), structures.encode(LeaderChange(0, leader_id, voters, voters))


def encode_state(state: QuorumState) -> bytes:
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": encode_uuid(UUID(int=0)),
        "data_version": _STATE_VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_state(data: bytes) -> QuorumState:
    """CorruptionError unless it is a state that this or an older version wrote."""
    try:
        fields = json.loads(data)
        if not 0 <= fields["data_version"] <= _STATE_VERSION:
            raise ValueError(f"data_version {fields['data_version']} is not known")
        values = fields["leaderId"], fields["leaderEpoch"], fields["votedId"]
        if not all(type(value) is int for value in values):
            raise ValueError("a field is not a number")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the file quorum-state is malformed: {error}") from error
    return QuorumState(*values)
