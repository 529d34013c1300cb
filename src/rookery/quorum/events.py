"""The input and output of the quorum's core: requests, responses, events and effects, as plain values.

The shell converts Kafka's messages to these and back. It carries out effects in order, and finishes those of one step
before it passes the next event.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum.election_state import ElectionState
from rookery.quorum.log_view import LogPosition
from rookery.quorum.voters import ReplicaKey, Voter, VoterSet

# Names a request in the events and effects about it. The shell chooses those of requests that it receives.
RequestId: TypeAlias = int


# Requests between replicas.


class VoteRequest(NamedTuple):
    """`voter` is the receiver; `last` the end of the candidate's log. A pre-vote changes no state of the voter."""

    epoch: LeaderEpoch
    candidate: ReplicaKey
    voter: ReplicaKey
    last: LogPosition
    pre_vote: bool


class BeginEpochRequest(NamedTuple):
    epoch: LeaderEpoch
    leader_id: NodeId
    voter: ReplicaKey


class EndEpochRequest(NamedTuple):
    """The leader resigns. `successors` are the voters that should succeed it, the best first."""

    epoch: LeaderEpoch
    leader_id: NodeId
    successors: tuple[ReplicaKey, ...]


class FetchRequest(NamedTuple):
    """`last` is the end of the fetcher's log: all of it is synced if the fetcher is a voter."""

    epoch: LeaderEpoch
    replica: ReplicaKey
    last: LogPosition
    high_watermark: Offset
    wait_ms: int


Request: TypeAlias = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest


# Responses. Each has the epoch of the responding replica, and the leader that it knows in this epoch, or None.


class VoteResponse(NamedTuple):
    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None
    granted: bool = False


class EpochResponse(NamedTuple):
    """The response to BeginEpochRequest and EndEpochRequest."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None


class FetchedBatch(NamedTuple):
    """A batch of the log as the core sees it. `voters` is the new voter set if the batch has one."""

    epoch: LeaderEpoch
    base_offset: Offset
    record_count: int
    voters: VoterSet | None = None


class FetchResponse(NamedTuple):
    """At most one of `batches`, `diverging` and `snapshot` is set. The core leaves `batches` empty: the shell reads
    them.
    """

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None
    high_watermark: Offset = -1
    batches: tuple[FetchedBatch, ...] = ()
    diverging: LogPosition | None = None
    snapshot: LogPosition | None = None


Response: TypeAlias = VoteResponse | EpochResponse | FetchResponse


# Events.


class Tick(NamedTuple):
    """A deadline may have passed."""


class Received(NamedTuple):
    """A request arrived. `Respond` answers it, now or later."""

    request_id: RequestId
    request: Request


class Answered(NamedTuple):
    """A response to a request of this node."""

    request_id: RequestId
    response: Response


class Failed(NamedTuple):
    """A request of this node failed: no connection, or no response in time."""

    request_id: RequestId


class Propose(NamedTuple):
    """Append `record_count` records as the leader of `epoch`, in one batch."""

    epoch: LeaderEpoch
    record_count: int


class ChangeVoters(NamedTuple):
    """Make `voters` the voters of the quorum, as the leader of `epoch`.

    The first set in the log, in place of that of the configuration, raises `kraft.version` to 1.
    """

    epoch: LeaderEpoch
    voters: VoterSet


class VoterReported(NamedTuple):
    """A voter of the configuration reported its directory and what it supports to this node, the leader of `epoch`."""

    epoch: LeaderEpoch
    voter: Voter


class Synced(NamedTuple):
    """The log is on the disk up to `end_offset`."""

    end_offset: Offset


class SnapshotProgress(NamedTuple):
    """A piece of the snapshot arrived, so that the leader is alive."""


class SnapshotEnded(NamedTuple):
    """The snapshot that `DownloadSnapshot` named is on the disk and the log was emptied.

    `voters` are those in it; None if the configuration has them.
    """

    snapshot: LogPosition
    voters: VoterSet | None


class SnapshotFailed(NamedTuple):
    """The snapshot that `DownloadSnapshot` named was not installed."""

    snapshot: LogPosition


class SnapshotServed(NamedTuple):
    """This node sent a piece of a snapshot to `replica`, which is alive although it does not fetch."""

    replica: ReplicaKey


class ConnectionLost(NamedTuple):
    """A connection to another node broke. Its process may have ended: a hint, not a proof."""

    node_id: NodeId


class Resign(NamedTuple):
    """Resign as the leader, because the node stops."""


Event: TypeAlias = (
    Tick
    | Received
    | Answered
    | Failed
    | Propose
    | ChangeVoters
    | VoterReported
    | Synced
    | SnapshotProgress
    | SnapshotEnded
    | SnapshotFailed
    | SnapshotServed
    | ConnectionLost
    | Resign
)


# Effects.


class Save(NamedTuple):
    """Sync the state before any later effect. A vote that is sent and lost in a crash could elect two leaders."""

    state: ElectionState


class Truncate(NamedTuple):
    """Truncate the log to `end_offset`."""

    end_offset: Offset


class AppendLeaderChange(NamedTuple):
    """Append the control batch that begins an epoch; with the `voters`, if the log does not have them yet."""

    epoch: LeaderEpoch
    base_offset: Offset
    granting: tuple[ReplicaKey, ...]
    voters: VoterSet | None = None


class AppendVoters(NamedTuple):
    """Append a control batch with the voters of the change that this step was about.

    `is_upgrade`: they are the first in the log, so that the level of `kraft.version` comes before them.
    """

    epoch: LeaderEpoch
    base_offset: Offset
    voters: VoterSet
    is_upgrade: bool


class AppendProposal(NamedTuple):
    """Append the batch of the proposal that this step was about."""

    epoch: LeaderEpoch
    base_offset: Offset


class RefuseProposal(NamedTuple):
    """This node does not lead the epoch of the proposal."""

    epoch: LeaderEpoch


class AppendFetched(NamedTuple):
    """Append the first `batch_count` batches of the response that this step was about."""

    batch_count: int


class Send(NamedTuple):
    """Send a request to a node, or to any bootstrap server if `to` is None."""

    request_id: RequestId
    to: NodeId | None
    request: Request


class Respond(NamedTuple):
    request_id: RequestId
    response: Response


class SendRecords(NamedTuple):
    """Respond to a fetch with the batches of the log from `offset` on."""

    request_id: RequestId
    response: FetchResponse
    offset: Offset


class Commit(NamedTuple):
    """Everything before `high_watermark` is committed."""

    high_watermark: Offset


class Lead(NamedTuple):
    """This node leads `epoch`, and everything before it is committed: the controller may decide."""

    epoch: LeaderEpoch


class StopLeading(NamedTuple):
    epoch: LeaderEpoch


class VoterWentBack(NamedTuple):
    """A voter fetches from `offset`, although it has acknowledged everything before `acknowledged` in this epoch."""

    replica: ReplicaKey
    offset: Offset
    acknowledged: Offset


class DownloadSnapshot(NamedTuple):
    leader_id: NodeId
    epoch: LeaderEpoch
    snapshot: LogPosition


Effect: TypeAlias = (
    Save
    | Truncate
    | AppendLeaderChange
    | AppendVoters
    | AppendProposal
    | RefuseProposal
    | AppendFetched
    | Send
    | Respond
    | SendRecords
    | Commit
    | Lead
    | StopLeading
    | VoterWentBack
    | DownloadSnapshot
)
Effects: TypeAlias = Sequence[Effect]
