"""The stream reader: Spark repeatedly requests the end of the next micro-batch, then the tasks that read up to it.

A restart depends only on Spark's checkpoint, which holds the end of every micro-batch. It does not hold the start of
the first one: a query that dies in its first micro-batch resolves its starting offsets again. By then the same option
may resolve to other offsets, because records were added and retention deleted others, and the records in between would
be lost. A query therefore starts with an empty micro-batch, whose end is the query's start. Trigger.Once has only one
micro-batch: it starts reading immediately, for all partitions that do not start at the latest offset.

A topic that is deleted and created again gets another id. The checkpoint has no ids, so only a running query detects
this.

An idle query waits in `next_end`, in a fetch request to which the broker responds as soon as a record arrives.
"""

import logging
from collections.abc import Collection, Iterator
from threading import Event
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rookery.base.clock import Clock, SystemClock
from rookery.base.errors import ApiError
from rookery.base.types import TopicId, TopicName, TopicPartition
from rookery.client.consume.ranges import StoredRun
from rookery.spark.clients import consumer_for
from rookery.spark.failures import report_data_loss
from rookery.spark.offsets import (
    EARLIEST,
    LATEST,
    Edge,
    MatchingTopics,
    OffsetJson,
    Offsets,
    PartitionOffsets,
    describe,
    offsets_from_json,
    offsets_to_json,
)
from rookery.spark.option_table import OptionError
from rookery.spark.options import ReadOptions
from rookery.spark.source.admission import Gate, Limits, lags, offsets_within, share
from rookery.spark.source.batch_reader import RangePartition, tasks_for
from rookery.spark.source.group_offsets import GroupOffsets
from rookery.spark.source.lookups import Lookups
from rookery.spark.source.ranges import ranges_between

if TYPE_CHECKING:
    import pyarrow as pa

    from rookery.spark.source.task_reader import ReadPlan

_LOG: Final = logging.getLogger(__name__)

# How long an idle query waits for the first record before it reports to Spark that there is none.
_IDLE_WAIT_S: Final = 0.5
# The pause after a failed fetch. The lookup of offsets that follows raises the error if it lasts.
_PAUSE_S: Final = 0.1
# Enough for several record batches of usual size.
_SAMPLE_BYTES: Final = 64 * 1024


class StreamReader(DataSourceStreamReader):
    """The common part for all versions of Spark. They request the end of a micro-batch in different ways:
    `admitting_reader` and `plain_reader`.

    Methods that Spark calls have Spark's names. A reader is pickled into tasks, which call only `read`.
    """

    def __init__(self, plan: "ReadPlan", *, clock: Clock | None = None) -> None:
        self._plan = plan
        self._options = plan.options
        self._clock = clock or SystemClock()
        self._lookups = Lookups(plan.options.client_config)
        self._gate = Gate(clock=self._clock)
        self._group = None
        if plan.options.group_id is not None:
            self._group = GroupOffsets(plan.options.client_config, plan.options.group_id, clock=self._clock)
        self._initial: Offsets | None = None
        # The partitions of `_initial` that start at the offset that was the latest then; a later lookup would return
        # another one.
        self._begun_at_latest: frozenset[TopicPartition] = frozenset()
        # The error in the options for the start, if any. It is not raised for a restarted query, which ignores them.
        self._option_error: OptionError | None = None
        self._has_started = False
        # The ends that the last lookup found.
        self._latest: Offsets = {}
        # The ids of the topics to which the positions may belong. There can be several for one name, because brokers
        # learn of a recreated topic at different times.
        self._topic_ids: dict[TopicName, set[TopicId]] = {}
        # Whether none of the selected partitions exists any more.
        self._all_partitions_gone = False
        # The ends at which a query with Trigger.AvailableNow stops.
        self._target: Offsets | None = None

    # The start of the query and the ends of micro-batches.

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        if self._initial is None:
            options = self._options
            found = self._lookups.existing_partitions(options.selection)
            self._record_topic_ids()
            # Looked up before the offsets: a record that arrives in between counts as later than the start.
            ends = self._lookups.edges(found, LATEST) if _depends_on_now(options) else None
            try:
                offsets = self._lookups.resolve(options.starting, found, late=options.late_start)
            except OptionError as error:
                self._option_error = error
                offsets = self._lookups.resolve_known(options.starting, found)
            if self._target is not None and _depends_on_now(options):
                # Records and partitions that were added after `stop_at_current_ends` are not read.
                self._target = self._target or self._ends()
                offsets = {tp: min(offsets[tp], end) for tp, end in self._target.items() if tp in offsets}
            self._initial = offsets
            if ends is not None:
                self._begun_at_latest = frozenset(tp for tp, start in offsets.items() if start >= ends.get(tp, start))
        return offsets_to_json(self._initial)

    def next_end(self, start: OffsetJson, *, takes_all: bool) -> OffsetJson:
        """Return the end of the micro-batch that starts at `start`: the same object `start` if it is empty.

        `takes_all`: the query may have no further micro-batch. This one then ignores the limits, and is empty only if
        the query starts at the latest offsets.
        """
        starts = offsets_from_json(start)
        if self._group is not None:
            self._group.commit(starts)
        is_first = self._is_first_batch(starts)
        if is_first and not (takes_all and starts.keys() - self._begun_at_latest):
            self._latest = starts
            return start
        limits = self._limits(takes_all=takes_all)
        deadline_s = self._clock.monotonic() + _IDLE_WAIT_S
        while True:
            self._latest = self._find_ends(starts)
            ends = self._admit(starts, limits)
            if is_first and ends is not None:
                # These partitions must not advance in the first micro-batch. If the query died in it, the repeated one
                # would start them at its end, and the records that it had read of them would be lost.
                ends |= {tp: starts[tp] for tp in self._begun_at_latest & ends.keys()}
            if ends is not None:
                self._record_topic_ids()
                return offsets_to_json(ends)
            if self._target is not None or not self._wait(deadline_s):
                return start

    def stop_at_current_ends(self) -> None:
        """Read no records that arrive after this call."""
        self._target = self._ends()

    def latest_seen(self) -> OffsetJson:
        """Return the ends of all partitions, as the last call of `next_end` found them."""
        return offsets_to_json(self._latest)

    def _limits(self, *, takes_all: bool) -> Limits:
        options = self._options
        if takes_all:
            return Limits()
        return Limits(
            max_offsets=options.max_offsets_per_trigger,
            # With a fixed target there are no later records to wait for.
            min_offsets=None if self._target is not None else options.min_offsets_per_trigger,
            max_delay_s=options.max_trigger_delay_ms / 1000,
            max_bytes=options.max_bytes_per_trigger,
        )

    def _is_first_batch(self, starts: Offsets) -> bool:
        """Whether this is the first micro-batch of a query. Raises the error of its starting options, if any."""
        is_first = starts == self._initial and not self._has_started
        self._has_started = True
        if is_first and self._option_error is not None:
            raise self._option_error
        return is_first

    def _ends(self) -> Offsets:
        return self._lookups.edges(self._lookups.partitions(self._options.selection), LATEST)

    def _find_ends(self, starts: Offsets) -> Offsets:
        """Return the current ends of all partitions.

        Partitions that no longer exist fail the query or are omitted, as failOnDataLoss says.
        """
        ends = self._ends() if self._target is None else self._target
        if starts.keys() - ends.keys():
            # A broker that has just started may not have the metadata of all topics yet.
            _pause(_IDLE_WAIT_S)
            found = self._ends()
            ends = {**{tp: found[tp] for tp in starts.keys() & found.keys()}, **ends}
            self._target = None if self._target is None else ends
        gone = starts.keys() - ends.keys()
        was_waiting = self._all_partitions_gone
        # If all named partitions are gone, keep the positions. With an empty set of partitions the checkpoint would
        # lose them, and if the topics reappear, their records would all be read again.
        self._all_partitions_gone = bool(gone) and not ends and not isinstance(self._options.selection, MatchingTopics)
        if gone and not was_waiting:
            self._report_data_loss(f"{describe(gone)} no longer exists")
        if self._all_partitions_gone:
            return starts
        for tp in _truncated(starts, ends):
            self._report_data_loss(
                f"{tp} ends at {ends[tp]}, and the query is at {starts[tp]}; the topic was created again, or "
                f"startingOffsets is wrong"
            )
        return {**ends, **self._recreated_starts(starts, ends)}

    def _recreated_starts(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return the first offsets of partitions that were recreated but already reach the query's position.

        They become the ends of a micro-batch without records, so that the next one starts there. Without this check,
        the records before the position would silently be skipped.
        """
        found = self._lookups.topic_ids
        others = {topic for topic in found if found[topic] not in self._topic_ids.setdefault(topic, {found[topic]})}
        suspects = {tp for tp in starts.keys() & ends.keys() if tp.topic in others} - _truncated(starts, ends)
        firsts = self._lookups.edges(suspects, EARLIEST)
        again = {tp: first for tp, first in firsts.items() if first < starts[tp]}
        for tp in sorted(again):
            self._report_data_loss(
                f"{tp} was deleted and created again; the query is at {starts[tp]} of the deleted partition"
            )
        return again

    def _record_topic_ids(self) -> None:
        for topic, topic_id in self._lookups.topic_ids.items():
            self._topic_ids.setdefault(topic, set()).add(topic_id)

    def _admit(self, starts: Offsets, limits: Limits) -> Offsets | None:
        """Return the ends of the next micro-batch; None if there is none yet."""
        begins = self._beginnings(starts, self._latest)
        ends = {tp: end for tp, end in self._latest.items() if tp in begins}
        partition_lags = lags(begins, ends)
        if not self._gate.opens(sum(partition_lags.values()), limits):
            # Partitions that were added, deleted or recreated go into the checkpoint even if no record is read yet.
            noted = {tp: begins[tp] for tp in ends}
            return None if noted == starts else noted
        if limits.max_offsets is not None:
            ends = share(limits.max_offsets, begins, ends)
        if limits.max_bytes is not None:
            count = offsets_within(limits.max_bytes, partition_lags, self._samples(begins, partition_lags))
            ends = ends if count is None else share(count, begins, ends)
        return ends

    def _beginnings(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return where to read from: new and recreated partitions start at their first offset."""
        again, new = _truncated(starts, ends), ends.keys() - starts.keys()
        firsts = self._lookups.edges(again | new, EARLIEST)
        for tp in sorted(new & firsts.keys()):
            if firsts[tp] > 0:
                self._report_data_loss(f"the new partition {tp} begins at {firsts[tp]}, not at 0")
        return {**starts, **firsts}

    def _report_data_loss(self, what: str) -> None:
        report_data_loss(what, is_fatal=self._options.fail_on_data_loss)

    def _samples(self, begins: Offsets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredRun]:
        wanted = {tp: begins[tp] for tp in partitions}
        try:
            return consumer_for(self._options.client_config).measure(wanted, size_max=_SAMPLE_BYTES)
        except ApiError as error:
            _LOG.warning("maxBytesPerTrigger has no effect on this micro-batch: %s", error)
            return {}

    def _wait(self, deadline_s: float) -> bool:
        """Wait for records until the deadline. Returns whether to look up the ends again."""
        left_s = deadline_s - self._clock.monotonic()
        if left_s <= 0:
            return False
        if not self._latest:
            _pause(left_s)
            return False
        try:
            return consumer_for(self._options.client_config).wait_for_records(self._latest, timeout_s=left_s)
        except ApiError:
            _pause(_PAUSE_S)
            return True

    # The tasks of a micro-batch.

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        if start == end and self._initial is None:
            # Before a restarted query replays its last micro-batch, Spark 4.0 makes this call to pass the end of it. If
            # the call counted as the start of the query, the replay of a first micro-batch would not be recognized, and
            # its starting offsets would not be limited to its end.
            return []
        starts, ends = offsets_from_json(start), offsets_from_json(end)
        if starts == self._initial and not self._has_started:
            starts = self._repeat_first(starts, ends)
        self._has_started = True
        begins = self._beginnings(starts, ends)
        for tp in sorted(ends.keys() - begins.keys()):
            self._report_data_loss(f"{tp} no longer exists; it was to be read up to {ends[tp]}")
        return tasks_for(self._options, ranges_between(begins, ends))

    def _repeat_first(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return the starts of a repeated first micro-batch. They were resolved again, and may be after its end."""
        if not _depends_on_now(self._options):
            for tp in sorted(_truncated(starts, ends)):
                self._report_data_loss(
                    f"{tp} would now be read from {starts[tp]} on, but the first micro-batch ended at {ends[tp]}"
                )
        return {tp: min(offset, ends.get(tp, offset)) for tp, offset in starts.items()}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, RangePartition)
        return self._plan.read(partition.range)


def _pause(duration_s: float) -> None:
    Event().wait(duration_s)


def _depends_on_now(options: ReadOptions) -> bool:
    """Whether a later lookup can resolve the starting offsets to other values."""
    bound = options.starting
    if isinstance(bound, Edge):
        return bound.offset == LATEST
    if isinstance(bound, PartitionOffsets):
        return LATEST in bound.offsets.values()
    return options.late_start is not None


def _truncated(starts: Offsets, ends: Offsets) -> set[TopicPartition]:
    return {tp for tp, end in ends.items() if tp in starts and end < starts[tp]}
