"""Lags of partitions and groups, computed from samples: in records, in seconds, and where they lead. Pure.

Seconds are exact: the time since the timestamp of the first record that the group has not committed, and zero if there
is no such record. Nothing is interpolated.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TIMESTAMP, Offset, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.lag.evaluation import Status, worst
from rookery.lag.rates import Rates
from rookery.lag.samples import GroupSample, LogSpan, PartitionSample

_MS_PER_S = 1000


@value_class(kw_only=True)
class ObservedLag:
    """The lag of a group in one partition at the time `at_ms`.

    `rates` and `status` are None until the samples cover the window.
    """

    sample: PartitionSample
    at_ms: TimestampMs
    rates: Rates | None = None
    status: Status | None = None
    retention_ms: int | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.sample.partition

    @property
    def committed(self) -> Offset | None:
        return self.sample.committed

    @property
    def end(self) -> Offset | None:
        return None if self.sample.span is None else self.sample.span.end

    @property
    def lag(self) -> int | None:
        return self.sample.lag

    @property
    def lost(self) -> int:
        return self.sample.lost

    @property
    def lag_s(self) -> float | None:
        """Seconds since the timestamp of the first unread record; 0 if there is none; None if it is not known.

        A timestamp in the future counts as now.
        """
        if self.sample.is_caught_up:
            return 0.0
        unread = self.sample.unread
        if self.lag is None or unread is None or unread.timestamp_ms == NO_TIMESTAMP:
            return None
        return max(0, self.at_ms - unread.timestamp_ms) / _MS_PER_S

    @property
    def trend(self) -> float | None:
        """How many records per second the lag grows by; negative if it falls."""
        return None if self.rates is None else self.rates.trend

    @property
    def catch_up_s(self) -> float | None:
        """Seconds until the lag is gone at the present rates; infinity if it does not fall; None if not known."""
        if self.sample.is_caught_up:
            return 0.0
        if self.lag is None or self.rates is None:
            return None
        return self.rates.catch_up_s(self.lag)

    @property
    def expires_s(self) -> float | None:
        """Seconds until retention may delete the first unread record; None if it is not deleted by time.

        The record lives longer if its segment has younger ones.
        """
        unread = self.sample.unread
        if self.retention_ms is None or unread is None or unread.offset is None or unread.timestamp_ms == NO_TIMESTAMP:
            return None
        return max(0, unread.timestamp_ms + self.retention_ms - self.at_ms) / _MS_PER_S


class GroupLag:
    """The lags of all partitions of a group. Sums count only partitions with a commit."""

    def __init__(self, group: GroupSample, partitions: Iterable[ObservedLag]) -> None:
        self.group = group
        self.partitions = tuple(partitions)

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def error(self) -> ErrorCode:
        return self.group.error

    @cached_property
    def lag(self) -> int | None:
        """The sum; None if no partition has a known lag."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    @cached_property
    def lost(self) -> int:
        return sum(each.lost for each in self.partitions)

    @cached_property
    def lag_s(self) -> float | None:
        """The largest of the partitions; None if that of a partition with a commit is not known."""
        found = [each.lag_s for each in self._committed]
        known = [seconds for seconds in found if seconds is not None]
        return max(known) if known and len(known) == len(found) else None

    @cached_property
    def trend(self) -> float | None:
        """The sum of the partitions; None if one with a commit is not known."""
        found = [each.trend for each in self._committed]
        known = [trend for trend in found if trend is not None]
        return sum(known) if known and len(known) == len(found) else None

    @cached_property
    def catch_up_s(self) -> float | None:
        """When the last partition will have caught up; infinity if one will not; None if one is not known."""
        found = [each.catch_up_s for each in self._committed]
        known = [seconds for seconds in found if seconds is not None]
        if any(math.isinf(seconds) for seconds in known):
            return math.inf
        return max(known) if known and len(known) == len(found) else None

    @cached_property
    def expires_s(self) -> float | None:
        """When retention may delete the first unread record of any partition."""
        return min((each.expires_s for each in self.partitions if each.expires_s is not None), default=None)

    @cached_property
    def status(self) -> Status | None:
        return worst(each.status for each in self._committed)

    @property
    def _committed(self) -> list[ObservedLag]:
        """The partitions with a known lag: one without a leader, or without a commit, must not hide the others."""
        return [each for each in self.partitions if each.lag is not None]


@value_class(kw_only=True)
class LagReport:
    """The lags of groups at the time `at_ms`, with the spans of all partitions that a group has."""

    at_ms: TimestampMs
    groups: tuple[GroupLag, ...]
    spans: Mapping[TopicPartition, LogSpan]
    retention_ms: Mapping[TopicName, int]
