"""A cluster as the site of a run: its machines, the faults, the observer, and the checks of availability.

A run has two phases (as in TigerBeetle's simulator). In the first, everything may fail at any time, and only safety is
checked. In the second, a core of the machines (a majority of the voters and of the brokers) is healed while the others
stay broken: the core must become available within a bounded time. Then all are healed, and the whole cluster must be.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rookery.base.types import NodeId
from tests.simulation.cluster import SimulatedCluster, Topology
from tests.simulation.cluster_faults import LINK_FAULTS, ClusterFault, ClusterNemesis
from tests.simulation.cluster_observer import Observer
from tests.simulation.cluster_operations import remove_lost_voters
from tests.simulation.cluster_views import MetadataView, NodeView, newest_voters
from tests.simulation.world import Machine, World

# The lease of a dead broker (9 s), an election, and the time-out of a request to a node that does not respond.
_CORE_S_MAX = 25.0
# In addition, replicas catch up, and the controller lets them into the ISR.
_WHOLE_S_MAX = 45.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """`operations` are what an operator does meanwhile. `may_lose`: whether acknowledged records may be lost."""

    topologies: Sequence[Topology] = (Topology(),)
    machine_faults: Sequence[ClusterFault]
    link_faults: Sequence[ClusterFault] = LINK_FAULTS
    operations: Sequence[ClusterFault] = ()
    may_lose: bool = False


class ClusterSite:
    def __init__(
        self,
        world: World,
        hosts: Sequence[str],
        plan: ClusterPlan,
        *,
        settings: Sequence[str],
        pauses_s: Sequence[float],
    ) -> None:
        self._world = world
        self._hosts = hosts
        self._plan = plan
        self._pauses_s = pauses_s
        self._random = world.new_random()
        self.cluster = SimulatedCluster(world, self._random.choice(plan.topologies), settings)
        self.observer = Observer(world, self.cluster, world.violations, may_lose=plan.may_lose)
        self._nemesis: ClusterNemesis | None = None

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def boots(self) -> int:
        return self.cluster.boots

    async def boot(self) -> None:
        self.cluster.boot()
        self._world.loop.create_task(self.observer.run(), context=self._world.outside)
        everything = list(self.cluster.machines)
        await self._await(
            lambda: unavailable(self.cluster, self.observer.nodes(), everything), _CORE_S_MAX, "the new cluster"
        )

    def on_power_loss(self, listener: Callable[[], None]) -> None:
        for machine in self.cluster.machines.values():
            machine.on_power_loss = listener

    async def inject_faults(self, duration_s: float) -> None:
        plan = self._plan
        nemesis = self._nemesis = ClusterNemesis(
            self._world, self.cluster, self._hosts, views=self.observer.nodes, pauses_s=self._pauses_s
        )
        await nemesis.run(plan.machine_faults, plan.link_faults, plan.operations, duration_s=duration_s)

    async def end_faults(self) -> None:
        assert self._nemesis is not None
        if self.cluster.is_dynamic:
            await self._settle_voters(self._nemesis)
        ids = self._choose_core()
        core = self.cluster.find(ids)
        names = ", ".join(machine.name for machine in core)
        self._world.note(f"heal the core: {names}")
        self._nemesis.break_others(core)
        self._nemesis.heal_core(core)
        await self._await(
            lambda: unavailable(self.cluster, self._reachable(core), ids), _CORE_S_MAX, f"the core {names}"
        )
        self._nemesis.end()
        await self._await(self._nemesis.missing_parts, _WHOLE_S_MAX, "the whole cluster")

    async def _settle_voters(self, nemesis: ClusterNemesis) -> None:
        """Heal everything, so that a change of the voters is committed or vanishes.

        A core that is a majority of one set of voters but not of the other could not end the change by itself.
        """
        nemesis.end()
        await remove_lost_voters(nemesis, _WHOLE_S_MAX)
        await self._await(nemesis.missing_parts, _WHOLE_S_MAX, "the cluster with its voters")

    def _reachable(self, core: Sequence[Machine]) -> list[NodeView]:
        """Return the views of the nodes that the whole core can talk to."""
        network, machines = self._world.network, self.cluster.machines
        return [
            node
            for node in self.observer.nodes()
            if not machines[node.node_id].is_paused
            and not any(
                network.is_cut(machine.name, machines[node.node_id].name)
                or network.is_cut(machines[node.node_id].name, machine.name)
                for machine in core
            )
        ]

    async def _await(self, missing: Callable[[], Sequence[str]], longest_s: float, what: str) -> None:
        """Wait until nothing is missing, with a time-out."""
        loop = self._world.loop
        begin_s = loop.time()
        while problems := missing():
            if loop.time() - begin_s >= longest_s:
                problem = f"{what} is not available {longest_s:g} s after it was healed: {', '.join(problems[:3])}"
                self._world.violations.add("progress", problem)
                return
            await asyncio.sleep(_POLL_S)
        self._world.note(f"{what} is available after {loop.time() - begin_s:.1f} s")

    def _choose_core(self) -> list[NodeId]:
        voters = [voter.node_id for voter in newest_voters(self.observer.nodes())] or self.cluster.topology.voters
        return sorted({*self._majority(voters), *self._majority(self.cluster.topology.broker_ids)})

    def _majority(self, node_ids: Sequence[NodeId]) -> list[NodeId]:
        return self._random.sample(list(node_ids), len(node_ids) // 2 + 1)

    async def stop(self) -> None:
        """Check once more, thoroughly, and stop all nodes, the active controller last."""
        nodes = self.observer.look(thorough=True)
        last = [node.node_id for node in nodes if node.is_active_controller]
        for _, machine in sorted(self.cluster.machines.items(), key=lambda item: item[0] in last):
            await machine.stop()


def active_controller(nodes: Iterable[NodeView]) -> NodeView | None:
    """Return the controller of the newest epoch: one that was cut off may still believe that it leads an older one."""
    active = [node for node in nodes if node.is_active_controller and node.quorum is not None]
    return max(active, key=lambda node: node.quorum.epoch if node.quorum else 0, default=None)


def unavailable(cluster: SimulatedCluster, nodes: Sequence[NodeView], ids: Iterable[NodeId]) -> list[str]:
    """Return what does not work yet in a part of a cluster, of which `nodes` has the views."""
    core = set(ids)
    found = {node.node_id: node for node in nodes if node.node_id in core and node.serves}
    problems = [f"{node_id} does not serve" for node_id in sorted(core - found.keys())]
    controller = active_controller(nodes)
    if controller is None:
        return [*problems, "there is no active controller"]
    metadata, brokers = controller.metadata, core & set(cluster.topology.broker_ids)
    problems += [f"broker {node_id} is fenced" for node_id in sorted(brokers & metadata.fenced)]
    problems += [f"broker {node_id} is not registered" for node_id in sorted(brokers - metadata.brokers)]
    return problems + _offline_partitions(metadata, found, nodes)


def _offline_partitions(
    metadata: MetadataView, core: Mapping[NodeId, NodeView], nodes: Sequence[NodeView]
) -> list[str]:
    """Return the partitions that nodes of the core could lead, but no node leads."""
    leading = {(node.node_id, replica.key) for node in nodes for replica in node.replicas if replica.is_leader}
    return [
        f"{key} has no leader: {partition}"
        for key, partition in metadata.partitions.items()
        if core.keys() & {*partition.isr, *partition.elr} and (partition.leader, key) not in leading
    ]
