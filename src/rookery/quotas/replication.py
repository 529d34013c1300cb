"""Replication throttles: how many bytes per second of some replicas a broker sends as leader, or copies as follower.

All bytes of the throttled replicas count. Once they are more than the rate, replicas that are not in sync have to wait;
those that are in sync never do, since the ISR would lose them. The rate is the sum over the windows divided by the time
since the oldest of them began, so that a burst counts at once; when all windows are over, any size fits again, and so a
move always makes progress.

Pure: the caller passes the time, in seconds of any monotonic clock.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rookery.base.types import NodeId, TopicName, TopicPartition
from rookery.quotas.buckets import DEFAULT_WINDOWS
from rookery.telemetry.sensors import Sensor, Windows

UNLIMITED_BYTES: Final = 2**63 - 1
_ALL: Final = "*"


class ReplicationThrottle:
    """The throttled replicas of one broker in one role, and the rate of their bytes."""

    def __init__(self, windows: Windows = DEFAULT_WINDOWS) -> None:
        self._sensor = Sensor(windows)
        self._rate = UNLIMITED_BYTES
        # The throttled partitions of a topic; None stands for all of them.
        self._topics: dict[TopicName, frozenset[int] | None] = {}
        # Whether any replica is throttled.
        self.is_active = False

    def set_rate(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second

    def set_replicas(self, topic: TopicName, replicas: Sequence[str], node_id: NodeId) -> None:
        """Set the throttled replicas of a topic: `*`, or pairs of a partition and a broker as in `0:1`."""
        pairs = [pair.split(":") for pair in replicas if pair != _ALL]
        if _ALL in replicas:
            self._topics[topic] = None
        elif own := frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id):
            self._topics[topic] = own
        else:
            self._topics.pop(topic, None)
        self.is_active = bool(self._topics)

    def applies_to(self, partition: TopicPartition) -> bool:
        """Return whether this broker's replica of a partition is throttled."""
        if partition.topic not in self._topics:
            return False
        partitions = self._topics[partition.topic]
        return partitions is None or partition.partition in partitions

    def record(self, size: int, now_s: float) -> None:
        """Count bytes of throttled replicas."""
        self._sensor.record(size, now_s)

    def is_exceeded(self, now_s: float) -> bool:
        return self._sensor.simple_rate(now_s) > self._rate


class ReplicationThrottles(NamedTuple):
    """The throttles of a broker: of what it sends as leader, and of what it copies as follower."""

    leader: ReplicationThrottle
    follower: ReplicationThrottle
