"""`quorum-state`: the epoch of a replica, its leader and the vote that this replica gave, in Kafka's file format.

A replica writes it before any response that depends on it, so that it votes once per epoch and never leads an epoch
twice. Version 0 is that of static voters (kraft.version 0), version 1 names the directory of the candidate.
"""

import json
from typing import Final

from rookery.base.errors import CorruptionError
from rookery.base.types import LeaderEpoch, NodeId, decode_uuid, encode_uuid
from rookery.base.values import value_class
from rookery.quorum.voters import NO_DIRECTORY, ReplicaKey

STATE_FILE: Final = "quorum-state"
_VERSION_MAX = 1
_NO_NODE: NodeId = -1
_MUST_CATCH_UP: Final = "mustCatchUp"


@value_class
class ElectionState:
    """`must_catch_up`: this voter began with an empty log, and may have lost what it had acknowledged. See `core`."""

    epoch: LeaderEpoch = 0
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None
    must_catch_up: bool = False


def encode_election_state(state: ElectionState) -> bytes:
    voted = state.voted or ReplicaKey(_NO_NODE)
    fields: dict[str, object] = {
        "leaderId": _NO_NODE if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": encode_uuid(voted.directory_id),
        "data_version": _VERSION_MAX,
    }
    if state.must_catch_up:
        # A field of this project, which Kafka ignores.
        fields[_MUST_CATCH_UP] = True
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_election_state(data: bytes) -> ElectionState:
    """CorruptionError unless it is a state that this or an older version wrote."""
    try:
        fields = json.loads(data)
        if not 0 <= fields["data_version"] <= _VERSION_MAX:
            raise ValueError(f"data_version {fields['data_version']} is not known")
        leader_id, epoch, voted_id = (_integer(fields[name]) for name in ("leaderId", "leaderEpoch", "votedId"))
        directory_id = decode_uuid(fields["votedDirectoryId"]) if fields["data_version"] > 0 else NO_DIRECTORY
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the file {STATE_FILE} is malformed: {error}") from error
    return ElectionState(
        epoch,
        None if leader_id == _NO_NODE else leader_id,
        None if voted_id == _NO_NODE else ReplicaKey(voted_id, directory_id),
        must_catch_up=fields.get(_MUST_CATCH_UP) is True,
    )


def _integer(value: object) -> int:
    if type(value) is not int:
        raise ValueError("a field is not a number")
    return value
