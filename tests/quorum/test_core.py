"""Elections, replication and restarts of small quorums, step by step on a calm network."""

from random import Random
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.quorum import events
from rookery.quorum.election_state import ElectionState
from rookery.quorum.events import EndEpochRequest, FetchRequest, VoteRequest
from rookery.quorum.log_view import NOTHING, LogPosition
from rookery.quorum.roles import Follower, Leader, Prospective, Resigned, Unattached
from rookery.quorum.transitions import QuorumSettings
from rookery.quorum.voters import ReplicaKey
from tests.quorum.replicas import Replica, World

LONG_MS = 10_000


def elect(size: int = 3) -> tuple[World, Replica]:
    world = World(size, jitter=Random(size).random)
    world.boot()
    world.run(LONG_MS)
    (leader,) = world.leaders
    return world, leader


def test_a_sole_voter_leads_once_its_first_record_is_synced() -> None:
    world = World(1)
    world.boot()
    replica = world.replicas[1]
    assert isinstance(replica.core.role, Leader)
    assert replica.led == [], "nothing is committed before the sync"
    replica.sync()
    assert replica.led == [1]
    assert replica.high_watermark == 1


def test_a_sole_voter_leads_a_new_epoch_after_a_restart() -> None:
    world = World(1)
    world.boot()
    world.run(1)
    replica = world.replicas[1]
    replica.propose("a")
    replica.kill()
    replica.boot()
    world.run(1)
    assert [entry.value for entry in replica.entries] == ["leader 1", "leader 1"], "what was not synced is gone"
    assert replica.core.epoch == 2


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_one_leader_is_elected_and_stays(size: int) -> None:
    world, leader = elect(size)
    epoch = leader.core.epoch
    world.run(LONG_MS)
    assert world.leaders == [leader]
    assert leader.core.epoch == epoch
    assert all(replica.core.leader_id == leader.node_id for replica in world.alive)
    assert leader.led == [epoch]


def test_proposals_are_committed_everywhere() -> None:
    world, leader = elect()
    for value in "abcde":
        leader.propose(value)
    world.run(1)
    assert [entry.value for entry in world.checks.committed][-5:] == list("abcde")
    for replica in world.alive:
        assert replica.high_watermark == len(world.checks.committed), "a new high watermark wakes parked fetches"


def test_the_leaders_unsynced_end_does_not_count() -> None:
    _, leader = elect(1)
    before = leader.high_watermark
    leader.propose("a")
    assert leader.high_watermark == before
    leader.sync()
    assert leader.high_watermark == before + 1


def test_the_voters_change_only_after_the_first_commit_of_the_epoch() -> None:
    """Before it, the leader does not know which change of an earlier leader is committed."""
    world = World(1)
    world.boot()
    leader = world.replicas[1]
    change = events.ChangeVoters(leader.core.epoch, world.voters)
    assert leader.core.step(change, world.now_ms) == [events.RefuseProposal(leader.core.epoch)]
    leader.sync()
    assert any(isinstance(effect, events.AppendVoters) for effect in leader.core.step(change, world.now_ms))


def test_a_voter_syncs_before_it_fetches_again() -> None:
    world, leader = elect()
    world.messages.clear()
    leader.propose("a")
    follower = next(replica for replica in world.alive if replica is not leader)
    message = next(message for message in world.messages if message.target == follower.node_id)
    world.messages.clear()
    world.deliver(message)
    assert follower.entries[-1].value == "a"
    assert not any(message.source == follower.node_id for message in world.messages)
    follower.sync()
    assert any(message.source == follower.node_id for message in world.messages)


def test_a_killed_leader_is_replaced() -> None:
    world, leader = elect()
    leader.propose("a")
    world.run(1)
    leader.kill()
    world.run(LONG_MS)
    (successor,) = world.leaders
    assert successor is not leader
    assert "a" in [entry.value for entry in successor.entries]
    leader.boot()
    world.run(LONG_MS)
    assert world.leaders == [successor], "a returning replica disturbs no leader"
    assert leader.entries == successor.entries


def test_a_leader_that_is_cut_off_resigns() -> None:
    world, leader = elect()
    world.run(3 * LONG_MS, cut=frozenset({leader.node_id}))
    assert not isinstance(leader.core.role, Leader)
    (successor,) = world.leaders
    leader_epoch = leader.core.epoch
    assert leader_epoch <= successor.core.epoch, "pre-votes do not raise the epoch of a replica that is cut off"
    world.run(LONG_MS)
    assert world.leaders == [successor]


def test_records_of_a_deposed_leader_are_cut() -> None:
    world, leader = elect()
    for _ in range(3):
        leader.propose("lost")
    leader.sync()
    world.messages.clear()
    leader.kill()
    world.run(LONG_MS)
    (successor,) = world.leaders
    successor.propose("kept")
    world.run(1)
    leader.boot()
    world.run(LONG_MS)
    assert leader.entries == successor.entries
    assert "lost" not in [entry.value for entry in leader.entries]


def test_a_former_leader_that_restarts_finds_its_successor_at_once() -> None:
    world, leader = elect()
    leader.kill()
    world.run(LONG_MS)
    (successor,) = world.leaders
    leader.boot()
    world.run(QuorumSettings().retry_backoff_ms)
    assert leader.core.leader_id == successor.node_id, "without waiting for BeginQuorumEpoch"
    assert leader.entries == successor.entries


def test_a_former_leader_resigns_its_epoch_after_a_restart() -> None:
    world, leader = elect()
    leader.kill()
    leader.boot()
    assert isinstance(leader.core.role, Resigned)
    assert leader.core.epoch == leader.disk.state.epoch
    epoch = leader.core.epoch
    vote = VoteRequest(epoch, ReplicaKey(9), leader.key, LogPosition(epoch - 1, 99), False)
    effects = leader.core.step(events.Received(1, vote), world.now_ms)
    (response,) = [effect.response for effect in effects if isinstance(effect, events.Respond)]
    assert isinstance(response, events.VoteResponse)
    assert not response.granted


def test_a_clean_stop_hands_over_at_once() -> None:
    world, leader = elect(5)
    leader.step(events.Resign())
    world.run(50)
    (successor,) = world.leaders
    assert successor is not leader


class Single:
    """One core among three voters, and what it answers."""

    def __init__(self, state: ElectionState | None = None) -> None:
        self.world = World(3)
        self.replica = self.world.replicas[1]
        self.replica.disk.state = state or ElectionState()
        self.replica.boot()

    def ask(self, request: events.Request) -> events.Response:
        effects = self.replica.core.step(events.Received(1, request), self.world.now_ms)
        (response,) = [effect.response for effect in effects if isinstance(effect, events.Respond)]
        saved = [number for number, effect in enumerate(effects) if isinstance(effect, events.Save)]
        answered = [number for number, effect in enumerate(effects) if isinstance(effect, events.Respond)]
        assert not saved or max(saved) < min(answered), "saved before it is answered"
        return response

    def vote(self, candidate: int, epoch: int, *, last: LogPosition = NOTHING, pre: bool = False) -> bool:
        key = ReplicaKey(candidate, UUID(int=candidate))
        response = self.ask(VoteRequest(epoch, key, self.replica.key, last, pre))
        assert isinstance(response, events.VoteResponse)
        return response.granted


def test_one_vote_per_epoch() -> None:
    single = Single()
    assert single.vote(2, 1)
    assert single.vote(2, 1), "the same question gets the same answer"
    assert not single.vote(3, 1)
    assert single.vote(3, 2)


def test_a_vote_survives_a_restart() -> None:
    single = Single()
    state = ElectionState(5, None, ReplicaKey(2, UUID(int=2)))
    again = Single(state)
    assert single.vote(3, 5)
    assert not again.vote(3, 5)
    assert again.vote(2, 5)


def test_a_pre_vote_binds_to_nothing() -> None:
    single = Single()
    assert single.vote(2, 1, pre=True)
    assert single.vote(3, 1, pre=True)
    assert single.vote(3, 1)
    assert single.replica.core.state.voted == ReplicaKey(3, UUID(int=3))


def test_a_follower_that_hears_its_leader_refuses_pre_votes() -> None:
    world, leader = elect()
    follower = next(replica for replica in world.alive if replica is not leader)
    role = follower.core.role
    assert isinstance(role, Follower)
    assert role.has_fetched
    request = VoteRequest(follower.core.epoch, ReplicaKey(9), follower.key, LogPosition(99, 99)._replace(epoch=1), True)
    effects = follower.core.step(events.Received(1, request), world.now_ms)
    (response,) = [effect.response for effect in effects if isinstance(effect, events.Respond)]
    assert isinstance(response, events.VoteResponse)
    assert response.error is ErrorCode.NONE
    assert not response.granted
    end = EndEpochRequest(follower.core.epoch, leader.node_id, (ReplicaKey(9), follower.key))
    follower.core.step(events.Received(2, end), world.now_ms)
    effects = follower.core.step(events.Received(3, request), world.now_ms)
    (response,) = [effect.response for effect in effects if isinstance(effect, events.Respond)]
    assert isinstance(response, events.VoteResponse)
    assert response.granted, "the leader itself said that it is gone"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (VoteRequest(3, ReplicaKey(2), ReplicaKey(1), LogPosition(0, 0), False), ErrorCode.FENCED_LEADER_EPOCH),
        (VoteRequest(9, ReplicaKey(2), ReplicaKey(3), LogPosition(0, 0), False), ErrorCode.INVALID_VOTER_KEY),
        (VoteRequest(9, ReplicaKey(2), ReplicaKey(1), LogPosition(9, 0), False), ErrorCode.INVALID_REQUEST),
        (events.BeginEpochRequest(3, 2, ReplicaKey(1)), ErrorCode.FENCED_LEADER_EPOCH),
        (events.BeginEpochRequest(9, 2, ReplicaKey(3)), ErrorCode.INVALID_VOTER_KEY),
        (EndEpochRequest(3, 2, ()), ErrorCode.FENCED_LEADER_EPOCH),
        (FetchRequest(3, ReplicaKey(2), LogPosition(0, 0), 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (FetchRequest(9, ReplicaKey(2), LogPosition(0, 0), 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (FetchRequest(4, ReplicaKey(2), LogPosition(0, 0), 0, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_requests_that_are_refused(request_: events.Request, error: ErrorCode) -> None:
    single = Single(ElectionState(4, None, None))
    assert single.ask(request_).error is error


def test_an_unattached_replica_looks_for_the_leader() -> None:
    single = Single(ElectionState(4, None, None))
    assert isinstance(single.replica.core.role, Unattached)
    assert any(isinstance(message.payload, FetchRequest) for message in single.world.messages)


def test_a_replica_without_answers_does_not_raise_its_epoch() -> None:
    world = World(3)
    world.replicas[1].boot()
    world.run(20 * LONG_MS)
    replica = world.replicas[1]
    assert replica.core.epoch == 0
    assert isinstance(replica.core.role, Prospective | Unattached)


def test_an_empty_replica_begins_with_a_snapshot() -> None:
    world, leader = elect()
    snapshot = LogPosition(1, 1)
    leader.core.log.snapshot = snapshot
    empty = FetchRequest(leader.core.epoch, ReplicaKey(9), NOTHING, 0, 500)
    effects = leader.core.step(events.Received(99, empty), world.now_ms)
    (response,) = [effect.response for effect in effects if isinstance(effect, events.Respond)]
    assert isinstance(response, events.FetchResponse)
    assert response.snapshot == snapshot


def test_a_follower_downloads_a_snapshot_and_continues_after_it() -> None:
    single = Single()
    core, world = single.replica.core, single.world
    core.step(events.Received(1, events.BeginEpochRequest(4, 2, single.replica.key)), 0)
    fetch = core._fetch_id
    assert fetch is not None
    snapshot = LogPosition(3, 100)
    answer = events.FetchResponse(ErrorCode.NONE, 4, 2, 120, snapshot=snapshot)
    effects = core.step(events.Answered(fetch, answer), 1)
    assert effects == [events.DownloadSnapshot(2, 4, snapshot)], "and it fetches nothing meanwhile"
    core.step(events.SnapshotProgress(), 1900)
    assert core.deadline_ms == 1900 + world.settings.fetch_timeout_ms * 1.125, "the leader lives"
    effects = core.step(events.SnapshotEnded(snapshot, core.voters), 2000)
    assert core.log.end == snapshot
    assert effects[0] == events.Commit(100)
    (sent,) = [effect.request for effect in effects if isinstance(effect, events.Send)]
    assert isinstance(sent, FetchRequest)
    assert sent.last == snapshot


def test_a_failed_download_is_tried_again() -> None:
    single = Single()
    core = single.replica.core
    core.step(events.Received(1, events.BeginEpochRequest(4, 2, single.replica.key)), 0)
    assert core._fetch_id is not None
    answer = events.FetchResponse(ErrorCode.NONE, 4, 2, 120, snapshot=LogPosition(3, 100))
    core.step(events.Answered(core._fetch_id, answer), 1)
    effects = core.step(events.SnapshotFailed(LogPosition(3, 100)), 2)
    assert core.log.end == NOTHING
    assert any(isinstance(effect, events.Send) for effect in effects)
