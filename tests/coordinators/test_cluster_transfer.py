"""The scenario of `test_moves` on three whole nodes: quorum, controller, brokers and replication as in production.

A node is killed after one of the changes of its disk during the transaction, and boots again later. Nothing else stops,
so that its partitions, the coordinators among them, move to the other nodes and perhaps back.
"""

import asyncio

import pytest

from rookery.base.types import NodeId
from rookery.client.admin import NewTopic
from tests.simulation.cluster import SimulatedCluster, Topology
from tests.simulation.transfer import BEFORE, BOTH, SETTLED_S, TOPICS, Transfer
from tests.simulation.users import create_topics
from tests.simulation.world import World
from tests.support.transactions import Ended, Protocol

NODES = (1, 2, 3)
_BOOT_S = 5.0
_REBOOT_S = 4.0
_SETTINGS = (
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)


class Stage:
    """`killed` and `changes`: the node that is killed, and after how many changes of its disk; None: no node is."""

    def __init__(self, protocol: Protocol, *, commit: bool, killed: NodeId | None = None, changes: int = 0) -> None:
        self._where = f"{protocol} {commit}, node {killed} killed after {changes} changes"
        self._world = World(seed=1)
        self._cluster = SimulatedCluster(self._world, Topology(), _SETTINGS)
        self._victim = None if killed is None else self._cluster.machines[killed]
        self._changes = changes
        self.transfer = Transfer(self._world, self._cluster.bootstrap, protocol=protocol, commit=commit)

    def play(self) -> None:
        self._world.run(self._main())
        assert not self._world.violations.found, (self._where, self._world.violations.found)
        self.transfer.check_whole(self._where, client_survived=True)

    async def _main(self) -> None:
        spawn, process, bootstrap = self._world.loop.spawn, self._world.new_process, self._cluster.bootstrap
        topics = [NewTopic(name=topic.name, partitions=topic.partitions, replication_factor=3) for topic in TOPICS]
        self._cluster.boot()
        await asyncio.sleep(_BOOT_S)
        await spawn(process("operator", "operator"), create_topics(bootstrap, topics))
        await spawn(process("before", "before"), self.transfer.run_before())
        if self._victim is not None:
            self._victim.disk.after_mutations(self._changes, self._kill)
        await spawn(process("client", "client"), self.transfer.run())
        await asyncio.sleep(SETTLED_S)
        await spawn(process("auditor", "auditor"), self.transfer.look())

    def _kill(self) -> None:
        assert self._victim is not None
        self._victim.kill()
        self._world.loop.call_later(_REBOOT_S, self._victim.boot, context=self._world.outside)


@pytest.mark.parametrize(("protocol", "commit"), [(Protocol.CLASSIC, False), (Protocol.V2, True)])
def test_a_transaction_over_three_nodes(protocol: Protocol, commit: bool) -> None:
    """Its coordinator, its partitions and its group are led by different nodes."""
    stage = Stage(protocol, commit=commit)
    stage.play()
    assert stage.transfer.seen.ended is Ended.DONE
    assert stage.transfer.seen.values == (BOTH if commit else BEFORE)


@pytest.mark.parametrize("killed", NODES)
def test_a_node_that_is_killed_never_leaves_half_a_transaction(killed: NodeId) -> None:
    Stage(Protocol.V2, commit=True, killed=killed, changes=5 * killed).play()


@pytest.mark.long
@pytest.mark.parametrize("killed", NODES)
@pytest.mark.parametrize("protocol", Protocol)
def test_a_node_that_is_killed_at_any_point(protocol: Protocol, killed: NodeId) -> None:
    for changes in range(1, 40):
        Stage(protocol, commit=changes % 2 == 0, killed=killed, changes=changes).play()
