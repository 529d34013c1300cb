"""The faults of a simulated cluster: a seeded sequence; each fault chooses its machines and ends by itself.

Every world has its own mixture: the seed gives each fault and each kind of target a weight, often zero, so that some
worlds have only pauses of the controller and others have everything at once (swarm testing). Machines and links have
separate lanes, so that a machine may also be killed while its links are cut.

`end` heals everything. `heal_core` heals some machines, and leaves the others as broken as they are: the core must be
able to work without them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum, auto
from itertools import permutations
from random import Random
from typing import TypeVar

from rookery.base.types import TopicId, TopicName
from rookery.quorum.voters import ReplicaKey
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.cluster_views import NodeView, PartitionKey, newest_metadata, newest_voters
from tests.simulation.network import Latency, Link
from tests.simulation.users import RENEWED_PREFIX
from tests.simulation.world import Machine, World

Choice = TypeVar("Choice")

_WEIGHTS = (0, 0, 1, 1, 4)
_HOUR_MS = 3_600_000
_JUMPS_MS = (-_HOUR_MS, -60_000, -1_000, 1_000, 60_000, _HOUR_MS)
# How long a fault waits for a whole cluster before it is left out.
_WHOLE_S_MAX = 15.0
# How long a fault waits for each step of the user that renews topics.
_RENEWAL_S_MAX = 12.0


class Target(Enum):
    """The machines that a fault hits."""

    ONE = auto()
    # The active controller.
    CONTROLLER = auto()
    # A broker that leads a partition.
    LEADER = auto()
    MINORITY = auto()
    MAJORITY = auto()
    ALL = auto()


class ClusterNemesis:
    def __init__(
        self,
        world: World,
        cluster: SimulatedCluster,
        hosts: Sequence[str],
        *,
        views: Callable[[], Sequence[NodeView]],
        pauses_s: Sequence[float],
    ) -> None:
        """`hosts` are those of the users, `views` returns what the nodes show of themselves at the moment."""
        self.world = world
        self.cluster = cluster
        self.hosts = hosts
        self.views = views
        self.random: Random = world.new_random()
        self._pause_s_max = self.random.choice(pauses_s)
        self._targets = self._draw_weights(list(Target))

    def _draw_weights(self, choices: Sequence[Choice]) -> list[Choice]:
        """Return the choices as often as their weights of this world say; never an empty list."""
        weighted = [choice for choice in choices for _ in range(self.random.choice(_WEIGHTS))]
        return weighted or [self.random.choice(choices)]

    async def run(self, *lanes: "Sequence[ClusterFault]", duration_s: float) -> None:
        """Inject faults for a while. The faults of one lane happen one after the other; lanes run concurrently."""
        end_s = self.world.loop.time() + duration_s
        await asyncio.gather(*(self._run_lane(self._draw_weights(faults), end_s) for faults in lanes if faults))

    async def _run_lane(self, faults: "Sequence[ClusterFault]", end_s: float) -> None:
        while self.world.loop.time() < end_s:
            await asyncio.sleep(self.random.uniform(0.05, self._pause_s_max))
            fault, target = self.random.choice(faults), self.random.choice(self._targets)
            victims = self.choose(target)
            names = ", ".join(machine.name for machine in victims)
            self.world.note(f"fault: {fault.__name__} of {names} ({target.name})")
            await fault(self, victims)

    def choose(self, target: Target) -> list[Machine]:
        machines = list(self.cluster.machines.values())
        minority = (len(self.cluster.topology.voters) - 1) // 2
        match target:
            case Target.CONTROLLER:
                chosen = [node.node_id for node in self.views() if node.is_active_controller]
            case Target.LEADER:
                leaders = [node.node_id for node in self.views() if any(each.is_leader for each in node.replicas)]
                chosen = self.random.sample(leaders, min(1, len(leaders)))
            case Target.MINORITY:
                return self.random.sample(machines, max(1, minority))
            case Target.MAJORITY:
                return self.random.sample(machines, min(len(machines), minority + 1))
            case Target.ALL:
                return machines
            case _:
                chosen = []
        return self.cluster.find(chosen) or [self.random.choice(machines)]

    def others(self, victims: Sequence[Machine]) -> list[Machine]:
        return [machine for machine in self.cluster.machines.values() if machine not in victims]

    async def pause(self, longest_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0.01, longest_s))

    async def boot(self, victims: Sequence[Machine], longest_s: float) -> None:
        """Boot machines that are down, each after a pause, one after the other."""
        for machine in self.random.sample(victims, len(victims)):
            await self.pause(longest_s)
            if not machine.is_up:
                machine.boot()

    async def is_whole(self) -> bool:
        """Wait until all machines serve, all replicas are in sync, and all voters have the same log, with a time-out.

        A fault that loses data may then hit one machine: what was acknowledged is also on others.
        """
        return await self.until(lambda: not self.missing_parts(), _WHOLE_S_MAX)

    def missing_parts(self) -> list[str]:
        """Return what differs from a cluster without faults."""
        nodes = self.views()
        broken = self.cluster.machines.keys() - {node.node_id for node in nodes if node.serves}
        broken |= {node_id for node_id, machine in self.cluster.machines.items() if machine.is_paused}
        if broken:
            return [f"node {node_id} does not serve" for node_id in sorted(broken)]
        newest = newest_metadata(nodes)
        assert newest is not None
        quorums = [
            node.quorum for node in nodes if node.quorum and node.node_id in self.cluster.topology.controller_ids
        ]
        problems = [f"voter {voter} is gone" for voter in self.lost_voters()]
        problems += [f"broker {node_id} is fenced" for node_id in sorted(newest.fenced)]
        problems += [
            f"{key}: {each}"
            for key, each in newest.partitions.items()
            if each.is_moving or set(each.isr) != set(each.replicas)
        ]
        problems += [
            f"node {node.node_id} has the metadata up to {node.metadata.offset}, not {newest.offset}"
            for node in nodes
            if node.metadata.offset != newest.offset
        ]
        if len({(quorum.epoch, quorum.leader_id, quorum.end_offset, *quorum.voters) for quorum in quorums}) > 1:
            problems.append(f"the controllers differ: {quorums}")
        return problems + [f"no leader of {quorum.epoch}" for quorum in quorums if quorum.leader_id is None]

    def lost_voters(self) -> list[ReplicaKey]:
        """Return the voters whose machine is up with another disk."""
        nodes = self.views()
        up = {node.node_id: node.quorum.me for node in nodes if node.quorum is not None}
        return [voter for voter in newest_voters(nodes) if not voter.matches(up.get(voter.node_id, voter))]

    async def until(self, condition: Callable[[], bool], longest_s: float) -> bool:
        """Wait until `condition` is true; return False after a time-out."""
        end_s = self.world.loop.time() + longest_s
        while not condition():
            if self.world.loop.time() >= end_s:
                return False
            await asyncio.sleep(0.05)
        return True

    def drafts(self, machine: Machine | None = None) -> dict[TopicName, TopicId]:
        """Return the topics to be renewed that exist, or those of which a machine has records."""
        keys: Iterable[PartitionKey] = ()
        if machine is None:
            metadata = newest_metadata(self.views())
            keys = metadata.partitions if metadata is not None else ()
        else:
            nodes = [node for node in self.views() if self.cluster.machines[node.node_id] is machine]
            keys = [replica.key for node in nodes for replica in node.replicas if replica.end_offset > 0]
        return {
            key.topic_partition.topic: key.topic_id
            for key in keys
            if key.topic_partition.topic.startswith(RENEWED_PREFIX)
        }

    @property
    def machines(self) -> list[Machine]:
        return list(self.cluster.machines.values())

    # The end

    def end(self) -> None:
        """End all faults that last, and boot all machines."""
        self.world.network.heal_links()
        self.world.network.latency = Latency()
        self._revive(self.machines)

    def break_others(self, core: Sequence[Machine]) -> None:
        """Break each machine outside of the core in some lasting way."""
        network = self.world.network
        for machine in self.others(core):
            fault = self.random.randrange(5)
            self.world.note(f"{machine.name} stays broken ({fault})")
            if fault == 0:
                machine.kill()
            elif fault == 1:
                machine.pause()
            for other in core:
                if fault == 2:
                    network.cut(machine.name, other.name)
                elif fault == 3:
                    network.cut_one_way(*self.random.sample((machine.name, other.name), 2))
                elif fault == 4:
                    network.set_link(machine.name, other.name, Link(Latency(0.3, 1.0), reset_chance=0.1))

    def heal_core(self, core: Sequence[Machine]) -> None:
        """End the faults of some machines, of the links between them, and of their links to users."""
        network, names = self.world.network, [machine.name for machine in core]
        for name in names:
            for other in (*names, *self.hosts):
                network.mend(name, other)
        network.latency = Latency()
        self._revive(core)

    def _revive(self, machines: Sequence[Machine]) -> None:
        for machine in machines:
            machine.disk.sync_failure_chance = 0.0
            machine.disk.delay_s_max = machine.disk.usual_delay_s_max
            # A clock that is hours behind that of a client rejects all of its records, as in Kafka.
            machine.clock.jumped_ms = 0
            machine.may_fail_to_start = False
            machine.resume()
            if not machine.is_up:
                machine.boot()


ClusterFault = Callable[[ClusterNemesis, Sequence[Machine]], Awaitable[None]]


# Machines


async def kill(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    for machine in victims:
        machine.kill()
    await nemesis.boot(victims, 4)


async def kill_for_long(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Kill machines for longer than a broker's session lasts."""
    for machine in victims:
        machine.kill()
    await asyncio.sleep(nemesis.random.uniform(5, 20))
    await nemesis.boot(victims, 1)


async def kill_after_a_write(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Kill processes after a write, while responses are in flight."""
    for machine in victims:
        machine.disk.after_mutations(nemesis.random.randrange(1, 40), machine.kill)
    await nemesis.pause(5)
    await kill(nemesis, victims)


async def kill_while_starting(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    for machine in victims:
        machine.kill()
        machine.boot()
    await asyncio.sleep(nemesis.random.uniform(0, 0.5))
    await kill(nemesis, victims)


async def kill_during_a_renewal(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Keep a machine down while a topic of which it has records is deleted and created again.

    When it returns, it finds a log with the name of a partition that it should have, which is not that partition's.
    """
    machine = nemesis.random.choice(victims)
    await nemesis.until(lambda: bool(nemesis.drafts(machine)), _RENEWAL_S_MAX)
    known = nemesis.drafts(machine)
    machine.kill()
    await nemesis.until(
        lambda: any(known.get(topic, topic_id) != topic_id for topic, topic_id in nemesis.drafts().items()),
        _RENEWAL_S_MAX,
    )
    await nemesis.boot([machine], 0.1)


async def restart(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Stop and boot machines, one after the other."""
    for machine in victims:
        machine.resume()
        await machine.stop()
        await nemesis.boot([machine], 2)


async def pause(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    for machine in victims:
        machine.pause()
    await nemesis.pause(nemesis.random.choice((0.5, 4, 15)))
    for machine in victims:
        machine.resume()


async def slow_disk(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    for machine in victims:
        machine.disk.delay_s_max = nemesis.random.uniform(0.1, 1.0)
    await nemesis.pause(6)
    for machine in victims:
        machine.disk.delay_s_max = machine.disk.usual_delay_s_max


async def jump_clock(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    for machine in victims:
        machine.clock.jumped_ms += nemesis.random.choice(_JUMPS_MS)


# Machines that lose data


async def lose_power(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    await slow_disk(nemesis, victims)
    for machine in victims:
        machine.lose_power()
    await nemesis.boot(victims, 4)


async def lose_power_in_a_write(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    for machine in victims:
        machine.disk.stop_after(nemesis.random.randrange(40))
    await nemesis.pause(5)
    for machine in victims:
        machine.lose_power()
    await nemesis.boot(victims, 4)


async def lose_power_of_one(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Let one machine lose power when the others have everything that it has."""
    if await nemesis.is_whole():
        nemesis.random.choice(victims).lose_power()
        await nemesis.boot(victims, 6)


async def lose_disk_of_one(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Let one machine lose its disk when the others have everything that it has, and are a majority of the voters."""
    if await nemesis.is_whole() and len(newest_voters(nemesis.views())) > 2:
        nemesis.random.choice(victims).lose_disk()
        await nemesis.boot(victims, 6)


# Links


async def reset_connections(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    nemesis.world.network.reset_some(nemesis.random.choice((0.2, 1.0)))


async def isolate(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Cut the links between the victims and the other machines; users may still reach both sides, or one."""
    await _cut(nemesis, victims, nemesis.world.network.cut)


async def isolate_one_way(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Let the victims hear the other machines, but not be heard, or the reverse."""
    cut_one_way = nemesis.world.network.cut_one_way
    if nemesis.random.random() < 0.5:
        await _cut(nemesis, victims, cut_one_way)
    else:
        await _cut(nemesis, victims, lambda name, other: cut_one_way(other, name))


async def _cut(nemesis: ClusterNemesis, victims: Sequence[Machine], cut: Callable[[str, str], None]) -> None:
    network, others = nemesis.world.network, [machine.name for machine in nemesis.others(victims)]
    users = list(nemesis.hosts) if nemesis.random.random() < 0.5 else []
    for machine in victims:
        for other in (*others, *users):
            cut(machine.name, other)
    await nemesis.pause(nemesis.random.choice((2, 15)))
    for machine in victims:
        for other in (*others, *users):
            network.mend(machine.name, other)


async def break_one_link(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Cut the link between two machines, which both still reach all others."""
    if len(nemesis.machines) < 2:
        return
    first, second = nemesis.random.sample(nemesis.machines, 2)
    nemesis.world.network.cut(first.name, second.name)
    await nemesis.pause(15)
    nemesis.world.network.mend(first.name, second.name)


async def cut_users(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Cut the links between the victims and some users."""
    hosts = nemesis.random.sample(list(nemesis.hosts), nemesis.random.randint(1, len(nemesis.hosts)))
    pairs = [(host, machine.name) for host in hosts for machine in victims]
    for pair in pairs:
        nemesis.world.network.cut(*pair)
    await nemesis.pause(8)
    for pair in pairs:
        nemesis.world.network.mend(*pair)


async def slow_links(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Delay everything that the victims send, in a quarter of the cases by more than a request waits."""
    longest_s = nemesis.random.choice((0.1, 0.3, 1.0, 3.0))
    await _degrade(nemesis, victims, Link(Latency(longest_s / 3, longest_s)), 6)


async def flaky_links(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    await _degrade(nemesis, victims, Link(reset_chance=nemesis.random.choice((0.01, 0.05, 0.3))), 6)


async def _degrade(nemesis: ClusterNemesis, victims: Sequence[Machine], link: Link, longest_s: float) -> None:
    network = nemesis.world.network
    pairs = [(first.name, second.name) for first, second in permutations(nemesis.machines, 2) if first in victims]
    for pair in pairs:
        network.set_link(*pair, link)
    await nemesis.pause(longest_s)
    for pair in pairs:
        network.mend(*pair)


MACHINE_FAULTS: tuple[ClusterFault, ...] = (
    kill,
    kill_for_long,
    kill_after_a_write,
    kill_while_starting,
    restart,
    pause,
    slow_disk,
    jump_clock,
)
LINK_FAULTS: tuple[ClusterFault, ...] = (
    reset_connections,
    isolate,
    isolate_one_way,
    break_one_link,
    cut_users,
    slow_links,
    flaky_links,
)
# For worlds with a user that deletes topics and creates them again.
RENEWAL_FAULTS: tuple[ClusterFault, ...] = (kill_during_a_renewal,)
POWER_FAULTS: tuple[ClusterFault, ...] = (lose_power, lose_power_in_a_write)
# For settings with which a broker does not wait for its disk: the other replicas have to have the records.
LOSS_FAULTS: tuple[ClusterFault, ...] = (lose_power_of_one, lose_disk_of_one)
