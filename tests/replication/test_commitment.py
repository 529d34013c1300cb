"""Waiting for commits on an event loop that the test steps manually, also across elections that are lost and won."""

import pytest

from rookery.base.errors import ErrorCode
from rookery.replication.commitment import when_committed
from rookery.replication.pending import Pending
from rookery.replication.replica import Replica
from tests.replication.elections import FOLLOWER, find_lost, forget_leader_epochs, lose_and_win_election, set_leader
from tests.replication.test_pending import ManualLoop
from tests.replication.test_replica_transactions import Leader
from tests.storage.samples import START_MS, batch


class Wait:
    """An append on a leader with one follower, and the answer to a caller that waits for its commit."""

    def __init__(self, value: bytes = b"ours") -> None:
        self.loop = ManualLoop()
        self.pending = Pending(self.loop)
        self.replica: Replica = Leader(isr=(1, FOLLOWER)).replica
        self.replica._changed = lambda replica: self.pending.wake(replica.state.topic_partition)
        self.value = value
        self.answers: list[ErrorCode] = []
        self.is_wanted = True
        appended = self.replica.append_coordinated(batch(value=value), now_ms=START_MS)
        when_committed(
            self.pending,
            self.replica,
            appended.end_offset,
            leader_epoch=self.replica.state.leader_epoch,
            timeout_ms=1000,
            is_wanted=lambda: self.is_wanted,
            done=self.answers.append,
        )
        assert self.answers == []

    def wake(self) -> list[ErrorCode]:
        self.pending.wake(self.replica.state.topic_partition)
        self.loop.turn()
        return self.answers


def test_done_when_the_follower_has_the_records() -> None:
    wait = Wait()
    assert wait.wake() == []
    wait.replica.read(1, 1, node_id=FOLLOWER)
    assert wait.wake() == [ErrorCode.NONE]
    assert len(wait.pending) == 0


def test_time_out() -> None:
    wait = Wait()
    wait.loop.fire_timers()
    assert wait.wake() == [ErrorCode.REQUEST_TIMED_OUT]


def test_not_wanted_any_more() -> None:
    wait = Wait()
    wait.is_wanted = False
    assert wait.wake() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_deposed() -> None:
    wait = Wait()
    set_leader(wait.replica, leader=FOLLOWER, leader_epoch=6)
    assert wait.wake() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_high_watermark_of_a_later_epoch_does_not_count() -> None:
    """Epoch 6, a truncation and epoch 7 before the waiter runs: the offset is committed, but with other records."""
    wait = Wait(b"ours")
    lose_and_win_election(wait.replica, batch(value=b"others"))
    assert wait.wake() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert find_lost(wait.replica, {b"ours": wait.answers[0]}) == set()


def test_a_waiter_without_the_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_leader_epochs(monkeypatch)
    wait = Wait(b"ours")
    lose_and_win_election(wait.replica, batch(value=b"others"))
    assert wait.wake() == [ErrorCode.NONE]
    assert find_lost(wait.replica, {b"ours": wait.answers[0]}) == {b"ours"}
