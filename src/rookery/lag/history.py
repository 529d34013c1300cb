"""The samples of the last window of time, from which rates and statuses follow. Pure: samples bring their own times.

From outside, offsets are seen and commits are not. For Burrow's rules, a sample counts as a commit if the offset has
changed since the sample before, or if the group has members: they are alive, and would have committed progress. So a
group whose members make no progress stalls, and a group without members whose offsets no longer change has stopped.
"""

from collections.abc import Iterable

from rookery.base.types import TimestampMs, TopicPartition
from rookery.base.values import value_class
from rookery.lag.evaluation import Commit, Status, evaluate
from rookery.lag.lags import GroupLag, LagReport, ObservedLag
from rookery.lag.rates import Point, rates
from rookery.lag.samples import ClusterSample, GroupSample, PartitionSample

_Key = tuple[str, TopicPartition]


@value_class
class _Observation:
    point: Point
    lag: int
    is_commit: bool


class LagHistory:
    """Add samples in the order of their times. `window_ms` is how far back rates and statuses look."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._observations: dict[_Key, list[_Observation]] = {}

    def add(self, sample: ClusterSample) -> LagReport:
        """Return the lags at the time of `sample`. Partitions that it does not contain are forgotten."""
        groups = [self._group_lag(group, sample) for group in sample.groups]
        self._forget_others(sample.groups)
        return LagReport(at_ms=sample.at_ms, groups=tuple(groups), spans=sample.spans, retention_ms=sample.retention_ms)

    def _group_lag(self, group: GroupSample, sample: ClusterSample) -> GroupLag:
        return GroupLag(group, (self._observe(group, each, sample) for each in group.partitions))

    def _observe(self, group: GroupSample, each: PartitionSample, sample: ClusterSample) -> ObservedLag:
        seen = self._remember(group, each, sample.at_ms)
        # Before the window is full, a commit interval longer than what was seen would look like a stop.
        is_full = bool(seen) and sample.at_ms - seen[0].point.at_ms >= self._window_ms
        status: Status | None = None
        if each.lag is not None and (is_full or each.is_caught_up):
            commits = [Commit(o.point.at_ms, o.point.committed, o.lag) for o in seen if o.is_commit]
            status = evaluate(commits, is_caught_up=each.is_caught_up, now_ms=sample.at_ms)
        return ObservedLag(
            sample=each,
            at_ms=sample.at_ms,
            rates=rates([observation.point for observation in seen]),
            status=status,
            retention_ms=sample.retention_ms.get(each.partition.topic),
        )

    def _remember(self, group: GroupSample, each: PartitionSample, at_ms: TimestampMs) -> list[_Observation]:
        """Add an observation, drop those that left the window, and return the rest, oldest first.

        The newest observation before the window's start is kept: without it, the rest would cover less than the window.
        """
        seen = self._observations.setdefault((group.group_id, each.partition), [])
        if each.lag is None or each.committed is None or each.span is None:
            seen.clear()
            return seen
        is_commit = not seen or group.member_count > 0 or seen[-1].point.committed != each.committed
        point = Point(at_ms, each.committed, each.span.end)
        seen.append(_Observation(point, 0 if each.is_caught_up else each.lag, is_commit))
        while len(seen) > 1 and seen[1].point.at_ms <= at_ms - self._window_ms:
            del seen[0]
        return seen

    def _forget_others(self, groups: Iterable[GroupSample]) -> None:
        present = {(group.group_id, each.partition) for group in groups for each in group.partitions}
        for key in self._observations.keys() - present:
            del self._observations[key]
