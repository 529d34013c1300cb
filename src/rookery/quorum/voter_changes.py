"""Changes of the voters on request (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter. Pure.

Only the leader changes the set, one voter at a time. It does so when it has committed a record of its own epoch and no
other change is pending, because only then do the majorities of the old and the new set overlap (`core`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch
from rookery.metadata.features import KRAFT_VERSION, KRAFT_VERSIONS
from rookery.protocol import messages
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Struct
from rookery.quorum.core import QuorumCore
from rookery.quorum.messages import DYNAMIC_VOTERS
from rookery.quorum.roles import Leader
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from rookery.quorum.wire import NO_NODE, Endpoints, WireError

CHANGES = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER)
# A voter that is added must have had the leader's whole log within this time, so that it does not delay commits.
_CAUGHT_UP_MS = 3_600_000


class VoterChange(NamedTuple):
    """The new set; None if there is nothing to change. `is_awaited`: the response waits for the commit."""

    voters: VoterSet | None
    is_awaited: bool = True


class Report(NamedTuple):
    """What a voter of the configuration reports about itself, for an upgrade of `kraft.version`."""

    voter: Voter


class NewVoter(NamedTuple):
    """A voter that can be added if the node at `endpoint` supports the level of `kraft.version`."""

    endpoint: Endpoint


def decide_change(
    api_key: ApiKey,
    message: Any,
    core: QuorumCore,
    *,
    cluster_id: str,
    listener_name: str,
    now_ms: float,
    kraft_versions: tuple[int, int] | None = None,
) -> VoterChange | NewVoter | Report:
    """Return the change that a request asks for; WireError with the error code of the response if it is refused.

    To add a voter needs the `kraft_versions` that it supports. Without them this returns the node to ask.
    """
    if message.cluster_id is not None and message.cluster_id != cluster_id:
        raise WireError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this node belongs to cluster {cluster_id}")
    if api_key == ApiKey.UPDATE_RAFT_VOTER:
        _check_epoch(core, message.current_leader_epoch)
    if not isinstance(core.role, Leader):
        raise WireError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    if not core.voter_history.is_dynamic:
        if api_key == ApiKey.UPDATE_RAFT_VOTER:
            return _report(message, key, core)
        raise WireError(
            ErrorCode.UNSUPPORTED_VERSION,
            "the voters are those of controller.quorum.voters: they can be changed from kraft.version 1 on",
        )
    if not core.role.has_committed or core.has_voter_change:
        raise WireError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is not committed yet")
    match api_key:
        case ApiKey.ADD_RAFT_VOTER:
            new = _new_voter(message, key, core, listener_name)
            if kraft_versions is None:
                return new
            return _decide_addition(message, key, core, core.role, now_ms, kraft_versions)
        case ApiKey.REMOVE_RAFT_VOTER:
            return _decide_removal(key, core)
        case _:
            return _decide_update(message, key, core)


def _check_epoch(core: QuorumCore, epoch: LeaderEpoch) -> None:
    if epoch < core.epoch:
        raise WireError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is over, {core.epoch} has begun")
    if epoch > core.epoch:
        raise WireError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"this node is in epoch {core.epoch}")


def _new_voter(message: Any, key: ReplicaKey, core: QuorumCore, listener_name: str) -> NewVoter:
    if core.voters.get(key.node_id) is not None:
        raise WireError(ErrorCode.DUPLICATE_VOTER, f"node {key.node_id} is a voter already")
    # Only a node that joins by itself does not wait for the commit. Without this, a voter with
    # controller.quorum.auto.join.enable would be back seconds after an operator has removed it (KAFKA-19850).
    if key in core.voters.removed and not message.get("ack_when_committed", True):
        raise WireError(
            ErrorCode.INVALID_REQUEST,
            f"node {key.node_id} was removed from the voters: `rookery quorum add {key.node_id}` adds it again",
        )
    endpoint = _endpoints_of(message).get(listener_name)
    if endpoint is None:
        raise WireError(
            ErrorCode.INVALID_REQUEST,
            f"a voter needs an endpoint of the listener {listener_name}, over which the voters reach each other",
        )
    return NewVoter(endpoint)


def _decide_addition(
    message: Any, key: ReplicaKey, core: QuorumCore, leader: Leader, now_ms: float, kraft_versions: tuple[int, int]
) -> VoterChange:
    _check_support(key, kraft_versions)
    progress = leader.progress.of(key)
    caught_up_ms = progress.caught_up_ms if progress is not None else None
    if caught_up_ms is None or now_ms - caught_up_ms > _CAUGHT_UP_MS:
        raise WireError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {key.node_id} has not caught up with the leader: start it as a controller, wait, and try again",
        )
    voters = core.voters.with_voter(Voter(key, _endpoints_of(message), kraft_versions))
    return VoterChange(voters, message.get("ack_when_committed", True))


def _decide_removal(key: ReplicaKey, core: QuorumCore) -> VoterChange:
    voter = core.voters.get(key.node_id)
    if voter is None or voter.key != key:
        raise WireError(ErrorCode.VOTER_NOT_FOUND, f"node {key.node_id} with this directory id is not a voter")
    if len(core.voters) == 1:
        raise WireError(ErrorCode.INVALID_REQUEST, "the last voter cannot be removed")
    return VoterChange(core.voters.without(key.node_id))


def _decide_update(message: Any, key: ReplicaKey, core: QuorumCore) -> VoterChange:
    voter = core.voters.get(key.node_id)
    if voter is None or voter.key != key:
        raise WireError(ErrorCode.VOTER_NOT_FOUND, f"node {key.node_id} with this directory id is not a voter")
    updated = Voter(key, _endpoints_of(message), _kraft_versions_of(message))
    _check_support(key, updated.kraft_versions)
    return VoterChange(None if updated == voter else core.voters.with_voter(updated))


def _report(message: Any, key: ReplicaKey, core: QuorumCore) -> Report:
    if key not in core.voters:
        raise WireError(ErrorCode.VOTER_NOT_FOUND, f"controller.quorum.voters does not name node {key.node_id}")
    return Report(Voter(key, _endpoints_of(message), _kraft_versions_of(message)))


def decide_upgrade(core: QuorumCore, mine: Voter) -> VoterSet | None:
    """Return the voters with which `kraft.version` becomes 1; None if it is that already.

    `mine` is the leader itself. WireError with the reason if a voter has not reported its directory, or does not
    support the level.
    """
    if not isinstance(core.role, Leader):
        raise WireError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
    if core.voter_history.is_dynamic:
        return None
    if not mine.endpoints:
        raise WireError(
            ErrorCode.INVALID_UPDATE_VERSION,
            "this node has no listener for controllers, at which other voters could reach it: set "
            "controller.listener.names and listeners",
        )
    reported = {**core.role.reported, mine.key.node_id: mine}
    ids = [key.node_id for key in core.voters.keys]
    silent = [str(node_id) for node_id in ids if node_id not in reported]
    if silent:
        # Without its directory id, the new set could count a voter whose disk was replaced.
        raise WireError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the leader does not know the directories of the voters {', '.join(silent)}: all voters must run, with a "
            "version that supports the level, and report to the leader, which takes some seconds after its election",
        )
    for node_id in ids:
        lowest, highest = reported[node_id].kraft_versions
        if not lowest <= DYNAMIC_VOTERS <= highest:
            raise WireError(ErrorCode.INVALID_UPDATE_VERSION, f"voter {node_id} supports levels {lowest} to {highest}")
    return VoterSet(reported[node_id] for node_id in ids)


def _check_support(key: ReplicaKey, kraft_versions: tuple[int, int]) -> None:
    # A voter that cannot read the voters in the log would vote by another set.
    lowest, highest = kraft_versions
    if not lowest <= DYNAMIC_VOTERS <= highest:
        raise WireError(
            ErrorCode.INVALID_REQUEST,
            f"node {key.node_id} supports {KRAFT_VERSION} {lowest} to {highest}, and the voters need "
            f"{DYNAMIC_VOTERS}: install a version that supports it",
        )


def _kraft_versions_of(message: Any) -> tuple[int, int]:
    levels = message.k_raft_version_feature
    return levels.min_supported_version, levels.max_supported_version


def _endpoints_of(message: Any) -> Mapping[str, Endpoint]:
    endpoints = {row.name: Endpoint(row.host, row.port) for row in message.listeners}
    if not endpoints:
        raise WireError(ErrorCode.INVALID_REQUEST, "a voter needs the endpoint of its controller listener")
    return endpoints


def change_response(
    api_key: ApiKey, code: ErrorCode, text: str | None, core: QuorumCore, endpoints: Endpoints
) -> Struct:
    """Return the response to a request; `endpoints` has the leader's, if it is known."""
    match api_key:
        case ApiKey.ADD_RAFT_VOTER:
            return messages.AddRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=text)
        case ApiKey.REMOVE_RAFT_VOTER:
            return messages.RemoveRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=text)
    leader_id = NO_NODE if core.leader_id is None else core.leader_id
    at = endpoints.get(leader_id, Endpoint("", 0))
    leader = messages.CurrentLeader(leader_id=leader_id, leader_epoch=core.epoch, host=at.host, port=at.port)
    return messages.UpdateRaftVoterResponse(throttle_time_ms=0, error_code=code, current_leader=leader)


def addition_request(
    me: ReplicaKey, cluster_id: str, endpoints: Mapping[str, Endpoint]
) -> messages.AddRaftVoterRequest:
    """Return the request with which a controller joins the voters by itself.

    It does not wait for the commit: that may need a fetch of this node, which waits behind the request.
    """
    return messages.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=1000,
        voter_id=me.node_id,
        voter_directory_id=me.directory_id,
        listeners=[
            messages.AddRaftVoterRequestListener(name=name, host=at.host, port=at.port)
            for name, at in endpoints.items()
        ],
        ack_when_committed=False,
    )


def removal_request(key: ReplicaKey, cluster_id: str) -> messages.RemoveRaftVoterRequest:
    return messages.RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=key.node_id, voter_directory_id=key.directory_id
    )


def update_request(
    me: ReplicaKey, epoch: LeaderEpoch, cluster_id: str, endpoints: Mapping[str, Endpoint]
) -> messages.UpdateRaftVoterRequest:
    """Return the request with which a voter reports where it can be reached now."""
    return messages.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=me.node_id,
        voter_directory_id=me.directory_id,
        listeners=[
            messages.UpdateRaftVoterRequestListener(name=name, host=at.host, port=at.port)
            for name, at in endpoints.items()
        ],
        k_raft_version_feature=messages.KRaftVersionFeature(
            min_supported_version=KRAFT_VERSIONS[0], max_supported_version=KRAFT_VERSIONS[1]
        ),
    )
