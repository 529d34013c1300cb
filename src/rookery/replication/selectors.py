"""Which replica a consumer should read from (KIP-392): `replica.selector.class`. Pure.

The leader is the default. `RackAwareReplicaSelector` refers a consumer that names its rack to an in-sync replica in
that rack, if the leader is in another one: traffic between racks costs money in clouds.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rookery.base.types import NodeId, Offset

# Accepted with and without the package of Kafka's class.
RACK_AWARE: Final = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "RackAwareReplicaSelector")


class ReadableReplica(NamedTuple):
    """A follower that has the offset that a consumer wants."""

    node: NodeId
    rack: str | None
    end_offset: Offset
    caught_up_s: float


def select_in_rack(rack: str, leader_rack: str | None, followers: Iterable[ReadableReplica]) -> NodeId | None:
    """Return the follower in `rack` that lags least; None if the consumer should read from the leader."""
    if leader_rack == rack:
        return None
    nearest = max(
        (each for each in followers if each.rack == rack),
        key=lambda each: (each.end_offset, each.caught_up_s, each.node),
        default=None,
    )
    return None if nearest is None else nearest.node
