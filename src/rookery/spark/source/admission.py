"""Decides how many of the available offsets a micro-batch takes, and when it waits for more. Pure.

Limits are counted in offsets, as in Spark's Kafka source. A limit in bytes is converted to offsets with the measured
size of the first offsets of each partition.
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
    """Return the number of offsets to read, for the partitions that have any."""
    return {tp: end - starts[tp] for tp, end in ends.items() if tp in starts and end > starts[tp]}


def share(limit: int, starts: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]) -> Offsets:
    """Return ends with about `limit` offsets in total, shared in proportion to the lags.

    Each partition with a lag gets at least one offset.
    """
    partition_lags = lags(starts, ends)
    total = sum(partition_lags.values())
    if total <= limit:
        return dict(ends)
    return {
        tp: starts[tp] + max(limit * partition_lags[tp] // total, 1) if tp in partition_lags else end
        for tp, end in ends.items()
    }


def offsets_within(
    size_bytes: int, partition_lags: Mapping[TopicPartition, int], samples: Mapping[TopicPartition, StoredRun]
) -> int | None:
    """Return the number of offsets that take about `size_bytes`; None if all offsets together do not take more.

    A partition without a sample is assumed to have records of the average size of the others.
    """
    expected, measured = 0.0, 0
    for tp, run in samples.items():
        if tp in partition_lags and run.offset_count > 0:
            expected += partition_lags[tp] * run.size_bytes / run.offset_count
            measured += partition_lags[tp]
    if not expected:
        return None
    total = sum(partition_lags.values())
    expected *= total / measured
    return None if expected <= size_bytes else max(int(total * size_bytes / expected), 1)


class Gate:
    """Delays micro-batches with fewer offsets than the minimum, up to `Limits.max_delay_s`."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        # None until the first call, which is never delayed.
        self._opened_s: float | None = None

    def opens(self, lag: int, limits: Limits) -> bool:
        """Whether a micro-batch with `lag` offsets may start now.

        As in Spark's Kafka source, the delay restarts at every call that is not held back, even with a lag of 0.
        """
        now_s = self._clock.monotonic()
        waited = self._opened_s is None or now_s - self._opened_s >= limits.max_delay_s
        if not waited and lag < (limits.min_offsets or 0):
            return False
        self._opened_s = now_s
        return lag > 0
