"""Placement of the replicas of new partitions: striped over racks, then over the brokers of a rack.

With each partition the stripe moves by one rack, and after each round by one broker of every rack. So leaders spread
evenly, and no rack gets a second replica before every rack has one. The leader (first replica) is always a broker that
can lead now; brokers that cannot lead are used only if there are too few others.
"""

from collections.abc import Iterable, Sequence

from rookery.base.types import NodeId
from rookery.metadata.image import BrokerImage


def can_lead(broker: BrokerImage) -> bool:
    return not broker.fenced and not broker.in_controlled_shutdown


def place(
    brokers: Iterable[BrokerImage], *, start: int, first_partition: int, partition_count: int, replication_factor: int
) -> list[tuple[NodeId, ...]] | str:
    """Return the replicas of each partition, or the reason why there are too few brokers."""
    registered = sorted(brokers, key=lambda broker: broker.broker_id)
    ready = [broker for broker in registered if can_lead(broker)]
    if not ready:
        return "All brokers are currently fenced or in controlled shutdown."
    if replication_factor > len(registered):
        return (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(registered)} broker(s) are registered."
        )
    racks = _racks(ready)
    spare = tuple(broker.broker_id for broker in registered if not can_lead(broker))
    count = min(replication_factor, len(ready))
    return [
        _stripe(racks, start=start, position=index, count=count) + spare[: replication_factor - count]
        for index in range(first_partition, first_partition + partition_count)
    ]


def _racks(brokers: Sequence[BrokerImage]) -> list[list[NodeId]]:
    racks: dict[str, list[NodeId]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker.broker_id)
    return [racks[name] for name in sorted(racks)]


def _stripe(racks: list[list[NodeId]], *, start: int, position: int, count: int) -> tuple[NodeId, ...]:
    round_number, turn = divmod(start + position, len(racks))
    order = racks[turn:] + racks[:turn]
    chosen: list[NodeId] = []
    for depth in range(max(map(len, racks))):
        for step, rack in enumerate(order):
            if depth < len(rack):
                # Followers move by the turn too. Otherwise a broker's partitions would all have the same followers, and
                # they alone would take over its load when it fails.
                chosen.append(rack[(round_number + step * turn + depth) % len(rack)])
    return tuple(chosen[:count])
