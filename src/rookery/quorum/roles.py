"""The roles of a replica, as values of the core: the state of each, and its deadline. Pure.

    Unattached   has no known leader in its epoch; looks for one, and begins an election at its deadline
    Prospective  requests pre-votes: whether the voters would vote for it, without changing its epoch (KIP-996)
    Candidate    has begun a new epoch, voted for itself, and requests votes
    Leader       has a majority of the votes of its epoch
    Resigned     led its epoch and no longer does, or led it before a restart; looks for the leader of a later one
    Follower     fetches from the known leader of its epoch

| from | event | to |
| --- | --- | --- |
| Unattached, Candidate | election time-out | Prospective |
| Follower | no successful fetch for the fetch time-out | Prospective |
| Prospective | a majority grants its pre-vote | Candidate, in the next epoch |
| Prospective | no majority can grant it any more; election time-out | Follower if it had a leader, else Unattached |
| Candidate | a majority voted for it | Leader |
| Leader | no fetches of a majority for 1.5 fetch time-outs; the node stops | Resigned |
| Resigned | election time-out | Unattached, in the next epoch |
| all but Leader and Resigned | learns the leader of its epoch | Follower |
| all | learns of a later epoch | Follower if its leader is known, else Unattached |

Replicas that are not voters (observers) are Unattached or Follower only, and never time out.
"""

from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from rookery.base.types import NodeId, Offset
from rookery.quorum.progress import Progress
from rookery.quorum.voters import ReplicaKey, Voter


@dataclass(slots=True)
class Unattached:
    deadline_ms: float = inf


@dataclass(slots=True)
class Ballot:
    """The votes of one election or pre-vote, by node id."""

    granted: set[NodeId] = field(default_factory=set)
    refused: set[NodeId] = field(default_factory=set)


@dataclass(slots=True)
class Prospective(Ballot):
    """`leader_id` is the leader of the epoch that did not respond for a fetch time-out, if there was one."""

    deadline_ms: float = inf
    leader_id: NodeId | None = None


@dataclass(slots=True)
class Candidate(Ballot):
    deadline_ms: float = inf


@dataclass(slots=True)
class Leader:
    """`start_offset` is where its epoch begins in the log."""

    start_offset: Offset
    progress: Progress
    # Voters that have not answered BeginQuorumEpoch.
    unaware: set[NodeId]
    # When BeginQuorumEpoch is sent to them again.
    deadline_ms: float = inf
    # Whether a record of its own epoch is committed: before that, the high watermark of the cluster is unknown to it.
    has_committed: bool = False
    # What voters of the configuration have reported about themselves in this epoch; in memory only (kraft.version 0).
    reported: dict[NodeId, Voter] = field(default_factory=dict)


@dataclass(slots=True)
class Resigned:
    deadline_ms: float = inf
    # Voters that have not answered EndQuorumEpoch.
    unaware: set[NodeId] = field(default_factory=set)
    successors: tuple[ReplicaKey, ...] = ()


@dataclass(slots=True)
class Follower:
    leader_id: NodeId
    deadline_ms: float = inf
    # Whether it has fetched from this leader. Then it refuses pre-votes: a replica that is cut off from a live leader
    # must not depose it.
    has_fetched: bool = False


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Resigned | Follower
