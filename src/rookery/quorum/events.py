"""What goes into the quorum's core and what comes out: requests, responses, events and effects, as plain values.

The shell translates Kafka's messages to these and back. `Effects` are carried out in their order, and one step's
effects are finished before the next event goes in.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum.election_state import ElectionState
from rookery.quorum.log_view import LogPosition
from rookery.quorum.voters import ReplicaKey, VoterSet

# Names a request in the events and effects about it. The shell chooses those of requests that it receives.
RequestId: TypeAlias = int


# Requests between replicas.


class VoteRequest(NamedTuple):
    """`voter` is the replica that is asked; `last` the end of the candidate's log. A pre-vote changes nothing."""

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
    """The leader resigns; the replicas that should succeed it, the best first."""

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


# Responses. Every one names the leader that the responding replica knows (None: it knows none) and its epoch.


class VoteResponse(NamedTuple):
    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None
    granted: bool = False


class EpochResponse(NamedTuple):
    """To BeginEpochRequest and EndEpochRequest."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None


class FetchedBatch(NamedTuple):
    """A batch of the log as the core sees it; `voters` if it has a new set of them."""

    epoch: LeaderEpoch
    base_offset: Offset
    record_count: int
    voters: VoterSet | None = None


class FetchResponse(NamedTuple):
    """One of `batches`, `diverging` and `snapshot` at most. The core leaves `batches` empty: the shell reads them."""

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


class Synced(NamedTuple):
    """The log is on the disk up to `end_offset`."""

    end_offset: Offset


class SnapshotProgress(NamedTuple):
    """A piece of the snapshot arrived: the leader lives."""


class SnapshotEnded(NamedTuple):
    """The snapshot that `DownloadSnapshot` named is on the disk and the log was emptied; no `voters` if that failed."""

    snapshot: LogPosition
    voters: VoterSet | None


class Resign(NamedTuple):
    """Give up leadership, because the node stops."""


Event: TypeAlias = Tick | Received | Answered | Failed | Propose | Synced | SnapshotProgress | SnapshotEnded | Resign


# Effects.


class Save(NamedTuple):
    """Make the state durable before any later effect: a vote that is answered and then forgotten elects two leaders."""

    state: ElectionState


class Truncate(NamedTuple):
    """Cut the log at `end_offset`."""

    end_offset: Offset


class AppendLeaderChange(NamedTuple):
    """Append the control batch that begins an epoch."""

    epoch: LeaderEpoch
    base_offset: Offset
    granting: tuple[ReplicaKey, ...]


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
    """Answer a fetch with what the log has from `offset` on."""

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


class DownloadSnapshot(NamedTuple):
    leader_id: NodeId
    epoch: LeaderEpoch
    snapshot: LogPosition


Effect: TypeAlias = (
    Save
    | Truncate
    | AppendLeaderChange
    | AppendProposal
    | RefuseProposal
    | AppendFetched
    | Send
    | Respond
    | SendRecords
    | Commit
    | Lead
    | StopLeading
    | DownloadSnapshot
)
Effects: TypeAlias = Sequence[Effect]
