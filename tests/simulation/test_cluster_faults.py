"""The faults of a cluster by themselves, on machines whose nodes do nothing: each ends, and leaves nothing behind."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from rookery.base.types import TopicPartition
from rookery.quorum.voters import ReplicaKey
from tests.simulation.cluster import SimulatedCluster, Topology
from tests.simulation.cluster_faults import (
    LINK_FAULTS,
    LOSS_FAULTS,
    MACHINE_FAULTS,
    POWER_FAULTS,
    RENEWAL_FAULTS,
    ClusterFault,
    ClusterNemesis,
    Target,
)
from tests.simulation.cluster_views import MetadataView, NodeView, PartitionKey, PartitionView, QuorumView
from tests.simulation.loop import Process
from tests.simulation.world import DATA, Machine, World

_HOSTS = ("producer", "consumer")
_THREE = Topology()
_METADATA = MetadataView(7, frozenset({1, 2, 3}), frozenset(), {})


def healthy_views(metadata: MetadataView = _METADATA) -> Sequence[NodeView]:
    """Views of a cluster in which node 2 is the active controller."""
    voters = [ReplicaKey(node) for node in (1, 2, 3)]
    quorums = {voter.node_id: QuorumView(3, 2, voter.node_id == 2, 8, 8, voter, (voters,)) for voter in voters}
    return [NodeView(node, 1, quorum, node == 2, metadata, ()) for node, quorum in quorums.items()]


class Site:
    def __init__(self, seed: int = 1, topology: Topology = _THREE) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, topology)
        self.nemesis = ClusterNemesis(self.world, self.cluster, _HOSTS, views=healthy_views, pauses_s=(1.0,))

    @property
    def machines(self) -> list[Machine]:
        return list(self.cluster.machines.values())

    @property
    def is_healthy(self) -> bool:
        return (
            all(machine.is_up and not machine.is_paused for machine in self.machines)
            and all(machine.disk.delay_s_max == machine.disk.usual_delay_s_max for machine in self.machines)
            and not self.world.network.has_bad_links
        )


@pytest.fixture(autouse=True)
def idle_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Machine, process: Process) -> None:
        await asyncio.sleep(1_000_000)

    monkeypatch.setattr(Machine, "_run", run)


@pytest.mark.parametrize("target", [Target.ONE, Target.MAJORITY], ids=lambda target: target.name)
@pytest.mark.parametrize(
    "fault",
    [*MACHINE_FAULTS, *RENEWAL_FAULTS, *LINK_FAULTS, *POWER_FAULTS, *LOSS_FAULTS],
    ids=lambda fault: fault.__name__,
)
def test_a_fault_ends(fault: ClusterFault, target: Target) -> None:
    site = Site()

    async def main() -> None:
        site.cluster.boot()
        await fault(site.nemesis, site.nemesis.choose(target))
        assert site.is_healthy

    site.world.run(main())
    assert not site.world.violations.found


@pytest.mark.parametrize(
    ("target", "count"), [(Target.ONE, 1), (Target.MINORITY, 2), (Target.MAJORITY, 3), (Target.ALL, 5)]
)
def test_targets(target: Target, count: int) -> None:
    site = Site(topology=Topology(combined=5))
    assert len(site.nemesis.choose(target)) == count
    assert [machine.name for machine in site.nemesis.choose(Target.CONTROLLER)] == ["n2"]
    site.world.loop.close()


@pytest.mark.parametrize(
    ("partition", "is_whole"),
    [
        (PartitionView(1, 1, 1, (1, 2), (2, 1)), True),
        (PartitionView(1, 1, 1, (1, 2), (1,)), False),
        (PartitionView(1, 1, 1, (1, 2), (1, 2), is_moving=True), False),
    ],
    ids=["in sync", "under-replicated", "moving"],
)
def test_a_cluster_is_whole_when_all_replicas_are_in_sync(partition: PartitionView, is_whole: bool) -> None:
    site = Site()
    key = PartitionKey(UUID(int=1), TopicPartition("orders", 0))
    views = healthy_views(_METADATA._replace(partitions={key: partition}))
    site.nemesis.views = lambda: views
    assert (not site.nemesis.missing_parts()) == is_whole
    site.world.loop.close()


def test_worlds_have_different_mixtures() -> None:
    seen = set()
    for seed in range(20):
        site = Site(seed)
        seen.add(frozenset(site.nemesis._targets))
        site.world.loop.close()
    assert len(seen) > 10


def test_a_lost_disk_is_empty_but_formatted() -> None:
    site = Site()

    async def main() -> None:
        machine, *_ = site.machines
        before = sorted(machine.disk.all_paths())
        machine.boot()
        machine.disk.write_file(DATA / "topic-0", b"...")
        machine.lose_disk()
        assert not machine.is_up
        assert machine.disks == 2
        assert sorted(machine.disk.all_paths()) == before

    site.world.run(main())


def test_the_core_is_healed_and_the_others_stay_broken() -> None:
    for seed in range(1, 30):
        site = Site(seed)

        async def main(site: Site = site) -> None:
            site.cluster.boot()
            network = site.world.network
            for machine in site.machines:
                machine.kill()
            for name in ("n1", "n2", "n3", "producer"):
                network.cut("n1", name)
            core = site.machines[:2]
            site.nemesis.break_others(core)
            site.nemesis.heal_core(core)
            assert all(machine.is_up for machine in core)
            assert not network.is_cut("n1", "n2")
            assert not network.is_cut("producer", "n1")
            assert not site.is_healthy
            site.nemesis.end()
            assert site.is_healthy

        site.world.run(main())
