"""The roles of a replica, as values of the core: what each remembers, and when it stops waiting. Pure.

    Unattached   knows no leader of its epoch; looks for one, and stands for election when its time is up
    Prospective  asks the voters whether they would vote for it, without changing its epoch (KIP-996)
    Candidate    has begun a new epoch, voted for itself, and asks for votes
    Leader       has a majority of the votes of its epoch
    Resigned     led its epoch and does so no more, or led it before a restart
    Follower     knows the leader of its epoch and fetches from it

| from | event | to |
| --- | --- | --- |
| Unattached, Candidate | election time-out | Prospective |
| Follower | no successful fetch for the fetch time-out | Prospective |
| Prospective | a majority would vote for it | Candidate, in the next epoch |
| Prospective | too many would not; election time-out | Follower if it knows a leader, else Unattached; same epoch |
| Candidate | a majority voted for it | Leader |
| Leader | no majority heard of for 1.5 fetch time-outs; the node stops | Resigned |
| Resigned | election time-out | Unattached, in the next epoch |
| all but Leader and Resigned | learns the leader of its epoch | Follower |
| all | learns of a later epoch | Follower if its leader is known, else Unattached |

Replicas that are no voters (observers) are Unattached or Follower only, and never time out.
"""

from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from rookery.base.types import NodeId, Offset
from rookery.quorum.progress import Progress
from rookery.quorum.voters import ReplicaKey


@dataclass(slots=True)
class Unattached:
    deadline_ms: float = inf


@dataclass(slots=True)
class Ballot:
    """The votes that one round of questions got, by node id."""

    granted: set[NodeId] = field(default_factory=set)
    refused: set[NodeId] = field(default_factory=set)


@dataclass(slots=True)
class Prospective(Ballot):
    """`leader_id` is the leader of the epoch that it no longer hears of, if there was one."""

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
    # Voters that have not answered BeginQuorumEpoch, and when they are asked again.
    unaware: set[NodeId]
    deadline_ms: float = inf
    # Whether something of its own epoch is committed: before that it has no high watermark of its own.
    has_committed: bool = False


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
    # Whether it has fetched from this leader. Then it refuses pre-votes: the leader lives, whatever others see.
    has_fetched: bool = False


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Resigned | Follower
