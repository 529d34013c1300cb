"""The machines of a simulated cluster: which nodes there are, and which of them lead at the moment.

A topology says how many nodes there are, and in which roles. All nodes of a cluster have the same cluster id; each disk
is formatted before its first boot, and again after it was lost. The voters are in the configuration, or in the metadata
log: then only the first disks of the first voters know them, and a node with a new disk joins as an observer.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple
from uuid import UUID

from rookery.base.types import NodeId, encode_uuid
from rookery.node.format import FormatOptions, format_node
from tests.simulation.world import PORT, Machine, World

CONTROLLER_PORT = 9093
_FIRST_CONTROLLER: NodeId = 101


class Topology(NamedTuple):
    """Nodes with both roles, nodes that are only controllers, and nodes that are only brokers.

    `first_voters`: so many of the controllers are the first voters in the metadata log; None if all are voters for
    ever, by configuration.
    """

    combined: int = 3
    controllers: int = 0
    brokers: int = 0
    first_voters: int | None = None

    @property
    def controller_ids(self) -> list[NodeId]:
        return [*range(1, self.combined + 1), *range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + self.controllers)]

    @property
    def voters(self) -> list[NodeId]:
        """The first voters."""
        return self.controller_ids[: self.first_voters]

    @property
    def broker_ids(self) -> list[NodeId]:
        return list(range(1, self.combined + self.brokers + 1))


class SimulatedCluster:
    def __init__(self, world: World, topology: Topology, settings: Sequence[str] = ()) -> None:
        self._world = world
        self._random: Random = world.new_random()
        self._cluster_id = encode_uuid(self._new_uuid())
        self.topology = topology
        self._initial_controllers = ",".join(
            f"{voter}@{address_of(voter)}:{encode_uuid(self._new_uuid())}" for voter in topology.voters
        )
        self.machines: dict[NodeId, Machine] = {}
        for node_id in sorted({*topology.controller_ids, *topology.broker_ids}):
            machine = world.new_machine(name_of(node_id), *self._settings(node_id), *settings)
            machine.on_new_disk = partial(self._format, machine)
            self._format(machine, is_first_voter=self.is_dynamic and node_id in topology.voters)
            self.machines[node_id] = machine

    @property
    def is_dynamic(self) -> bool:
        """Whether the voters are in the metadata log, and can be changed."""
        return self.topology.first_voters is not None

    def _settings(self, node_id: NodeId) -> list[str]:
        topology, name = self.topology, name_of(node_id)
        roles = ["broker"] if node_id in topology.broker_ids else []
        listeners = [f"PLAINTEXT://{name}:{PORT}"] if roles else []
        if node_id in topology.controller_ids:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{address_of(node_id)}")
        if self.is_dynamic:
            servers = ",".join(map(address_of, topology.controller_ids))
            quorum = f"controller.quorum.bootstrap.servers={servers}"
        else:
            voters = ",".join(f"{voter}@{address_of(voter)}" for voter in topology.voters)
            quorum = f"controller.quorum.voters={voters}"
        return [
            f"node.id={node_id}",
            f"process.roles={','.join(roles)}",
            f"listeners={','.join(listeners)}",
            "controller.listener.names=CONTROLLER",
            quorum,
        ]

    def _format(self, machine: Machine, *, is_first_voter: bool = False) -> None:
        """Format a disk as `rookery format` does. It cannot fail and is synced: faults begin with the boot."""
        options = FormatOptions(
            cluster_id=self._cluster_id,
            initial_controllers=self._initial_controllers if is_first_voter else None,
            no_initial_controllers=not is_first_voter,
        )
        format_node(machine.disk, machine.settings, options, new_uuid=self._new_uuid, now_ms=machine.clock.now_ms())
        machine.disk.sync_everything()

    def _new_uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)

    # Access

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{name_of(node_id)}:{PORT}" for node_id in self.topology.broker_ids)

    @property
    def brokers(self) -> list[Machine]:
        return [self.machines[node_id] for node_id in self.topology.broker_ids]

    @property
    def boots(self) -> int:
        return sum(machine.boots for machine in self.machines.values())

    def boot(self) -> None:
        for machine in self.machines.values():
            machine.boot()

    def find(self, node_ids: Iterable[NodeId]) -> list[Machine]:
        return [self.machines[node_id] for node_id in node_ids]


def name_of(node_id: NodeId) -> str:
    return f"c{node_id}" if node_id >= _FIRST_CONTROLLER else f"n{node_id}"


def address_of(node_id: NodeId) -> str:
    """Return the address of a controller."""
    return f"{name_of(node_id)}:{CONTROLLER_PORT}"
