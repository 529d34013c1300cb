"""Placement of the replicas of new partitions: striped over racks, and on brokers that have fewer replicas.

Leaders (first replicas) are striped: with each partition the stripe moves by one rack, and after each round by one
broker of every rack. So the leaders of a topic spread evenly, also if one broker is new and empty. The followers go to
the racks that have fewest replicas of the partition, and there to the brokers with fewest replicas in the cluster; the
stripe decides between equals. The leader is always an active broker. Fenced brokers are used only if there are too few
others. Brokers that shut down, or whose log directories are all cordoned, get no replica.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import chain

from rookery.base.types import NodeId
from rookery.metadata.image import BrokerImage, ClusterImage

# About 30 microseconds each: a step is as long as the description of a topic's configs.
_PARTITIONS_PER_STEP = 10


def replica_counts(image: ClusterImage) -> Counter[NodeId]:
    """Return how many replicas each broker has."""
    return Counter(
        chain.from_iterable(
            partition.replicas for topic in image.topics.values() for partition in topic.partitions.values()
        )
    )


def place(
    brokers: Iterable[BrokerImage],
    *,
    start: int,
    first_partition: int,
    partition_count: int,
    replication_factor: int,
    counts: Counter[NodeId],
) -> Generator[None, None, list[tuple[NodeId, ...]] | str]:
    """Return the replicas of each partition, or the reason why there are too few brokers. Yields between steps.

    `counts` are the replicas that brokers have already; those of the new partitions are added to it.
    """
    usable = sorted(filter(_is_usable, brokers), key=lambda broker: broker.broker_id)
    active = [broker for broker in usable if broker.is_active]
    if not active:
        return "All brokers are currently fenced or in controlled shutdown."
    if replication_factor > len(usable):
        return (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered."
        )
    racks, fenced_racks = _racks(active), _racks([broker for broker in usable if broker.fenced])
    rack_of = {broker.broker_id: broker.rack or "" for broker in usable}
    placed = []
    for index in range(first_partition, first_partition + partition_count):
        order = _stripe(racks, position=start + index)
        replicas = [order[0]]
        fill = min(replication_factor, len(order))
        _add(replicas, order, fill, rack_of, counts)
        if fill < replication_factor:
            _add(replicas, _stripe(fenced_racks, position=start + index), replication_factor, rack_of, counts)
        counts.update(replicas)
        placed.append(tuple(replicas))
        if len(placed) % _PARTITIONS_PER_STEP == 0:
            yield
    return placed


def _is_usable(broker: BrokerImage) -> bool:
    cordoned = broker.cordoned_directories or ()
    is_cordoned = bool(broker.log_directories) and set(broker.log_directories) <= set(cordoned)
    return not broker.in_controlled_shutdown and not is_cordoned


def _add(
    replicas: list[NodeId],
    order: Sequence[NodeId],
    count: int,
    rack_of: Mapping[NodeId, str],
    counts: Mapping[NodeId, int],
) -> None:
    """Add brokers until there are `count`, the best of those that are left first; `order` decides between equals."""
    left = [node_id for node_id in order if node_id not in replicas]
    racks = Counter(rack_of[node_id] for node_id in replicas)
    while len(replicas) < count:
        best = min(left, key=lambda node_id: (racks[rack_of[node_id]], counts.get(node_id, 0)))
        left.remove(best)
        replicas.append(best)
        racks[rack_of[best]] += 1


def _racks(brokers: Sequence[BrokerImage]) -> list[list[NodeId]]:
    racks: dict[str, list[NodeId]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker.broker_id)
    return [racks[name] for name in sorted(racks)]


def _stripe(racks: list[list[NodeId]], *, position: int) -> list[NodeId]:
    """Return all brokers, in the order in which the partition at this position would use them."""
    round_number, turn = divmod(position, len(racks))
    order = racks[turn:] + racks[:turn]
    chosen: list[NodeId] = []
    for depth in range(max(map(len, racks))):
        for step, rack in enumerate(order):
            if depth < len(rack):
                # Followers move by the turn too. Otherwise a broker's partitions would all have the same followers, and
                # they alone would take over its load when it fails.
                chosen.append(rack[(round_number + step * turn + depth) % len(rack)])
    return chosen
