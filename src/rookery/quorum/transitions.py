"""The state of a replica of the quorum, and its transitions between roles. Pure; `core` decides when they happen.

Every transition saves what must survive a restart (`Save`), before any effect that depends on it.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from rookery.base.errors import ErrorCode, RookeryError
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum import events
from rookery.quorum.election_state import ElectionState
from rookery.quorum.events import Effect, FetchRequest, FetchResponse, Request, RequestId, Response
from rookery.quorum.log_view import LogPosition, LogView
from rookery.quorum.progress import Progress
from rookery.quorum.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from rookery.quorum.voters import ReplicaKey, VoterHistory, VoterSet
from rookery.quorum.votes import has_lost, has_won

# The records of an epoch's first batch if it has the voters: LeaderChange, KRaftVersion, Voters.
LEADER_CHANGE_WITH_VOTERS_COUNT = 3
# The records that put the voters of the configuration into the log: KRaftVersion, Voters.
UPGRADE_COUNT = 2


class QuorumError(RookeryError):
    """The replicas contradict each other in a way that Raft rules out: a bug, a copied disk or a wrong voter id."""


class QuorumSettings(NamedTuple):
    """Kafka's `controller.quorum.*` settings, and the constants that it has no setting for."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20


class Sent(NamedTuple):
    to: NodeId | None
    request: Request


class Parked(NamedTuple):
    """A fetch that waits for records or for a new high watermark."""

    request: FetchRequest
    deadline_ms: float


class Transitions:
    """One replica. `role`, `epoch`, `leader_id` and `high_watermark` are its state."""

    def __init__(
        self,
        me: ReplicaKey,
        *,
        state: ElectionState,
        log: LogView,
        voters: VoterHistory,
        settings: QuorumSettings,
        jitter: Callable[[], float],
        is_observer: bool = False,
    ) -> None:
        """`is_observer`: it can never become a voter."""
        self.me = me
        self.state = state
        self.log = log
        self.role: Role = Unattached()
        # A snapshot has committed records only.
        self.high_watermark: Offset = max(log.start.offset, log.snapshot.offset)
        self._voters = voters
        self._settings = settings
        self._jitter = jitter
        self.is_observer = is_observer
        self._now_ms = 0.0
        self._effects: list[Effect] = []
        self._last_request_id: RequestId = 0
        self._sent: dict[RequestId, Sent] = {}
        self._parked: dict[RequestId, Parked] = {}
        # The earliest time of the next request to a node, after one failed; None stands for the bootstrap servers.
        self._retry_at_ms: dict[NodeId | None, float] = {}
        self._fetch_id: RequestId | None = None
        self._has_leader_failed = False
        # The snapshot that the shell downloads; no fetch is sent meanwhile.
        self.downloading: LogPosition | None = None

    @property
    def epoch(self) -> LeaderEpoch:
        return self.state.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of this epoch, as far as this replica knows."""
        return self.state.leader_id

    @property
    def voters(self) -> VoterSet:
        return self._voters.current

    @property
    def voter_history(self) -> VoterHistory:
        return self._voters

    @property
    def is_voter(self) -> bool:
        return self.me in self.voters

    @property
    def has_voter_change(self) -> bool:
        """Whether the newest set of voters is not known to be committed."""
        return self._voters.changed_at >= self.high_watermark

    @property
    def is_elector(self) -> bool:
        """Whether this replica takes part in elections.

        A voter that was removed does so until it knows that the removal is committed. Without it, a leader that removes
        itself from two voters and restarts would strand the other one: no other replica has its longer log.
        """
        return self.is_voter or (self.has_voter_change and self.me in self._voters.previous)

    @property
    def may_stand(self) -> bool:
        """Whether this replica begins elections.

        One that must catch up, and has a part of the log, would win with the votes of replicas that have less, and lose
        what it had acknowledged before its disk was replaced. One with an empty log wins only if the others are empty.
        """
        return self.is_elector and not (self.state.must_catch_up and self.log.end_offset > 0)

    @property
    def deadline_ms(self) -> float:
        """The time at which `step(Tick())` has to be called."""
        waiting = [self.role.deadline_ms, *(parked.deadline_ms for parked in self._parked.values())]
        waiting += [at_ms for at_ms in self._retry_at_ms.values() if at_ms > self._now_ms]
        if isinstance(self.role, Leader):
            waiting.append(self._check_quorum_ms(self.role))
        return min(waiting)

    def _save(
        self,
        epoch: LeaderEpoch,
        leader_id: NodeId | None,
        voted: ReplicaKey | None,
        *,
        is_complete: bool = False,
    ) -> None:
        """`is_complete`: from now on this replica has all that it may ever have acknowledged."""
        assert epoch >= self.epoch, "the epoch never falls"
        state = ElectionState(epoch, leader_id, voted, self.state.must_catch_up and not is_complete)
        if state != self.state:
            self.state = state
            self._effects.append(events.Save(state))

    def _leave_role(self) -> None:
        if isinstance(self.role, Leader):
            self._effects.append(events.StopLeading(self.epoch))
        self.downloading = None
        self._fetch_id = None
        self._has_leader_failed = False
        self._retry_at_ms.clear()

    def _refuse_parked(self) -> None:
        """Respond to the parked fetches with NOT_LEADER_OR_FOLLOWER, after this node has stopped leading."""
        for request_id in list(self._parked):
            del self._parked[request_id]
            self._respond(request_id, self._fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _become_unattached(self, epoch: LeaderEpoch, voted: ReplicaKey | None = None) -> None:
        self._leave_role()
        self._save(epoch, None, voted)
        self.role = Unattached(self._election_deadline_ms())
        self._refuse_parked()

    def _become_follower(self, epoch: LeaderEpoch, leader_id: NodeId) -> None:
        self._leave_role()
        # A vote of this epoch is kept. Without it, this replica could vote a second time in the epoch, for a candidate
        # that does not know the leader, and the epoch could get two leaders.
        self._save(epoch, leader_id, self.state.voted if epoch == self.epoch else None)
        self.role = Follower(leader_id, self._fetch_deadline_ms())
        self._refuse_parked()

    def _become_prospective(self) -> None:
        leader_id = self.leader_id if isinstance(self.role, Follower) else None
        self._leave_role()
        self.role = Prospective({self.me.node_id}, set(), self._election_deadline_ms(), leader_id)
        self._count_votes()

    def _become_candidate(self) -> None:
        self._leave_role()
        self._save(self.epoch + 1, None, self.me)
        self.role = Candidate({self.me.node_id}, set(), self._election_deadline_ms())
        self._count_votes()

    def _become_leader(self, granted: set[NodeId]) -> None:
        self._leave_role()
        self._save(self.epoch, self.me.node_id, self.state.voted, is_complete=True)
        recorded = self.voters if self._voters.must_be_recorded else None
        # The first record of the epoch: until it is committed, no record of an earlier epoch is.
        start_offset = self.log.append(self.epoch, 1 if recorded is None else LEADER_CHANGE_WITH_VOTERS_COUNT)
        granting = tuple(key for key in self.voters.keys if key.node_id in granted)
        self._effects.append(events.AppendLeaderChange(self.epoch, start_offset, granting, recorded))
        if recorded is not None:
            self._voters.append(start_offset, recorded)
        unaware = {voter.key.node_id for voter in self.voters.others(self.me)}
        self.role = Leader(start_offset, Progress(self._now_ms), unaware, self._now_ms)

    def _become_resigned(self) -> None:
        successors = self.role.progress.successors(self.voters, self.me) if isinstance(self.role, Leader) else ()
        unaware = {key.node_id for key in successors}
        self._leave_role()
        # Also if it is not a voter any more, unlike `_election_deadline_ms`: a resigned replica does not fetch.
        deadline_ms = self._now_ms + self._settings.election_timeout_ms * (1 + self._jitter())
        self.role = Resigned(deadline_ms, unaware, successors)
        self._refuse_parked()

    def _learn(self, epoch: LeaderEpoch, leader_id: NodeId | None) -> None:
        """Adopt a later epoch, or the leader of the present one, from another replica's request or response."""
        # Another replica may still report this node as the leader of an epoch that it led before a restart. It must not
        # follow itself.
        if leader_id == self.me.node_id:
            leader_id = None
        if epoch > self.epoch:
            if leader_id is None:
                self._become_unattached(epoch)
            else:
                self._become_follower(epoch, leader_id)
        elif epoch == self.epoch and leader_id is not None and leader_id != self.leader_id:
            if self.leader_id is not None:
                raise QuorumError(f"epoch {epoch} has two leaders: node {self.leader_id} and node {leader_id}")
            self._become_follower(epoch, leader_id)

    def _election_deadline_ms(self) -> float:
        if not self.may_stand:
            return inf
        return self._now_ms + self._settings.election_timeout_ms * (1 + self._jitter())

    def _fetch_deadline_ms(self) -> float:
        """Return when a follower without a successful fetch begins an election; random, so that not all begin one."""
        if not self.may_stand:
            return inf
        return self._now_ms + self._settings.fetch_timeout_ms * (1 + self._jitter() / 4)

    def _check_quorum_ms(self, leader: Leader) -> float:
        """Return when a leader without fetches of a majority resigns. If it is cut off, it would lead for ever."""
        return leader.progress.majority_heard_ms(self.voters, self.me) + 1.5 * self._settings.fetch_timeout_ms

    def _lose_pre_vote(self, role: Prospective) -> None:
        """Return to the leader, or wait for another election time-out: a majority did not grant its pre-vote."""
        if role.leader_id is not None:
            self._become_follower(self.epoch, role.leader_id)
        else:
            self._become_unattached(self.epoch, self.state.voted)

    def _count_votes(self) -> None:
        match self.role:
            case Prospective() as role:
                if has_won(role, self.voters):
                    self._become_candidate()
                elif has_lost(role, self.voters):
                    self._lose_pre_vote(role)
            case Candidate() as role if has_won(role, self.voters):
                self._become_leader(role.granted)
            # A candidate that has lost keeps its role until its deadline: if there is a winner, it sends
            # BeginQuorumEpoch.

    def _respond(self, request_id: RequestId, response: Response) -> None:
        self._effects.append(events.Respond(request_id, response))

    def _fetch_error(self, error: ErrorCode) -> FetchResponse:
        return FetchResponse(error, self.epoch, self.leader_id)

    def _commit(self, high_watermark: Offset) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self._effects.append(events.Commit(high_watermark))
