"""Decides whether a replica grants a vote, and whether an election is won or lost. Pure."""

from rookery.base.errors import ErrorCode
from rookery.quorum.election_state import ElectionState
from rookery.quorum.events import VoteRequest
from rookery.quorum.log_view import LogPosition
from rookery.quorum.roles import Ballot, Candidate, Follower, Leader, Resigned, Role
from rookery.quorum.voters import VoterSet


def vote_problem(request: VoteRequest) -> ErrorCode | None:
    """Return INVALID_REQUEST if the candidate's log has records of an impossible epoch, else None.

    A candidate has begun an epoch of which its log has no records; a pre-vote is requested in the epoch before that.
    """
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    return None if 0 <= request.last.epoch <= last_epoch_max else ErrorCode.INVALID_REQUEST


def grants(role: Role, state: ElectionState, end: LogPosition, request: VoteRequest) -> bool:
    """Return whether a replica in `role`, with a log up to `end`, votes for the candidate. The epochs are the same."""
    # A leader with a shorter log would truncate records that a majority, including this replica, has acknowledged.
    is_up_to_date = request.last >= end
    if isinstance(role, Leader):
        return False
    if state.must_catch_up and request.last.offset > 0:
        # Any log looks longer than one that was lost. With this vote, a candidate without the records that this voter
        # had acknowledged could win.
        return False
    if request.pre_vote:
        # A follower that has fetched refuses: otherwise a replica with a bad link would depose a live leader again and
        # again. One that has not fetched yet must grant: otherwise two replicas that each have the other as leader
        # would wait for ever.
        return is_up_to_date and not (isinstance(role, Follower) and role.has_fetched)
    if isinstance(role, Follower | Candidate | Resigned) or state.leader_id is not None:
        return False
    if state.voted is not None:
        return state.voted == request.candidate
    return is_up_to_date


def has_won(ballot: Ballot, voters: VoterSet) -> bool:
    return _count(ballot.granted, voters) >= voters.majority


def has_lost(ballot: Ballot, voters: VoterSet) -> bool:
    """Return whether too many voters have refused for a majority."""
    return len(voters) - _count(ballot.refused, voters) < voters.majority


def _count(nodes: set[int], voters: VoterSet) -> int:
    return sum(key.node_id in nodes for key in voters.keys)
