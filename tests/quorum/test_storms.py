"""Quorums of one to five replicas under storms: the invariants hold, and mistakes that are planted are found."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.quorum import core, transitions, votes
from rookery.quorum.core import QuorumCore
from rookery.quorum.election_state import ElectionState
from rookery.quorum.events import Save, VoteRequest, VoteResponse
from rookery.quorum.log_view import NOTHING, LogView
from rookery.quorum.roles import Follower, Leader
from rookery.quorum.transitions import Transitions
from tests.quorum.replicas import Entry, Message, Replica, ViolationError, World
from tests.quorum.storm import Storm

_STEPS = 1500


def storm(seed: int, *, steps: int = _STEPS) -> Storm:
    random = Random(seed)
    found = Storm(lambda n: random.randrange(n), size=1 + seed % 5)
    found.rage(steps)
    found.calm_down()
    return found


@pytest.mark.parametrize("seed", range(1, 41))
def test_storms(seed: int) -> None:
    storm(seed)


def test_storms_do_some_work() -> None:
    """The checks would hold in a quorum that does nothing."""
    storms = [storm(seed) for seed in range(1, 11)]
    assert sum(len(each.world.checks.committed) for each in storms) > 300
    assert sum(replica.core.epoch for each in storms for replica in each.world.alive) > 100


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.integers(2, 4), st.data())
def test_storms_that_shrink(size: int, data: st.DataObject) -> None:
    found = Storm(lambda n: data.draw(st.integers(0, n - 1)), size)
    found.rage(60)
    found.calm_down()


def violations(first: int) -> Iterator[str]:
    for seed in range(first, first + 200):
        try:
            storm(seed)
        except ViolationError as violation:
            yield violation.name
        except (transitions.QuorumError, AssertionError) as error:
            yield type(error).__name__


def caught(*names: str, first: int = 1) -> bool:
    """Return whether storms find a violation of these names; `first` is a seed shortly before one that does."""
    return any(name in names for name in violations(first))


def test_a_leader_that_counts_its_unsynced_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: LogView, epoch: int, count: int, original: Any = LogView.append) -> int:
        base: int = original(self, epoch, count)
        self.synced_offset = self.end_offset
        return base

    monkeypatch.setattr(LogView, "append", append)
    assert caught("committed is synced")


def test_a_voter_that_fetches_before_its_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(self: QuorumCore, original: Any = QuorumCore._fetch) -> None:
        synced, self.log.synced_offset = self.log.synced_offset, self.log.end_offset
        original(self)
        self.log.synced_offset = synced

    monkeypatch.setattr(QuorumCore, "_fetch", fetch)
    assert caught("committed is synced")


def commit_of_an_earlier_epoch() -> None:
    """Figure 8 of the Raft paper: X of epoch 1 is on a majority, but a replica with a record of epoch 2 can still win.

    Node 5 led epoch 2 and wrote one record that no other node has. Node 1 or 2 leads epoch 3 and copies X to a third
    replica. If it declares X committed then, and dies, node 5 wins the votes of 3 and 4 and cuts X.
    """
    world = World(5, jitter=Random(1).random)
    world.fetch_records_max = 1
    first, lost, other = Entry(1, "leader 1"), Entry(1, "X"), Entry(2, "leader 5")
    for node_id, replica in world.replicas.items():
        replica.disk.entries = {1: [first, lost], 2: [first, lost], 5: [first, other]}.get(node_id, [first])
        voted = world.replicas[5].key if node_id > 2 else None
        replica.disk.state = ElectionState(2 if node_id > 2 else 1, 5 if node_id == 5 else None, voted)
        if node_id != 5:
            replica.boot()
    while not any(replica.high_watermark >= 2 for replica in world.alive):
        world.run_one()
    for node_id in (1, 2):
        world.replicas[node_id].kill()
    world.lose_messages()
    world.replicas[5].boot()
    world.run(60_000)


def test_a_commit_of_an_earlier_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def become_leader(self: Transitions, granted: set[int], original: Any = Transitions._become_leader) -> None:
        original(self, granted)
        assert isinstance(self.role, Leader)
        self.role.start_offset = -1

    commit_of_an_earlier_epoch()
    monkeypatch.setattr(Transitions, "_become_leader", become_leader)
    with pytest.raises((ViolationError, transitions.QuorumError)):
        commit_of_an_earlier_epoch()


def two_votes_around_a_crash() -> list[bool]:
    """Node 1 is asked by 2, crashes, and is asked by 3 in the same epoch; what it granted."""
    world = World(3)
    voter, granted = world.replicas[1], []
    for candidate in (2, 3):
        voter.boot()
        request = VoteRequest(1, world.replicas[candidate].key, voter.key, NOTHING, False)
        world.messages.clear()
        world.deliver(Message(candidate, 1, 1, request, 0))
        (response,) = [message.payload for message in world.messages if not message.is_request]
        assert isinstance(response, VoteResponse)
        granted.append(response.granted)
        voter.kill()
    return granted


def test_a_vote_that_is_not_saved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def carry_out(self: Replica, effects: Any, message: Any = None, original: Any = Replica.carry_out) -> None:
        original(self, [effect for effect in effects if not isinstance(effect, Save)], message)

    assert two_votes_around_a_crash() == [True, False]
    monkeypatch.setattr(Replica, "carry_out", carry_out)
    assert two_votes_around_a_crash() == [True, True], "two candidates of one epoch would have its vote"


def test_a_vote_for_a_shorter_log_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def granted(role: Any, state: Any, end: Any, request: Any, original: Any = votes.grants) -> bool:
        return bool(original(role, state, request.last, request))

    monkeypatch.setattr(core, "grants", granted)
    assert caught("committed stays", "QuorumError")


def test_leading_an_epoch_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def become_resigned(self: Transitions, original: Any = Transitions._become_resigned) -> None:
        if isinstance(self.role, Leader):
            original(self)
        else:
            self._become_leader({self.me.node_id})

    monkeypatch.setattr(Transitions, "_become_resigned", become_resigned)
    assert caught("logs match", "committed stays", "QuorumError", "committed is synced", "committed is there")


def test_responses_of_an_earlier_epoch_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(
        self: QuorumCore, sent: Any, request: Any, response: Any, original: Any = QuorumCore._accept_fetch
    ) -> None:
        if isinstance(self.role, Follower):
            request = request._replace(epoch=self.epoch, last=self.log.end)
        original(self, sent, request, response)

    monkeypatch.setattr(QuorumCore, "_accept_fetch", accept)
    monkeypatch.setattr(QuorumCore, "_accept", _accept_all)
    assert caught("logs match", "committed stays", "QuorumError", "AssertionError", first=240)


def _accept_all(self: QuorumCore, request_id: int, response: Any, original: Any = QuorumCore._accept) -> None:
    if request_id in self._sent:
        self._fetch_id = request_id
    original(self, request_id, response)


def test_truncation_of_the_synced_offset_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def truncate(self: LogView, end_offset: int, original: Any = LogView.truncate) -> None:
        synced = self.synced_offset
        original(self, end_offset)
        self.synced_offset = synced

    monkeypatch.setattr(LogView, "truncate", truncate)
    assert caught("committed is synced", "committed stays", "AssertionError")


def test_a_vote_of_a_voter_that_lost_its_log_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def granted(role: Any, state: ElectionState, end: Any, request: Any, original: Any = votes.grants) -> bool:
        return bool(original(role, replace(state, must_catch_up=False), end, request))

    monkeypatch.setattr(core, "grants", granted)
    monkeypatch.setattr(Transitions, "may_stand", Transitions.is_elector)
    assert caught("committed stays", "QuorumError")
