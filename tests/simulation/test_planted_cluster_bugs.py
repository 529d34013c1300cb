"""Bugs of a cluster that the simulator must find, each with the right checker, within a few seeds.

The bugs of the quorum and of replication are planted next to their code as well, where many more worlds can be tried:
`tests.quorum.test_storms`, `tests.replication.test_model`. Here they show that the checkers of whole nodes work.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from rookery.base.types import NodeId, Offset, TopicId, TopicPartition
from rookery.controller import brokers, registration
from rookery.controller.upkeep import Upkeep
from rookery.quorum import core, events
from rookery.quorum.log_view import LogView
from rookery.quorum.progress import Progress
from rookery.quorum.roles import Leader
from rookery.quorum.transitions import Transitions
from rookery.replication.manager import ReplicaManager
from rookery.replication.replica import Replica
from tests.simulation.cluster import Topology
from tests.simulation.cluster_faults import (
    ClusterFault,
    isolate,
    kill,
    kill_after_a_write,
    kill_during_a_renewal,
    kill_for_long,
    lose_disk_of_one,
    pause,
    reset_connections,
    slow_disk,
    slow_links,
)
from tests.simulation.cluster_site import ClusterPlan
from tests.simulation.scenarios import SCENARIOS, simulate

_SEEDS_MAX = 12
_FAULTS_S = 10.0
_PAUSES_S = (2.0,)
_CUTS = (isolate, reset_connections)

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    """A bug to plant, and the faults that show it. `seed` is tried first."""

    name: str
    plant: Plant
    checker: str
    machine_faults: tuple[ClusterFault, ...] = (kill,)
    link_faults: tuple[ClusterFault, ...] = (reset_connections,)
    seed: int = 1


def count_unsynced_metadata(patch: pytest.MonkeyPatch) -> None:
    """Let the controller count its own records before they are synced."""
    original = LogView.append

    def append(self: LogView, epoch: int, count: int) -> Offset:
        base_offset = original(self, epoch, count)
        self.synced(self.end_offset)
        return base_offset

    patch.setattr(LogView, "append", append)


def no_changes(*args: Any) -> Generator[None, None, list[Any]]:
    return []
    yield


def leave_fenced_brokers_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "scan_partitions", no_changes)


def forget_lost_disks(patch: pytest.MonkeyPatch) -> None:
    """Let a broker that registers with an empty disk stay in the ISR."""
    patch.setattr(registration, "scan_partitions", no_changes)


def never_fence(patch: pytest.MonkeyPatch) -> None:
    async def fence_lost(self: Upkeep) -> None:
        return

    patch.setattr(Upkeep, "fence_lost", fence_lost)
    patch.setattr(Upkeep, "connection_lost", lambda self, node_id: None)


def ignore_divergence(patch: pytest.MonkeyPatch) -> None:
    """Let followers keep records that their leader does not have."""
    patch.setattr(Replica, "_check_divergence", lambda self, offset, last_fetched_epoch: None)


def lead_before_the_first_commit(patch: pytest.MonkeyPatch) -> None:
    """Let a new controller decide before it knows all that is committed."""
    original = Transitions._become_leader

    def become_leader(self: Transitions, granted: set[NodeId]) -> None:
        original(self, granted)
        assert isinstance(self.role, Leader)
        self.role.has_committed = True
        self._effects.append(events.Lead(self.epoch))

    patch.setattr(Transitions, "_become_leader", become_leader)


def commit_without_a_majority(patch: pytest.MonkeyPatch) -> None:
    """Let a controller commit what only its own disk has."""
    patch.setattr(Progress, "majority_offset", lambda self, voters, me, my_offset: my_offset)


def vote_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core, "grants", lambda role, state, end, request: True)


def find_logs_by_name(patch: pytest.MonkeyPatch) -> None:
    """Let a start take the log of a deleted topic for that of the topic that has its name now."""

    def is_stray(self: ReplicaManager, partition: TopicPartition, topic_id: TopicId) -> bool:
        return self._topic_id_here(partition) is None

    patch.setattr(ReplicaManager, "_is_stray", is_stray)


BUGS = [
    Bug("count unsynced metadata", count_unsynced_metadata, "durable-majority", (slow_disk,), seed=3),
    Bug("leave fenced brokers in the ISR", leave_fenced_brokers_in_the_isr, "fenced-in-isr", (kill_for_long,)),
    Bug("forget lost disks", forget_lost_disks, "leader-has-committed", (lose_disk_of_one,), seed=3),
    Bug("never fence", never_fence, "progress", (kill_for_long,), seed=9),
    Bug("ignore divergence", ignore_divergence, "replicas-agree", (kill_after_a_write,), (isolate,), seed=9),
    Bug("lead before the first commit", lead_before_the_first_commit, "leader-has-committed", (kill,), _CUTS, seed=6),
    Bug("find logs by name", find_logs_by_name, "replicas-agree", (kill_during_a_renewal,), seed=5),
    Bug("commit without a majority", commit_without_a_majority, "metadata-committed", (kill,), (isolate,), seed=1),
    Bug("vote for all", vote_for_all, "one-vote-per-epoch", (pause,), (slow_links,), seed=7),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    plan = ClusterPlan(topologies=(Topology(),), machine_faults=bug.machine_faults, link_faults=bug.link_faults)
    scenario = replace(SCENARIOS["cluster"], cluster=plan, faults_s=_FAULTS_S, pauses_s=_PAUSES_S)
    seen: set[str] = set()
    for seed in sorted(range(1, _SEEDS_MAX + 1), key=lambda seed: seed != bug.seed):
        found = {violation.checker for violation in simulate(seed, scenario, until=bug.checker).violations}
        if bug.checker in found:
            return
        seen |= found
    pytest.fail(f"{bug.checker} found nothing in {_SEEDS_MAX} worlds; others: {sorted(seen) or 'none'}")
