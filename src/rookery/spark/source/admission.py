"""How much a micro-batch takes of what is there: shares of a limit, and when to wait for more. Pure.

Limits are counted in offsets, as in Spark's Kafka source. A limit in bytes becomes one in offsets by what the first
offsets of each partition were found to take.
"""

from collections.abc import Mapping

from rookery.base.clock import Clock
from rookery.base.types import Offset, TopicPartition
from rookery.base.values import value_class
from rookery.client.consume.ranges import StoredRun
from rookery.spark.offsets import Offsets


@value_class(kw_only=True)
class Limits:
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = 0.0
    max_bytes: int | None = None


def lags(starts: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, int]:
    """How many offsets there are to read, of partitions that have any."""
    return {tp: end - starts[tp] for tp, end in ends.items() if tp in starts and end > starts[tp]}


def share(limit: int, starts: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]) -> Offsets:
    """Ends that leave about `limit` offsets, in proportion to the lags; no partition with a lag gets nothing."""
    behind = lags(starts, ends)
    total = sum(behind.values())
    if total <= limit:
        return dict(ends)
    return {tp: starts[tp] + max(limit * behind[tp] // total, 1) if tp in behind else end for tp, end in ends.items()}


def offsets_within(
    size_bytes: int, behind: Mapping[TopicPartition, int], samples: Mapping[TopicPartition, StoredRun]
) -> int | None:
    """The number of offsets that take about so many bytes; None if all do.

    A partition without a sample is taken to be as the others are.
    """
    expected, measured = 0.0, 0
    for tp, run in samples.items():
        if tp in behind and run.offset_count > 0:
            expected += behind[tp] * run.size_bytes / run.offset_count
            measured += behind[tp]
    if not expected:
        return None
    total = sum(behind.values())
    expected *= total / measured
    return None if expected <= size_bytes else max(int(total * size_bytes / expected), 1)


class Gate:
    """Holds micro-batches back that would have fewer offsets than the minimum, for a time."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        # What is there at the first look is not held back.
        self._opened_s: float | None = None

    def opens(self, lag: int, limits: Limits) -> bool:
        """As in Spark's Kafka source, the time also runs from a look that found nothing."""
        now_s = self._clock.monotonic()
        waited = self._opened_s is None or now_s - self._opened_s >= limits.max_delay_s
        if not waited and lag < (limits.min_offsets or 0):
            return False
        self._opened_s = now_s
        return lag > 0
