"""What one look at a cluster has seen: committed offsets, the ends of the logs, and the first unread records.

Pure values; `sampler` makes them, `history` turns them into lags.
"""

from collections.abc import Mapping

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_TIMESTAMP, Offset, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class


@value_class
class LogSpan:
    """The first offset of a partition's log, and its end: the high watermark, or the last stable offset."""

    start: Offset
    end: Offset


@value_class
class Unread:
    """The first record that a group has not committed. `offset` is None if there is none."""

    offset: Offset | None
    timestamp_ms: TimestampMs = NO_TIMESTAMP


NOTHING_UNREAD = Unread(None)


@value_class
class Owner:
    """The member that a partition is assigned to."""

    member_id: str
    client_id: str
    host: str


@value_class(kw_only=True)
class PartitionSample:
    """A group's partition. `committed` is None without a commit, `span` if the partition has no leader.

    `unread` is None if the first unread record is not known, for example because the user may not read the topic.
    """

    partition: TopicPartition
    committed: Offset | None
    span: LogSpan | None
    unread: Unread | None = None
    owner: Owner | None = None

    @property
    def lag(self) -> int | None:
        """The end of the log minus the committed offset, as all Kafka tools count; None if one of them is unknown."""
        if self.committed is None or self.span is None:
            return None
        return max(0, self.span.end - self.committed)

    @property
    def lost(self) -> int:
        """How many offsets after the committed one the log no longer has."""
        if self.committed is None or self.span is None:
            return 0
        return max(0, self.span.start - self.committed)

    @property
    def is_caught_up(self) -> bool:
        """Whether there is nothing to read, though the lag may count markers and gaps at the end of the log."""
        return self.lag == 0 or (self.unread is not None and self.unread.offset is None)


@value_class(kw_only=True)
class GroupSample:
    """A group. `group_type` is classic or consumer; a Spark query's group is classic, and never has members."""

    group_id: str
    group_type: str = ""
    state: str = ""
    member_count: int = 0
    partitions: tuple[PartitionSample, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@value_class(kw_only=True)
class ClusterSample:
    """All groups at the time `at_ms`. `retention_ms` has the topics whose old records are deleted by time."""

    at_ms: TimestampMs
    groups: tuple[GroupSample, ...]
    spans: Mapping[TopicPartition, LogSpan]
    retention_ms: Mapping[TopicName, int]
