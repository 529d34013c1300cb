"""The work of `rookery reassign` and `rookery brokers drain`: chooses partitions, starts moves and waits for them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.cli.errors import CommandError, explain
from rookery.cli.output import some_partitions
from rookery.cli.partition_states import describe_topics, running_reassignments
from rookery.cli.progress import copied
from rookery.cli.reassignment_plans import Assignment, Load, plan
from rookery.cli.resets import TopicChoice
from rookery.client.admin import Admin, Broker, Reassignment

_PAUSE_S = 0.5
_SIZES_S = 5.0

DONE, MOVING, DIFFERENT, MISSING = "done", "moving", "different", "missing"


class Choice(NamedTuple):
    """What to plan: the partitions (none: all), the brokers (none: all that are alive) and the number of replicas."""

    topics: Sequence[TopicChoice]
    brokers: Sequence[NodeId]
    replication_factor: int | None


async def current_assignment(admin: Admin, names: Iterable[str] = ()) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """Return the replicas of all partitions of topics (none: of all), after running moves."""
    moving = await running_reassignments(admin)
    assignment: dict[TopicPartition, tuple[NodeId, ...]] = {}
    for topic in await describe_topics(admin, sorted(set(names))):
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.index)
            assignment[tp] = moving[tp].target if tp in moving else partition.replicas
    return assignment


async def plan_choice(admin: Admin, choice: Choice) -> tuple[Assignment, dict[TopicPartition, tuple[NodeId, ...]]]:
    """Return the present replicas of the chosen partitions, and the changes."""
    everything = await current_assignment(admin)
    chosen = _chosen(everything, choice.topics)
    brokers = {broker.node_id: broker for broker in (await admin.describe_cluster()).brokers}
    unknown = [node for node in choice.brokers if node not in brokers]
    if unknown:
        raise CommandError(f"broker {unknown[0]} is not alive; those are {', '.join(map(str, sorted(brokers)))}")
    allowed = {node: brokers[node] for node in choice.brokers} or brokers
    return chosen, _plan(everything, chosen, allowed, replication_factor=choice.replication_factor)


async def plan_drain(admin: Admin, node: NodeId) -> tuple[Assignment, dict[TopicPartition, tuple[NodeId, ...]]]:
    """Return the partitions with a replica on `node`, and their replicas on the other brokers."""
    everything = await current_assignment(admin)
    chosen = {tp: nodes for tp, nodes in everything.items() if node in nodes}
    others = {broker.node_id: broker for broker in (await admin.describe_cluster()).brokers if broker.node_id != node}
    crowded = next((tp for tp, nodes in chosen.items() if len(nodes) > len(others)), None)
    if crowded is not None:
        raise CommandError(
            f"partition {crowded} needs {len(chosen[crowded])} brokers, and without broker {node} there are "
            f"{len(others)}: add a broker, or run "
            f"rookery reassign execute --topics {crowded.topic} --replication-factor {len(others) or 1}"
        )
    return chosen, _plan(everything, chosen, others, balance=False)


def _plan(
    everything: Assignment,
    chosen: Assignment,
    brokers: Mapping[NodeId, Broker],
    *,
    replication_factor: int | None = None,
    balance: bool = True,
) -> dict[TopicPartition, tuple[NodeId, ...]]:
    try:
        return plan(
            chosen,
            {node: broker.rack for node, broker in sorted(brokers.items())},
            others=Load.of(nodes for tp, nodes in everything.items() if tp not in chosen),
            replication_factor=replication_factor,
            balance=balance,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None


def _chosen(everything: Assignment, topics: Sequence[TopicChoice]) -> Assignment:
    if not topics:
        return everything
    chosen: dict[TopicPartition, tuple[NodeId, ...]] = {}
    for topic, indexes in topics:
        known = {tp: nodes for tp, nodes in everything.items() if tp.topic == topic}
        if not known:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
        missing = [index for index in indexes if TopicPartition(topic, index) not in known]
        if missing:
            raise CommandError(f"topic {topic} has {len(known)} partitions, there is no {missing[0]}")
        chosen |= {tp: nodes for tp, nodes in known.items() if not indexes or tp.partition in indexes}
    return chosen


async def start_moves(admin: Admin, targets: Assignment, *, replace: bool) -> None:
    """Start the moves. Raises CommandError if the controller refuses one, or a partition moves elsewhere already."""
    running = await admin.list_partition_reassignments()
    busy = [tp for tp, nodes in targets.items() if tp in running and running[tp].target != nodes]
    if busy and not replace:
        raise CommandError(
            f"{len(busy)} partitions move already ({some_partitions(busy)}): wait, cancel, or add --replace "
            "for a new target"
        )
    outcomes = await admin.alter_partition_reassignments(targets)
    refused = {tp: outcome for tp, outcome in outcomes.items() if outcome.error is not ErrorCode.NONE}
    if refused:
        tp, outcome = next(iter(refused.items()))
        reason = outcome.message or explain(ApiError(outcome.error))
        raise CommandError(f"{len(refused)} of {len(targets)} moves were refused, the first for {tp}: {reason}")


async def cancel_moves(admin: Admin, partitions: Sequence[TopicPartition] | None) -> dict[TopicPartition, Reassignment]:
    """Cancel the moves of `partitions` (None: all); return those that were running."""
    running = await admin.list_partition_reassignments(partitions)
    outcomes = await admin.alter_partition_reassignments(dict.fromkeys(running)) if running else {}
    for tp, outcome in outcomes.items():
        # A move that has ended in between needs no cancelling.
        if outcome.error not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
            raise CommandError(f"partition {tp}: {outcome.message or explain(ApiError(outcome.error))}")
    return running


async def verify(admin: Admin, targets: Assignment) -> dict[TopicPartition, str]:
    """Return for each partition whether its replicas are those of the plan, or are on their way there."""
    running = await admin.list_partition_reassignments()
    described = await admin.describe_topics({tp.topic for tp in targets})
    present = {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in described
        for partition in topic.partitions
    }
    return {tp: _status(tp, nodes, present, running) for tp, nodes in sorted(targets.items())}


def _status(
    tp: TopicPartition,
    target: tuple[NodeId, ...],
    present: Assignment,
    running: Mapping[TopicPartition, Reassignment],
) -> str:
    if tp in running:
        return MOVING if set(running[tp].target) == set(target) else DIFFERENT
    if tp not in present:
        return MISSING
    return DONE if present[tp] == target else DIFFERENT


async def wait_for_moves(
    admin: Admin, partitions: Iterable[TopicPartition], *, on_change: Callable[[int], None] | None = None
) -> None:
    """Wait until no partition moves any more, with a progress bar in bytes. `on_change` gets the number left."""
    wanted = set(partitions)
    sizes = _Sizes(admin)
    with copied("moving replicas") as show:
        while True:
            moving = {tp: each for tp, each in (await admin.list_partition_reassignments()).items() if tp in wanted}
            if on_change is not None:
                on_change(len(moving))
            if not moving:
                return
            done, total = await sizes.progress(moving)
            show(done, total, f"{len(moving)} of {len(wanted)} partitions are moving")
            await asyncio.sleep(_PAUSE_S)


class _Sizes:
    """How many bytes moves have to copy, and have copied. A move that ends counts as a whole."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._totals: dict[TopicPartition, int] = {}

    async def progress(self, moving: Mapping[TopicPartition, Reassignment]) -> tuple[int, int]:
        found = await copied_bytes(self._admin, moving)
        self._totals |= {tp: total for tp, (_, total) in found.items()}
        copied_now = sum(done for done, _ in found.values())
        ended = sum(total for tp, total in self._totals.items() if tp not in moving)
        return copied_now + ended, sum(self._totals.values())


async def copied_bytes(
    admin: Admin, moving: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return for each move how many bytes the new replicas have, and will have; empty if a broker does not answer.

    The sizes are only for show: a broker that died must not keep the user from moving its replicas away.
    """
    try:
        async with asyncio.timeout(_SIZES_S):
            directories = await admin.describe_log_dirs(partitions=list(moving))
    except (ApiError, TimeoutError):
        return {}
    sizes: dict[TopicPartition, dict[NodeId, int]] = {tp: {} for tp in moving}
    for directory in directories:
        for tp, size in directory.partition_sizes.items():
            sizes.setdefault(tp, {})[directory.node_id] = size
    found: dict[TopicPartition, tuple[int, int]] = {}
    for tp, move in moving.items():
        # The largest replica that is not new stands for the leader's.
        full = max((size for node, size in sizes[tp].items() if node not in move.adding), default=0)
        found[tp] = sum(min(sizes[tp].get(node, 0), full) for node in move.adding), full * len(move.adding)
    return found


async def bytes_to_copy(admin: Admin, current: Assignment, targets: Assignment) -> int | None:
    """Return how many bytes a plan copies, by the present sizes; None if they are not known."""
    moves = {
        tp: Reassignment(current[tp], tuple(node for node in nodes if node not in current[tp]), ())
        for tp, nodes in targets.items()
    }
    found = await copied_bytes(admin, moves) if moves else {}
    return sum(total for _, total in found.values()) if found or not moves else None


def moves_as_json(moves: Mapping[TopicPartition, Reassignment]) -> list[dict[str, Any]]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(move.replicas),
            "adding_replicas": list(move.adding),
            "removing_replicas": list(move.removing),
        }
        for tp, move in moves.items()
    ]
