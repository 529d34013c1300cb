"""Plans which brokers shall hold which replicas, and reads and writes plans as Kafka's tools do. Pure.

A plan moves as little data as possible: replicas stay where they may stay, and each new one goes to the broker with the
fewest replicas, in a rack without a replica of the partition if there is one. Kafka's tool computes a new assignment
from nothing instead, which moves almost everything.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rookery.base.types import NodeId, TopicPartition

Assignment: TypeAlias = Mapping[TopicPartition, tuple[NodeId, ...]]
_VERSION = 1


class Load(NamedTuple):
    """How many replicas, and how many preferred leaders, each broker has in partitions that a plan does not touch."""

    replicas: Mapping[NodeId, int]
    leaders: Mapping[NodeId, int]

    @classmethod
    def of(cls, assignment: Iterable[Sequence[NodeId]]) -> "Load":
        replicas: Counter[NodeId] = Counter()
        leaders: Counter[NodeId] = Counter()
        for nodes in assignment:
            replicas.update(nodes)
            leaders.update(nodes[:1])
        return cls(replicas, leaders)


def plan(
    current: Assignment,
    racks: Mapping[NodeId, str | None],
    *,
    others: Load,
    replication_factor: int | None = None,
    balance: bool = True,
) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """Return the partitions of `current` that must change, with their new replicas, the preferred leader first.

    `racks` holds the brokers that may have replicas. With `balance`, replicas also move between these brokers until
    they have the same number; without it, only replicas on other brokers move. Raises ValueError with a sentence.
    """
    planner = _Planner(current, racks, others)
    for tp, nodes in sorted(current.items()):
        wanted = replication_factor or len(nodes)
        if wanted > len(racks):
            raise ValueError(f"partition {tp} needs {wanted} brokers, and there are {len(racks)}")
        planner.place(tp, nodes, wanted)
    if balance:
        planner.balance_replicas()
    planner.balance_leaders(moved_only=not balance)
    return {tp: tuple(nodes) for tp, nodes in planner.placed.items() if tuple(nodes) != tuple(current[tp])}


class _Planner:
    def __init__(self, current: Assignment, racks: Mapping[NodeId, str | None], others: Load) -> None:
        self.placed: dict[TopicPartition, list[NodeId]] = {}
        self._current = current
        self._racks = racks
        kept = Load.of([node for node in nodes if node in racks] for nodes in current.values())
        self._replicas = Counter({node: others.replicas.get(node, 0) + kept.replicas.get(node, 0) for node in racks})
        self._leaders = Counter({node: others.leaders.get(node, 0) for node in racks})

    def place(self, tp: TopicPartition, nodes: Sequence[NodeId], wanted: int) -> None:
        """Keep the replicas that may stay, and add or drop others until there are `wanted`."""
        placed = [node for node in nodes if node in self._racks]
        while len(placed) > wanted:
            # The last of equals, so that the preferred leader stays if it can.
            dropped = max(reversed(placed), key=lambda node: (self._conflicts(node, placed), self._replicas[node]))
            placed.remove(dropped)
            self._replicas[dropped] -= 1
        while len(placed) < wanted:
            free = [node for node in self._racks if node not in placed]
            added = min(free, key=lambda node: (self._conflicts(node, placed), self._replicas[node], node))
            placed.append(added)
            self._replicas[added] += 1
        self.placed[tp] = placed

    def balance_replicas(self) -> None:
        """Move replicas from the brokers with the most to those with the fewest, while that helps."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        by_count = sorted(self._racks, key=lambda node: (self._replicas[node], node))
        for source in reversed(by_count):
            for target in by_count:
                if self._replicas[source] - self._replicas[target] <= 1:
                    break
                if self._move(source, target):
                    return True
        return False

    def _move(self, source: NodeId, target: NodeId) -> bool:
        for placed in self.placed.values():
            if source not in placed or target in placed:
                continue
            rest = [node for node in placed if node != source]
            if self._conflicts(target, rest) <= self._conflicts(source, rest):
                placed[placed.index(source)] = target
                self._replicas[source] -= 1
                self._replicas[target] += 1
                return True
        return False

    def balance_leaders(self, *, moved_only: bool) -> None:
        """Reorder replicas until each broker is the preferred leader of about as many partitions.

        With `moved_only`, only in partitions whose preferred leader is not a replica any more.
        """
        self._leaders.update(nodes[0] for nodes in self.placed.values())
        movable = [nodes for tp, nodes in self.placed.items() if not moved_only or self._current[tp][0] not in nodes]
        while sum(map(self._move_leader, movable)):
            pass

    def _move_leader(self, nodes: list[NodeId]) -> bool:
        best = min(nodes, key=lambda node: self._leaders[node])
        if self._leaders[nodes[0]] - self._leaders[best] <= 1:
            return False
        self._leaders[nodes[0]] -= 1
        self._leaders[best] += 1
        nodes.remove(best)
        nodes.insert(0, best)
        return True

    def _conflicts(self, node: NodeId, placed: Collection[NodeId]) -> int:
        """Return how many other replicas are in the same rack; a broker without a rack is a rack of its own."""
        rack = self._racks[node]
        return 0 if rack is None else sum(self._racks[other] == rack for other in placed if other != node)


def format_plan(assignment: Assignment) -> dict[str, Any]:
    """Return a plan in the JSON form of Kafka's kafka-reassign-partitions."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(nodes)}
        for tp, nodes in sorted(assignment.items())
    ]
    return {"version": _VERSION, "partitions": rows}


def parse_plan(text: str) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """Parse a plan in Kafka's form. Raises ValueError with a sentence.

    `log_dirs` is ignored: each broker chooses the directory of a new replica itself.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    rows = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(rows, list) or value.get("version", _VERSION) != _VERSION:
        raise ValueError('must have the form {"version": 1, "partitions": [{"topic", "partition", "replicas"}]}')
    found: dict[TopicPartition, tuple[NodeId, ...]] = {}
    for row in rows:
        tp, nodes = _parse_row(row)
        if tp in found:
            raise ValueError(f"names partition {tp} twice")
        found[tp] = nodes
    if not found:
        raise ValueError("names no partition")
    return found


def _parse_row(row: object) -> tuple[TopicPartition, tuple[NodeId, ...]]:
    match row:
        case {"topic": str() as topic, "partition": int() as index, "replicas": [*nodes]}:
            pass
        case _:
            raise ValueError(f"has an entry without topic, partition and replicas: {json.dumps(row)}")
    tp = TopicPartition(topic, index)
    if not nodes or not all(isinstance(node, int) and node >= 0 for node in nodes):
        raise ValueError(f"must list the ids of brokers as the replicas of {tp}, not {json.dumps(nodes)}")
    if len(set(nodes)) < len(nodes):
        raise ValueError(f"lists a broker twice for {tp}: {json.dumps(nodes)}")
    return tp, tuple(nodes)
