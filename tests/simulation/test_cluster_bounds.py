"""How long a cluster with default settings is without a leader: bounds in simulated time, over several seeds.

The bounds of killed processes are far below the broker's lease (9 s): their kernels reset their connections, which the
others take as a hint. A machine that loses power says nothing; there the lease is the bound.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from rookery.base.types import NodeId
from rookery.client.admin import NewTopic
from tests.simulation.cluster import SimulatedCluster, Topology
from tests.simulation.cluster_observer import METADATA_DIRECTORY, Observer
from tests.simulation.cluster_site import active_controller, unavailable
from tests.simulation.cluster_views import NodeView
from tests.simulation.users import create_topics
from tests.simulation.world import World

_TOPICS = (NewTopic(name="orders", partitions=12, replication_factor=3),)
_SEEDS = range(1, 4)
_BOOT_S_MAX = 10.0
_NEW_LEADERS_S_MAX = 2.0
_NEW_CONTROLLER_S_MAX = 1.5
# Round trips only; after the kill of the active controller also the election of another one.
_RESTART_S_MAX = 0.5
# The session time-out, the interval in which the controller looks, and an election.
_LEASE_S_MAX = 11.0
_COMBINED, _SEPARATE = Topology(combined=3), Topology(combined=0, controllers=3, brokers=3)


class Trial:
    """A cluster without faults, until a test begins one."""

    def __init__(self, seed: int, topology: Topology) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, topology)
        self._observer = Observer(self.world, self.cluster, self.world.violations)

    def run(self, body: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            self.cluster.boot()
            watching = self.world.loop.create_task(self._observer.run())
            await self.until(lambda: not unavailable(self.cluster, self.nodes(), self.cluster.machines), _BOOT_S_MAX)
            operator = self.world.new_process("operator", "operator")
            await self.world.loop.spawn(operator, create_topics(self.cluster.bootstrap, _TOPICS))
            await self.until(self._has_leaders, _BOOT_S_MAX)
            # A time between two heartbeats that differs from seed to seed.
            await asyncio.sleep(self.world.new_random().uniform(0, 3))
            await body()
            watching.cancel()

        self.world.run(main())
        assert not self.world.violations.found, "\n".join(map(str, self.world.violations.found))

    async def until(self, condition: Callable[[], bool], longest_s: float) -> None:
        begin_s = self.world.loop.time()
        while not condition():
            passed_s = self.world.loop.time() - begin_s
            assert passed_s < longest_s, f"not within {longest_s:g} s:\n" + "\n".join(
                list(self.world.trace.lines)[-60:]
            )
            await asyncio.sleep(0.01)

    def nodes(self) -> Sequence[NodeView]:
        return self._observer.nodes()

    def controller(self) -> NodeId | None:
        active = active_controller(self.nodes())
        return active.node_id if active is not None else None

    def leading(self) -> list[NodeId]:
        """Return the node that leads each partition, according to itself and to the active controller."""
        nodes = {node.node_id: node for node in self.nodes()}
        controller = self.controller()
        if controller is None:
            return []
        partitions = nodes[controller].metadata.partitions
        leading = {(node.node_id, each.key) for node in nodes.values() for each in node.replicas if each.is_leader}
        return [view.leader for key, view in partitions.items() if (view.leader, key) in leading]

    def _has_leaders(self, without: NodeId | None = None) -> bool:
        leading = self.leading()
        return len(leading) == _TOPICS[0].partitions and without not in leading

    async def leaders_without(self, node: NodeId, longest_s: float) -> None:
        await self.until(lambda: self._has_leaders(node), longest_s)


@pytest.mark.parametrize("topology", [_COMBINED, _SEPARATE], ids=["combined", "separate"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_killed_broker_is_replaced(seed: int, topology: Topology) -> None:
    trial = Trial(seed, topology)

    async def body() -> None:
        victim = next(node for node in topology.broker_ids if node != trial.controller())
        trial.cluster.machines[victim].kill()
        await trial.leaders_without(victim, _NEW_LEADERS_S_MAX)

    trial.run(body)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_broker_that_vanishes_is_replaced_when_its_lease_ends(seed: int) -> None:
    trial = Trial(seed, _COMBINED)

    async def body() -> None:
        victim = next(node for node in _COMBINED.broker_ids if node != trial.controller())
        trial.cluster.machines[victim].lose_power()
        await trial.leaders_without(victim, _LEASE_S_MAX)

    trial.run(body)


@pytest.mark.parametrize("topology", [_COMBINED, _SEPARATE], ids=["combined", "separate"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_killed_controller_is_replaced(seed: int, topology: Topology) -> None:
    trial = Trial(seed, topology)

    async def body() -> None:
        victim = trial.controller()
        assert victim is not None
        trial.cluster.machines[victim].kill()
        await trial.until(lambda: trial.controller() not in (victim, None), _NEW_CONTROLLER_S_MAX)
        if victim in topology.broker_ids:
            await trial.leaders_without(victim, _NEW_LEADERS_S_MAX)

    trial.run(body)


@pytest.mark.parametrize("pause_s", [0.0, 1.0, 12.0], ids=["immediately", "soon", "late"])
@pytest.mark.parametrize("is_controller", [False, True], ids=["broker", "controller"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_killed_node_that_starts_again_serves(seed: int, is_controller: bool, pause_s: float) -> None:
    trial = Trial(seed, _COMBINED)

    async def body() -> None:
        victim = next(node for node in _COMBINED.broker_ids if (node == trial.controller()) is is_controller)
        machine = trial.cluster.machines[victim]
        machine.kill()
        await asyncio.sleep(pause_s)
        machine.boot()
        await trial.until(lambda: not unavailable(trial.cluster, trial.nodes(), [victim]), _RESTART_S_MAX)

    trial.run(body)


def test_a_broker_without_its_copy_of_the_metadata_starts() -> None:
    """A broker does not sync the metadata log: a power loss may remove it and leave the partitions' logs."""
    trial = Trial(1, _SEPARATE)

    async def body() -> None:
        machine = trial.cluster.machines[1]
        machine.kill()
        for name in machine.disk.peek_names(METADATA_DIRECTORY):
            machine.disk.remove(METADATA_DIRECTORY / name)
        machine.disk.remove_directory(METADATA_DIRECTORY)
        machine.boot()
        await trial.until(lambda: not unavailable(trial.cluster, trial.nodes(), [1]), _RESTART_S_MAX)

    trial.run(body)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_stopped_broker_hands_over_its_partitions(seed: int) -> None:
    """After a clean stop no partition waits for a time-out."""
    trial = Trial(seed, _COMBINED)

    async def body() -> None:
        victim = next(node for node in _COMBINED.broker_ids if node != trial.controller())
        await trial.cluster.machines[victim].stop()
        await trial.leaders_without(victim, 0.5)

    trial.run(body)
