"""Bugs that are planted into the driver and its files: a named check of `members` finds each of them.

The storms over the core (`test_storms`) plant those that need no disk and no connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import Offset
from rookery.quorum import transitions
from rookery.quorum.core import QuorumCore
from rookery.quorum.election_state import STATE_FILE, ElectionState, encode_election_state
from rookery.quorum.events import FetchRequest
from rookery.quorum.replica_log import ReplicaLog
from rookery.quorum.snapshots import CHECKPOINT_SUFFIX, PART_SUFFIX, SnapshotFiles
from rookery.quorum.voters import VoterHistory, VoterSet
from tests.faults.files import Survival
from tests.quorum.members import Cluster, Member
from tests.quorum.test_cluster import snapshot_all
from tests.quorum.test_voter_changes import add

Scenario = Callable[[Cluster], Awaitable[None]]


async def lose_power_together(cluster: Cluster) -> None:
    for _ in range(4):
        await cluster.append(2)
        for member in cluster.members.values():
            member.lose_power(Survival.NOTHING)
        cluster.boot()
    await cluster.converge()


def save_without_sync(patch: pytest.MonkeyPatch) -> None:
    def save(self: ReplicaLog, state: ElectionState) -> None:
        self._files.write_file(self._log.directory / STATE_FILE, encode_election_state(state))
        self.state = state

    patch.setattr(ReplicaLog, "save", save)


def count_without_sync(patch: pytest.MonkeyPatch) -> None:
    async def flush(self: ReplicaLog) -> None:
        self._log.recovery_point = self._log.end_offset

    patch.setattr(ReplicaLog, "flush", flush)


def fetch_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Let voters acknowledge what they have not synced, and the leader count its own unsynced end."""

    def fetch(self: QuorumCore, original: Any = QuorumCore._fetch) -> None:
        self.log.synced_offset = self.log.end_offset
        original(self)

    def advance(self: QuorumCore, original: Any = QuorumCore._advance_high_watermark) -> None:
        self.log.synced_offset = self.log.end_offset
        original(self)

    patch.setattr(QuorumCore, "_fetch", fetch)
    patch.setattr(QuorumCore, "_advance_high_watermark", advance)


async def snapshots_and_restarts(cluster: Cluster) -> None:
    for _ in range(3):
        await cluster.append(3)
        await snapshot_all(cluster)
        for member in cluster.members.values():
            member.kill()
        cluster.boot()
    await cluster.converge()


def take_one_record_less(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaLog.take_snapshot

    async def take(self: ReplicaLog, end_offset: Offset, values: Iterable[bytes], voters: Any) -> None:
        await original(self, end_offset, list(values)[:-1], voters)

    patch.setattr(ReplicaLog, "take_snapshot", take)


async def crash_while_a_snapshot_is_installed(cluster: Cluster) -> None:
    late = cluster.members[3]
    await cluster.until(lambda: len(cluster.up) == 3)
    for crash_at in range(1, 22):
        await cluster.append(3)
        late.kill()
        await cluster.append(2)
        await snapshot_all(cluster)
        late.boot()
        late.disk.stop_after(crash_at)
        await asyncio.sleep(6)
        late.disk.crash_at = None
        if not late.is_up:
            late.boot()
        await cluster.converge()


def install_without_decision(patch: pytest.MonkeyPatch) -> None:
    """Give a downloaded snapshot its name before the log is emptied, so that a start finds both."""
    patch.setattr(
        SnapshotFiles, "begin_install", lambda self, position: self._rename(position, PART_SUFFIX, CHECKPOINT_SUFFIX)
    )
    patch.setattr(SnapshotFiles, "end_install", lambda self, position: None)


async def cut_the_leader_off(cluster: Cluster) -> None:
    await cluster.append()
    old = await cluster.elect()
    for other in cluster.members.values():
        if other is not old:
            cluster.world.network.cut(old.name, other.name)
    waiting = cluster.spawn_append(old)
    await cluster.until(waiting.done)


def lead_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transitions.Transitions, "_check_quorum_ms", lambda self, leader: float("inf"))


async def cut_a_follower_off_one_way(cluster: Cluster) -> None:
    """The leader's bytes do not reach one follower, which must not depose it: the other one has fetched."""
    await cluster.append()
    leader = await cluster.elect()
    epoch, follower = leader.running.leader_epoch, next(each for each in cluster.up if each is not leader)
    cluster.world.network.cut_one_way(leader.name, follower.name)
    await asyncio.sleep(20)
    newest = max(member.running.leader_epoch for member in cluster.up)
    if newest != epoch:
        cluster.world.violations.add("stable leader", f"epoch {newest} after {epoch}")


def grant_every_pre_vote(patch: pytest.MonkeyPatch) -> None:
    def accept(self: QuorumCore, sent: Any, request: FetchRequest, response: Any) -> None:
        original(self, sent, request, response)
        if hasattr(self.role, "has_fetched"):
            self.role.has_fetched = False

    original = QuorumCore._accept_fetch
    patch.setattr(QuorumCore, "_accept_fetch", accept)


def cut_off(cluster: Cluster, some: Iterable[Member]) -> None:
    """Cut the links between some members and all others."""
    apart = list(some)
    for member in apart:
        for other in cluster.members.values():
            if other not in apart:
                cluster.world.network.cut(member.name, other.name)


async def append_on_all_sides(cluster: Cluster) -> None:
    """Let each member that believes to lead append, heal, and let the quorum converge."""
    await asyncio.sleep(15)
    for member in cluster.up:
        if member.is_leading:
            cluster.spawn_append(member)
    await asyncio.sleep(2)
    cluster.world.network.heal()
    cluster.boot()
    await cluster.converge()


async def two_voters_are_added_by_a_leader_that_is_cut_off(cluster: Cluster) -> None:
    """With both, the leader and the new voters would be a majority of five, and the other two one of three."""
    await cluster.converge()
    await asyncio.sleep(2)
    leader = await cluster.elect()
    cut_off(cluster, {leader, cluster.members[4], cluster.members[5]})
    await asyncio.gather(add(leader, 4), add(leader, 5))
    await append_on_all_sides(cluster)


def change_voters_twice_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumCore, "has_voter_change", property(lambda self: False))


async def two_old_voters_restart_without_the_new_ones(cluster: Cluster) -> None:
    """The one has missed both new voters; the other has them in its log, but does not know that they are committed."""
    await cluster.converge()
    await asyncio.sleep(2)
    leader = await cluster.elect()
    behind, restarted = (cluster.members[node] for node in (1, 2, 3) if node != leader.node_id)
    cut_off(cluster, {behind})
    for node_id in (4, 5):
        assert await add(leader, node_id) is ErrorCode.NONE
    restarted.kill()
    cluster.world.network.heal()
    cut_off(cluster, {behind, restarted})
    restarted.boot()
    await append_on_all_sides(cluster)


def count_voters_when_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    def committed(self: transitions.Transitions) -> VoterSet:
        return self._voters.recorded_before(max(self.high_watermark, 0)) or self._voters.current

    patch.setattr(transitions.Transitions, "voters", property(committed))


async def a_leader_that_is_cut_off_adds_a_voter(cluster: Cluster) -> None:
    await cluster.converge()
    await asyncio.sleep(2)
    leader = await cluster.elect()
    cut_off(cluster, {leader, cluster.members[4]})
    await add(leader, 4)
    await cluster.until(lambda: cluster.leader() not in (None, leader))
    await append_on_all_sides(cluster)


def keep_truncated_voters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterHistory, "truncate", lambda self, end_offset: None)


BUGS: list[tuple[Scenario, Callable[[pytest.MonkeyPatch], None], set[str]]] = [
    (lose_power_together, save_without_sync, {"the epoch survives", "no-bug"}),
    (lose_power_together, count_without_sync, {"kept", "same values", "no-bug"}),
    (lose_power_together, fetch_before_sync, {"kept", "same values"}),
    (snapshots_and_restarts, take_one_record_less, {"a snapshot is the state at its end"}),
    (crash_while_a_snapshot_is_installed, install_without_decision, {"no-bug"}),
    (cut_the_leader_off, lead_for_ever, {"progress"}),
    (cut_a_follower_off_one_way, grant_every_pre_vote, {"stable leader"}),
    (two_voters_are_added_by_a_leader_that_is_cut_off, change_voters_twice_at_once, {"same values", "kept"}),
    (two_old_voters_restart_without_the_new_ones, count_voters_when_they_are_committed, {"no contradiction"}),
    (a_leader_that_is_cut_off_adds_a_voter, keep_truncated_voters, {"same voters"}),
]
# These need voters in the log, and controllers that are no voters yet.
DYNAMIC = {
    two_voters_are_added_by_a_leader_that_is_cut_off,
    two_old_voters_restart_without_the_new_ones,
    a_leader_that_is_cut_off_adds_a_voter,
}


def new_cluster(seed: int, scenario: Scenario) -> Cluster:
    return Cluster(seed, spare=2, is_dynamic=True) if scenario in DYNAMIC else Cluster(seed)


@pytest.mark.parametrize(("scenario", "plant", "names"), BUGS, ids=[plant.__name__ for _, plant, _ in BUGS])
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    plant: Callable[[pytest.MonkeyPatch], None],
    names: set[str],
) -> None:
    plant(monkeypatch)
    found: set[str] = set()
    for seed in range(3):
        found |= new_cluster(seed, scenario).find_violations(scenario)
        if found & names:
            return
    raise AssertionError(f"found only {found}")


@pytest.mark.parametrize("scenario", dict.fromkeys(scenario for scenario, _, _ in BUGS))
def test_the_scenarios_are_fine_without_a_bug(scenario: Scenario) -> None:
    new_cluster(0, scenario).run(scenario)
