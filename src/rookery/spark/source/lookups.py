"""The driver's requests to the cluster: which partitions exist, where they start and end, and the offsets of bounds.

Results are plain dictionaries of offsets; a failure is an `OptionError` or `SourceError` that names the option to
change.
"""

import re
from collections.abc import Collection, Mapping

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, TimestampMs, TopicId, TopicName, TopicPartition
from rookery.client.metadata import Topic
from rookery.spark.clients import admin_for
from rookery.spark.failures import SourceError, request_failed, unknown_partitions, unknown_topics
from rookery.spark.offsets import (
    LATEST,
    Bound,
    Edge,
    MatchingTopics,
    NamedPartitions,
    NamedTopics,
    Offsets,
    PartitionOffsets,
    PartitionTimes,
    SameTime,
    Selection,
    check_all_named,
)
from rookery.spark.option_table import OptionError

_READ_COMMITTED = "read_committed"


class Lookups:
    """The lookups of one query. The constructor sends no request."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._read_committed = config.get("isolation.level") == _READ_COMMITTED
        # The ids of the topics that the last lookup found; brokers before Kafka 2.8 return none.
        self.topic_ids: dict[TopicName, TopicId] = {}

    def partitions(self, selection: Selection) -> frozenset[TopicPartition]:
        """Return the existing partitions of a selection. A topic that does not exist has no partitions."""
        topics = self._topics(selection)
        found = frozenset(TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions)
        return found & frozenset(selection.partitions) if isinstance(selection, NamedPartitions) else found

    def existing_partitions(self, selection: Selection) -> frozenset[TopicPartition]:
        """Return the partitions of a selection for a query that starts: raises SourceError if one does not exist."""
        found = self.partitions(selection)
        if isinstance(selection, NamedTopics):
            missing = set(selection.names) - {tp.topic for tp in found}
            if missing:
                raise unknown_topics("subscribe", missing)
        elif isinstance(selection, NamedPartitions) and len(found) < len(selection.partitions):
            raise unknown_partitions("assign", set(selection.partitions) - found)
        return found

    def _topics(self, selection: Selection) -> list[Topic]:
        admin = admin_for(self._config)
        try:
            if isinstance(selection, MatchingTopics):
                pattern = re.compile(selection.pattern)
                found = [t for t in admin.list_topics() if pattern.fullmatch(t.name) and not t.is_internal]
            elif isinstance(selection, NamedTopics):
                found = admin.describe_topics(selection.names)
            else:
                found = admin.describe_topics({tp.topic for tp in selection.partitions})
        except ApiError as error:
            raise request_failed("looking up the topics", self._config, error) from None
        for topic in found:
            if topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise SourceError(f"topic {topic.name} cannot be read: {topic.error.name}")
        found = [topic for topic in found if topic.error is ErrorCode.NONE]
        self.topic_ids = {topic.name: topic.topic_id for topic in found if topic.topic_id != NO_TOPIC_ID}
        return found

    def resolve(self, bound: Bound, partitions: Collection[TopicPartition], *, late: int | None = LATEST) -> Offsets:
        """Return the offsets of a bound. `late`: the offset for partitions without a record as late as the bound's
        time; None raises OptionError."""
        if isinstance(bound, Edge):
            return self.edges(partitions, bound.offset)
        if isinstance(bound, PartitionOffsets):
            check_all_named(bound.option, bound.offsets, partitions)
            edges = self._list({tp: offset for tp, offset in bound.offsets.items() if offset < 0})
            return {**bound.offsets, **edges}
        if isinstance(bound, SameTime):
            return self._by_time(bound.option, dict.fromkeys(partitions, bound.timestamp_ms), late)
        assert isinstance(bound, PartitionTimes)
        check_all_named(bound.option, bound.times_ms, partitions)
        return self._by_time(bound.option, bound.times_ms, late)

    def resolve_known(self, bound: Bound, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offsets of the partitions that the bound names, LATEST where no record is as late as its time."""
        if isinstance(bound, PartitionOffsets):
            offsets = {tp: bound.offsets[tp] for tp in partitions if tp in bound.offsets}
            return self.resolve(PartitionOffsets(bound.option, offsets), offsets)
        if isinstance(bound, PartitionTimes):
            times_ms = {tp: bound.times_ms[tp] for tp in partitions if tp in bound.times_ms}
            return self.resolve(PartitionTimes(bound.option, times_ms), times_ms)
        return self.resolve(bound, partitions)

    def edges(self, partitions: Collection[TopicPartition], edge: int) -> Offsets:
        """Return the EARLIEST or LATEST offset of each partition. Partitions that no longer exist are omitted."""
        return self._list(dict.fromkeys(partitions, edge))

    def _by_time(self, option: str, times_ms: Mapping[TopicPartition, TimestampMs], late: int | None) -> Offsets:
        found = self._list(times_ms)
        without_record = [tp for tp, offset in found.items() if offset < 0]
        if without_record and late is None:
            tp = min(without_record)
            raise OptionError(
                f"option {option}: no record of {tp} has the time {times_ms[tp]} or a later one. Choose an earlier "
                f"time, or set startingOffsetsByTimestampStrategy to latest"
            )
        return found | self.edges(without_record, LATEST)

    def _list(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        try:
            rows = admin_for(self._config).list_offsets(wanted, read_committed=self._read_committed)
        except ApiError as error:
            raise request_failed("looking up offsets", self._config, error) from None
        for tp, row in rows.items():
            if row.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise request_failed(f"looking up offsets of {tp}", self._config, ApiError(row.error))
        return {tp: row.offset for tp, row in rows.items() if row.error is ErrorCode.NONE}
