"""What an operator does to a simulated cluster while it fails: a lane of the nemesis, next to the faults.

The requests are sent from the operator's host, whose links fail like those of other users. A request may be lost, or be
carried out without a response. Whatever has begun must come to its end after the faults.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from rookery.base.errors import ApiError
from rookery.base.types import NodeId, TopicPartition
from rookery.cli.errors import CommandError
from rookery.cli.voters import add_voter, remove_voter
from rookery.client.admin import Admin
from tests.simulation.cluster import address_of
from tests.simulation.cluster_faults import ClusterFault, ClusterNemesis
from tests.simulation.cluster_views import newest_metadata, newest_voters
from tests.simulation.users import REQUEST_TIMEOUT_S, open_admin
from tests.simulation.world import Machine

_OPERATOR = "operator"
_MOVES_MAX = 3
_REPLICATION_FACTORS = (2, 3)
_VOTERS_MIN = 2

Operation = Callable[[Admin], Awaitable[object]]


async def _operate(nemesis: ClusterNemesis, operation: Operation) -> None:
    """Run an operation in a process of the operator, and note its result."""
    world = nemesis.world

    async def run() -> object:
        async with open_admin(nemesis.cluster.bootstrap) as admin:
            return await operation(admin)

    try:
        world.note(f"operator: {await world.loop.spawn(world.new_process(_OPERATOR, _OPERATOR), run())}")
    except (ApiError, CommandError) as error:
        world.note(f"operator: not confirmed: {error}")


# Replicas


async def move_partitions(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Begin to move some partitions to other brokers, with another number of replicas in some cases."""
    brokers, random = nemesis.cluster.topology.broker_ids, nemesis.random
    await _reassign(
        nemesis,
        {
            partition: random.sample(brokers, min(len(brokers), random.choice(_REPLICATION_FACTORS)))
            for partition in _choose_partitions(nemesis, _MOVES_MAX)
        },
    )


async def cancel_moves(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Begin to move some partitions, and cancel all moves, of which some may have ended."""
    await move_partitions(nemesis, victims)
    await nemesis.pause(2)
    metadata = newest_metadata(nemesis.views())
    moving = [key.topic_partition for key, each in metadata.partitions.items() if each.is_moving] if metadata else []
    await _reassign(nemesis, dict.fromkeys(moving))


def _choose_partitions(nemesis: ClusterNemesis, most: int) -> list[TopicPartition]:
    metadata = newest_metadata(nemesis.views())
    known = [key.topic_partition for key in metadata.partitions] if metadata else []
    return nemesis.random.sample(known, min(len(known), nemesis.random.randint(1, most)))


async def _reassign(nemesis: ClusterNemesis, targets: dict[TopicPartition, list[NodeId] | None]) -> None:
    async def reassign(admin: Admin) -> str:
        outcomes = await admin.alter_partition_reassignments(targets)
        return f"reassign {targets}: {[outcome.error.name for outcome in outcomes.values()]}"

    if targets:
        await _operate(nemesis, reassign)


# Voters


async def change_voters(nemesis: ClusterNemesis, victims: Sequence[Machine]) -> None:
    """Make a controller a voter, or remove a voter. Voters whose disk was lost are removed first, and return later."""
    await _remove_lost_voters(nemesis)
    random, controllers = nemesis.random, nemesis.cluster.topology.controller_ids
    voters = [voter.node_id for voter in newest_voters(nemesis.views())]
    others = [node_id for node_id in controllers if node_id not in voters]
    if others and (len(voters) <= _VOTERS_MIN or random.random() < 0.5):
        node_id = random.choice(others)
        endpoint = address_of(node_id)
        await _operate(nemesis, partial(add_voter, node=node_id, endpoint=endpoint, timeout_s=REQUEST_TIMEOUT_S))
    elif len(voters) > _VOTERS_MIN:
        await _operate(nemesis, partial(remove_voter, node=random.choice(voters), force=False))


async def _remove_lost_voters(nemesis: ClusterNemesis) -> None:
    for voter in nemesis.lost_voters():
        await _operate(nemesis, partial(remove_voter, node=voter.node_id, force=True))


async def remove_lost_voters(nemesis: ClusterNemesis, longest_s: float) -> None:
    """Remove the voters whose disk was lost, with a time-out."""
    end_s = nemesis.world.loop.time() + longest_s
    while nemesis.lost_voters() and nemesis.world.loop.time() < end_s:
        await _remove_lost_voters(nemesis)


MOVES: tuple[ClusterFault, ...] = (move_partitions, cancel_moves)
VOTER_CHANGES: tuple[ClusterFault, ...] = (change_voters,)
