"""Raft as Kafka does it (KIP-595, 630, 853, 996), as a pure state machine: events in, effects out.

Theory of operation. A replica is in one role (`roles` has the table). Replicas pull: followers fetch from the leader,
and the position that a voter fetches from is its acknowledgement, because a voter syncs before it fetches. The leader's
high watermark is the offset that a majority of the voters, the leader included, has synced; it advances only once a
record of the leader's own epoch is below it. A replica changes its role when a request or response has a later epoch or
a leader that it does not know, and when a deadline passes.

Invariants, each of which the tests check:
- `Save` comes before any effect that depends on the state in it, and the epoch never falls.
- One vote per epoch; a replica that led an epoch, or voted in it, does not lead it again after a restart.
- The high watermark never falls, and nothing before it is truncated.
- A voter that begins with an empty log may have lost records that it acknowledged, with its disk. Until it has all that
  a leader of the others has committed, it votes only for candidates whose logs are empty too, as in the first election
  of a cluster, and begins no election with a part of the log (KAFKA-14077).
- One fetch is outstanding; the response of an earlier one, or of an earlier epoch, is ignored.

The shell calls `step` with one event at a time and carries the effects out in order. It calls `step(Tick())` when
`deadline_ms` has passed. Randomness comes in as `jitter`, which returns a number from 0 up to 1.
"""

from math import inf

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.quorum import events
from rookery.quorum.election_state import ElectionState
from rookery.quorum.events import (
    BeginEpochRequest,
    Effect,
    EndEpochRequest,
    EpochResponse,
    Event,
    FetchRequest,
    FetchResponse,
    Request,
    RequestId,
    Response,
    VoteRequest,
    VoteResponse,
)
from rookery.quorum.log_view import Diverging, LogPosition, SnapshotNeeded
from rookery.quorum.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from rookery.quorum.transitions import UPGRADE_COUNT, Parked, QuorumError, Sent, Transitions
from rookery.quorum.voters import ReplicaKey, VoterSet
from rookery.quorum.votes import grants, vote_problem

# When a follower begins an election after its connection to the leader broke: random, so that one of them is first.
_LOST_DELAY_MS_MIN = 50
_LOST_DELAY_MS_MAX = 300


class QuorumCore(Transitions):
    """One replica: `start`, then `step` with one event at a time."""

    def start(self, now_ms: float) -> list[Effect]:
        """Take the role that follows from the saved state and the log. Must be the first call."""
        self._begin(now_ms)
        if self.state == ElectionState() and self.log.end_offset == 0 and self.is_voter and len(self.voters) > 1:
            self.state = ElectionState(must_catch_up=True)
        before, log_epoch = self.state, self.log.last_epoch
        if log_epoch > before.epoch:
            self._become_unattached(log_epoch)
        elif before.leader_id == self.me.node_id:
            # This replica led the epoch, and may have lost records that it wrote in it without a sync. If it led the
            # epoch again, other records could take their offsets: replicas would have different records at one offset
            # and epoch, which no comparison of logs can find.
            self._become_resigned()
        elif before.voted == self.me and before.leader_id is None and self.is_elector:
            self.role = Candidate({self.me.node_id}, set(), self._election_deadline_ms())
        elif before.leader_id is not None:
            self._become_follower(before.epoch, before.leader_id)
        else:
            self._become_unattached(before.epoch, before.voted)
        if self.voters.is_only_voter(self.me):
            self._become_prospective()
        return self._finish()

    def step(self, event: Event, now_ms: float) -> list[Effect]:
        """Process one event; return the effects, which the shell carries out in order."""
        self._begin(now_ms)
        match event:
            case events.Tick():
                self._tick()
            case events.Received(request_id, request):
                self._receive(request_id, request)
            case events.Answered(request_id, response):
                self._accept(request_id, response)
            case events.Failed(request_id):
                self._fail(request_id)
            case events.Propose(epoch, count):
                self._propose(epoch, count)
            case events.ChangeVoters(epoch, voters):
                self._change_voters(epoch, voters)
            case events.Synced(end_offset):
                self.log.synced(end_offset)
                self._advance_high_watermark()
            case events.SnapshotProgress():
                if isinstance(self.role, Follower):
                    self.role.deadline_ms = self._fetch_deadline_ms()
            case events.VoterReported(epoch, voter):
                if isinstance(self.role, Leader) and epoch == self.epoch:
                    self.role.reported[voter.key.node_id] = voter
            case events.SnapshotEnded(snapshot, voters):
                self._end_download(snapshot, voters)
            case events.SnapshotFailed(snapshot):
                if snapshot == self.downloading:
                    self.downloading = None
                    self._back_off(None)
            case events.SnapshotServed(replica):
                if isinstance(self.role, Leader):
                    self.role.progress.heard(replica, now_ms=self._now_ms)
            case events.ConnectionLost(node_id):
                self._lose_connection(node_id)
            case events.Resign():
                if isinstance(self.role, Leader):
                    self._become_resigned()
        return self._finish()

    def _begin(self, now_ms: float) -> None:
        self._now_ms = now_ms
        self._effects = []

    def _finish(self) -> list[Effect]:
        self._send_requests()
        return self._effects

    def _tick(self) -> None:
        for request_id, parked in list(self._parked.items()):
            if parked.deadline_ms <= self._now_ms:
                del self._parked[request_id]
                self._send_records(request_id, parked.request)
        role = self.role
        if isinstance(role, Leader):
            if self._check_quorum_ms(role) <= self._now_ms:
                self._become_resigned()
        elif role.deadline_ms <= self._now_ms:
            match role:
                case Resigned():
                    # A former voter looks for the leader of this epoch or a later one.
                    self._become_unattached(self.epoch + 1 if self.is_elector else self.epoch)
                case Unattached() | Follower() if not self.may_stand:
                    # It was removed from the voters, or must catch up first.
                    role.deadline_ms = inf
                case Prospective():
                    self._lose_pre_vote(role)
                case _:
                    self._become_prospective()

    def _lose_connection(self, node_id: NodeId) -> None:
        """Begin an election soon if the leader's process seems to have ended, and grant pre-votes until a fetch."""
        if isinstance(self.role, Follower) and self.role.leader_id == node_id:
            # Without this, the other followers, which have fetched too, would refuse the pre-vote.
            self.role.has_fetched = False
            if not self.may_stand:
                return
            soon_ms = self._now_ms + _LOST_DELAY_MS_MIN + (_LOST_DELAY_MS_MAX - _LOST_DELAY_MS_MIN) * self._jitter()
            self.role.deadline_ms = min(self.role.deadline_ms, soon_ms)

    # Requests of other replicas.

    def _receive(self, request_id: RequestId, request: Request) -> None:
        match request:
            case VoteRequest():
                self._respond(request_id, self._vote(request))
            case BeginEpochRequest():
                self._respond(request_id, self._begin_epoch(request))
            case EndEpochRequest():
                self._respond(request_id, self._end_epoch(request))
            case FetchRequest():
                self._serve_fetch(request_id, request)

    def _vote(self, request: VoteRequest) -> VoteResponse:
        problem = vote_problem(request)
        if not request.voter.matches(self.me):
            return self._vote_response(ErrorCode.INVALID_VOTER_KEY)
        if request.epoch < self.epoch:
            return self._vote_response(ErrorCode.FENCED_LEADER_EPOCH)
        if problem is not None:
            return self._vote_response(problem)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch)
        granted = grants(self.role, self.state, self.log.end, request)
        if granted and not request.pre_vote:
            # The candidate has an empty log if this voter must catch up, and a majority has granted it a pre-vote: the
            # cluster has no records yet.
            self._save(self.epoch, None, request.candidate, is_complete=True)
        return self._vote_response(ErrorCode.NONE, granted=granted)

    def _vote_response(self, error: ErrorCode, *, granted: bool = False) -> VoteResponse:
        return VoteResponse(error, self.epoch, self.leader_id, granted)

    def _begin_epoch(self, request: BeginEpochRequest) -> EpochResponse:
        if request.epoch < self.epoch:
            return self._epoch_response(ErrorCode.FENCED_LEADER_EPOCH)
        if not request.voter.matches(self.me):
            return self._epoch_response(ErrorCode.INVALID_VOTER_KEY)
        self._learn(request.epoch, request.leader_id)
        if isinstance(self.role, Prospective) and self.role.leader_id == request.leader_id:
            # `_learn` ignores a leader that is known: a response of another replica must not end the pre-vote. This
            # request comes from the leader itself, so it can be reached again.
            self._become_follower(self.epoch, request.leader_id)
        return self._epoch_response(ErrorCode.NONE)

    def _end_epoch(self, request: EndEpochRequest) -> EpochResponse:
        if request.epoch < self.epoch:
            return self._epoch_response(ErrorCode.FENCED_LEADER_EPOCH)
        self._learn(request.epoch, request.leader_id)
        if isinstance(self.role, Follower) and self.may_stand:
            # The leader itself reports that it has resigned. Without this, the replicas that have just fetched would
            # refuse the first successor's pre-votes, and every clean stop would cost an election time-out.
            self.role.has_fetched = False
            self.role.deadline_ms = self._now_ms + self._successor_delay_ms(request.successors)
            self._tick()
        return self._epoch_response(ErrorCode.NONE)

    def _successor_delay_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """Return the delay of this replica's election: 0 for the best successor, then doubled with each position."""
        position = next((i for i, key in enumerate(successors) if key.matches(self.me)), len(successors))
        if position == 0 and successors:
            return 0
        return (self._settings.election_backoff_max_ms >> max(len(successors) - 1, 0)) << max(position - 1, 0)

    def _epoch_response(self, error: ErrorCode) -> EpochResponse:
        return EpochResponse(error, self.epoch, self.leader_id)

    def _serve_fetch(self, request_id: RequestId, request: FetchRequest) -> None:
        leader = self.role
        if request.epoch < self.epoch:
            self._respond(request_id, self._fetch_error(ErrorCode.FENCED_LEADER_EPOCH))
        elif request.epoch > self.epoch:
            self._respond(request_id, self._fetch_error(ErrorCode.UNKNOWN_LEADER_EPOCH))
        elif not isinstance(leader, Leader):
            self._respond(request_id, self._fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            match self.log.compare(request.last.offset, request.last.epoch):
                case Diverging(end):
                    # Without a note of the position: the replica has other records below it. If they counted, the high
                    # watermark could pass records that no majority has.
                    self._respond(request_id, self._fetch_response(diverging=end))
                case SnapshotNeeded(snapshot):
                    self._check_position(leader, request)
                    leader.progress.heard(request.replica, now_ms=self._now_ms)
                    self._respond(request_id, self._fetch_response(snapshot=snapshot))
                case _:
                    self._take_fetch(leader, request_id, request)

    def _take_fetch(self, leader: Leader, request_id: RequestId, request: FetchRequest) -> None:
        """Note the replica's position, and park the fetch until there is something to send or its time has passed."""
        self._check_position(leader, request)
        leader.progress.fetched(
            request.replica, request.last.offset, leader_end=self.log.end_offset, now_ms=self._now_ms
        )
        self._parked[request_id] = Parked(request, self._now_ms + request.wait_ms)
        self._advance_high_watermark()
        self._wake_fetches()

    def _check_position(self, leader: Leader, request: FetchRequest) -> None:
        """Report a voter that has lost what it acknowledged in this term: its disk was replaced, or is an old copy."""
        voter = self.voters.get(request.replica.node_id)
        before = leader.progress.of(voter.key) if voter is not None else None
        if before is not None and request.replica in self.voters and request.last.offset < before.end_offset:
            self._effects.append(events.VoterWentBack(request.replica, request.last.offset, before.end_offset))
            leader.progress.forget(request.replica.node_id)

    def _wake_fetches(self) -> None:
        """Respond to the fetches for which there are records, or a higher high watermark (KIP-1166)."""
        for request_id, (request, deadline_ms) in list(self._parked.items()):
            has_records = request.last.offset < self.log.end_offset
            if has_records or request.high_watermark < self._known_high_watermark() or deadline_ms <= self._now_ms:
                del self._parked[request_id]
                self._send_records(request_id, request)

    def _send_records(self, request_id: RequestId, request: FetchRequest) -> None:
        self._effects.append(events.SendRecords(request_id, self._fetch_response(), request.last.offset))

    def _known_high_watermark(self) -> Offset:
        """Return the high watermark to report; it is unknown (-1) until a record of this epoch is committed."""
        return self.high_watermark if isinstance(self.role, Leader) and self.role.has_committed else -1

    def _fetch_response(
        self, *, diverging: LogPosition | None = None, snapshot: LogPosition | None = None
    ) -> FetchResponse:
        return FetchResponse(
            ErrorCode.NONE,
            self.epoch,
            self.leader_id,
            self._known_high_watermark(),
            diverging=diverging,
            snapshot=snapshot,
        )

    # The leader's log.

    def _propose(self, epoch: LeaderEpoch, count: int) -> None:
        if not isinstance(self.role, Leader) or epoch != self.epoch:
            self._effects.append(events.RefuseProposal(epoch))
            return
        base_offset = self.log.append(epoch, count)
        self._effects.append(events.AppendProposal(epoch, base_offset))
        self._wake_fetches()

    def _change_voters(self, epoch: LeaderEpoch, voters: VoterSet) -> None:
        leader = self.role
        # Two changes at once, or one before the leader knows what is committed, could leave two sets of voters without
        # a common member in their majorities: each could elect a leader.
        may_change = isinstance(leader, Leader) and leader.has_committed and not self.has_voter_change
        if not may_change or epoch != self.epoch:
            self._effects.append(events.RefuseProposal(epoch))
            return
        assert isinstance(leader, Leader)
        added = {key.node_id for key in voters.keys} - {key.node_id for key in self.voters.keys}
        is_upgrade = not self._voters.is_dynamic
        base_offset = self.log.append(epoch, UPGRADE_COUNT if is_upgrade else 1)
        # In force from here on, committed or not.
        self._voters.append(base_offset, voters)
        leader.unaware = {node_id for node_id in leader.unaware | added if voters.get(node_id) is not None}
        leader.deadline_ms = self._now_ms
        self._effects.append(events.AppendVoters(epoch, base_offset, voters, is_upgrade))
        self._wake_fetches()

    def _advance_high_watermark(self) -> None:
        leader = self.role
        if not isinstance(leader, Leader):
            return
        reached = leader.progress.majority_offset(self.voters, self.me, self.log.synced_offset)
        # A majority that has only records of earlier epochs proves nothing: a replica with a later epoch in its log
        # could still be elected, and would truncate them (figure 8 of the Raft paper).
        if reached <= leader.start_offset or (leader.has_committed and reached <= self.high_watermark):
            return
        is_first, leader.has_committed = not leader.has_committed, True
        self._commit(reached)
        if is_first:
            self._effects.append(events.Lead(self.epoch))
        self._wake_fetches()
        if not self.is_voter and not self.has_voter_change:
            # It has led until its own removal was committed.
            self._become_resigned()

    # Responses to this replica's requests.

    def _accept(self, request_id: RequestId, response: Response) -> None:
        sent = self._sent.pop(request_id, None)
        if sent is None:
            return
        is_newest_fetch = request_id == self._fetch_id
        if is_newest_fetch:
            self._fetch_id = None
        if response.epoch < self.epoch:
            # The response was made in an earlier epoch: what it says does not hold for this one.
            self._back_off(sent.to)
            return
        self._learn(response.epoch, response.leader_id)
        match sent.request, response:
            case VoteRequest() as vote, VoteResponse():
                self._accept_vote(sent, vote, response)
            case BeginEpochRequest(), EpochResponse() if isinstance(self.role, Leader):
                if response.error is ErrorCode.NONE and sent.to is not None:
                    self.role.unaware.discard(sent.to)
            case EndEpochRequest(), EpochResponse() if isinstance(self.role, Resigned):
                if sent.to is not None:
                    self.role.unaware.discard(sent.to)
            case FetchRequest() as fetch, FetchResponse() if is_newest_fetch:
                self._accept_fetch(sent, fetch, response)

    def _accept_vote(self, sent: Sent, request: VoteRequest, response: VoteResponse) -> None:
        role = self.role
        is_current = isinstance(role, Prospective) if request.pre_vote else isinstance(role, Candidate)
        if not is_current or request.epoch != self.epoch or sent.to is None:
            return
        assert isinstance(role, Prospective | Candidate)
        if request.pre_vote and response.error is ErrorCode.UNSUPPORTED_VERSION:
            # The voter does not have pre-votes (KIP-996) and grants none: only a vote in a new epoch can succeed.
            self._become_candidate()
            return
        (role.granted if response.granted else role.refused).add(sent.to)
        self._count_votes()

    def _accept_fetch(self, sent: Sent, request: FetchRequest, response: FetchResponse) -> None:
        role = self.role
        if response.error is not ErrorCode.NONE:
            self._back_off(sent.to)
            return
        # The response is about another epoch, or about an end of the log that has changed since the request.
        if not isinstance(role, Follower) or request.epoch != self.epoch or request.last != self.log.end:
            return
        self._has_leader_failed = False
        role.has_fetched = True
        is_whole = self.log.end_offset >= response.high_watermark >= 0
        if self.state.must_catch_up and is_whole and response.diverging is None and response.snapshot is None:
            # All that was committed before this leader's term is synced here: it was elected without this voter.
            self._save(self.epoch, self.leader_id, self.state.voted, is_complete=True)
        role.deadline_ms = self._fetch_deadline_ms()
        if response.diverging is not None:
            self._truncate_to(response.diverging)
        elif response.snapshot is not None:
            self.downloading = response.snapshot
            self._effects.append(events.DownloadSnapshot(role.leader_id, self.epoch, response.snapshot))
        else:
            self._append_fetched(request, response)

    def _truncate_to(self, diverging: LogPosition) -> None:
        """Remove the records that the leader does not have.

        The high watermark of a diverging response is not used: this log may still differ below it.
        """
        own = self.log.end_of_epoch(diverging.epoch)
        end_offset = min(diverging.offset, own.offset)
        if end_offset < self.high_watermark:
            raise QuorumError(
                f"the leader of epoch {self.epoch} would cut this log at offset {end_offset}, but everything before "
                f"{self.high_watermark} is committed"
            )
        self.log.truncate(end_offset)
        self._voters.truncate(end_offset)
        self._effects.append(events.Truncate(end_offset))

    def _append_fetched(self, request: FetchRequest, response: FetchResponse) -> None:
        count = 0
        for batch in response.batches:
            # A batch of a later epoch than the request's cannot be from this leader.
            if batch.base_offset != self.log.end_offset or not self.log.last_epoch <= batch.epoch <= request.epoch:
                break
            self.log.append(batch.epoch, batch.record_count)
            if batch.voters is not None:
                self._voters.append(batch.base_offset, batch.voters)
            count += 1
        if count:
            self._effects.append(events.AppendFetched(count))
        self._commit(min(response.high_watermark, self.log.end_offset))

    def _end_download(self, snapshot: LogPosition, voters: VoterSet | None) -> None:
        if snapshot != self.downloading:
            return
        self.downloading = None
        self.log.restart_at(snapshot)
        self._voters.reset(voters)
        self._commit(snapshot.offset)

    def _fail(self, request_id: RequestId) -> None:
        sent = self._sent.pop(request_id, None)
        if sent is None:
            return
        self._back_off(sent.to)
        if request_id == self._fetch_id:
            self._fetch_id = None
            # The next fetch goes to another node, which may know a newer leader.
            self._has_leader_failed = sent.to is not None

    def _back_off(self, to: NodeId | None) -> None:
        self._retry_at_ms[to] = self._now_ms + self._settings.retry_backoff_ms

    # Requests of this replica.

    def _send_requests(self) -> None:
        """Send the requests of the role, except those that are in flight or failed within the retry backoff."""
        match self.role:
            case Prospective() | Candidate() as role:
                asked = role.granted | role.refused
                for voter in self.voters.others(self.me):
                    if voter.key.node_id not in asked:
                        self._send_once(voter.key.node_id, self._vote_request(voter.key))
            case Leader() as role:
                self._announce(role)
            case Resigned() as role:
                for node_id in sorted(role.unaware):
                    self._send_once(node_id, EndEpochRequest(self.epoch, self.me.node_id, role.successors))
                if not role.unaware:
                    # The epoch has no other leader, so no response has records: it names the leader of a later one.
                    # Without this, a leader that was killed and started again waits for the next BeginQuorumEpoch.
                    self._fetch()
            case Follower() | Unattached():
                self._fetch()

    def _vote_request(self, voter: ReplicaKey) -> VoteRequest:
        return VoteRequest(self.epoch, self.me, voter, self.log.end, isinstance(self.role, Prospective))

    def _announce(self, role: Leader) -> None:
        """Send BeginQuorumEpoch to the voters that have not answered it, again after half a fetch time-out."""
        if role.deadline_ms > self._now_ms:
            return
        role.deadline_ms = self._now_ms + self._settings.fetch_timeout_ms / 2 if role.unaware else inf
        for node_id in sorted(role.unaware):
            voter = self.voters.get(node_id)
            if voter is not None:
                self._send_once(node_id, BeginEpochRequest(self.epoch, self.me.node_id, voter.key))

    def _fetch(self) -> None:
        """Fetch the next records from the leader, or from a node that may know the leader. A voter syncs first."""
        # A voter's fetch acknowledges all records before its offset. If they were not synced, a power loss would remove
        # records that the leader counts as committed. The leader may have made this replica a voter just now.
        if not self.is_observer and self.log.synced_offset < self.log.end_offset:
            return
        if self._fetch_id is not None or self.downloading is not None:
            return
        to = self.leader_id if isinstance(self.role, Follower) and not self._has_leader_failed else None
        if self._retry_at_ms.get(to, 0) > self._now_ms:
            return
        # Only one fetch goes to another node; the next one goes to the leader again.
        self._has_leader_failed = False
        # The response to the first fetch shows that the leader is alive: it must not wait for records.
        wait_ms = self._settings.fetch_wait_ms if isinstance(self.role, Follower) and self.role.has_fetched else 0
        request = FetchRequest(self.epoch, self.me, self.log.end, self.high_watermark, wait_ms)
        self._fetch_id = self._send(to, request)

    def _send_once(self, to: NodeId, request: Request) -> None:
        is_in_flight = any(sent.to == to and sent.request == request for sent in self._sent.values())
        if not is_in_flight and self._retry_at_ms.get(to, 0) <= self._now_ms:
            self._send(to, request)

    def _send(self, to: NodeId | None, request: Request) -> RequestId:
        self._last_request_id += 1
        self._sent[self._last_request_id] = Sent(to, request)
        self._effects.append(events.Send(self._last_request_id, to, request))
        return self._last_request_id
