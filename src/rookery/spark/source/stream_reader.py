"""A stream: Spark asks how far it may read, then for the tasks of that range, again and again.

Spark's checkpoint has the end of every micro-batch and is the only thing that a restart goes by. The beginning of the
first micro-batch is not in it, and a query that dies in its first micro-batch asks for it again. Whatever says where to
begin may then mean another offset, as records come and retention takes others away, and what lies between would be
lost. A query therefore begins with an empty micro-batch, whose end is where the query begins. Trigger.Once has one
micro-batch only: its query begins at once, with all partitions that do not begin at the latest offset.

A topic that is deleted and made again has another id. The checkpoint has no ids: only a query that is running notices.

An idle query waits in `next_end`, in a fetch that the broker answers as soon as there is something.
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

# How long an idle query waits for the first record before it tells Spark that there is none.
_IDLE_WAIT_S: Final = 0.5
# After a fetch that failed: what is wrong shows when offsets are looked up, but not more often than this.
_PAUSE_S: Final = 0.1
# Enough to see some batches of usual size.
_SAMPLE_BYTES: Final = 64 * 1024


class StreamReader(DataSourceStreamReader):
    """What all versions of Spark have in common. How they ask for the end of a micro-batch differs: `admitting_reader`
    and `plain_reader`.

    Methods that Spark calls have its names. A reader is pickled into tasks, which use `read` alone.
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
        # Of `_initial`: what was the latest offset then, and would be another if it were looked up again.
        self._begun_at_latest: frozenset[TopicPartition] = frozenset()
        # What is wrong with the options to begin by. A query that has begun does not need them any more.
        self._option_error: OptionError | None = None
        self._has_started = False
        # What the last look-up found.
        self._latest: Offsets = {}
        # Of topics that the positions may belong to: several, since brokers do not all hear of a new one at once.
        self._topic_ids: dict[TopicName, set[TopicId]] = {}
        # Whether all partitions that are named are gone.
        self._all_partitions_gone = False
        # Of AvailableNow: nothing behind this is read.
        self._target: Offsets | None = None

    # Where to begin, and how far to go.

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        if self._initial is None:
            options = self._options
            found = self._lookups.existing_partitions(options.selection)
            self._record_topic_ids()
            # Before the offsets: what comes in between counts as later.
            ends = self._lookups.edges(found, LATEST) if _depends_on_now(options) else None
            try:
                offsets = self._lookups.resolve(options.starting, found, late=options.late_start)
            except OptionError as error:
                self._option_error = error
                offsets = self._lookups.resolve_known(options.starting, found)
            if self._target is not None and _depends_on_now(options):
                # What came since then is not read: neither records nor partitions.
                self._target = self._target or self._ends()
                offsets = {tp: min(offsets[tp], end) for tp, end in self._target.items() if tp in offsets}
            self._initial = offsets
            if ends is not None:
                self._begun_at_latest = frozenset(tp for tp, start in offsets.items() if start >= ends.get(tp, start))
        return offsets_to_json(self._initial)

    def next_end(self, start: OffsetJson, *, takes_all: bool) -> OffsetJson:
        """The end of the micro-batch that begins at `start`, which is the very same object if there is nothing to read.

        `takes_all`: the query may have no further micro-batch, so that this one keeps no limits, and is not left empty
        unless the query begins at the latest offsets.
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
                # If the query died in this micro-batch, these partitions would begin at its end when it is repeated:
                # what it read of them would be lost.
                ends |= {tp: starts[tp] for tp in self._begun_at_latest & ends.keys()}
            if ends is not None:
                self._record_topic_ids()
                return offsets_to_json(ends)
            if self._target is not None or not self._wait(deadline_s):
                return start

    def stop_at_current_ends(self) -> None:
        """What comes later is not read."""
        self._target = self._ends()

    def latest_seen(self) -> OffsetJson:
        """The ends of all partitions, as the last call of `next_end` found them."""
        return offsets_to_json(self._latest)

    def _limits(self, *, takes_all: bool) -> Limits:
        options = self._options
        if takes_all:
            return Limits()
        return Limits(
            max_offsets=options.max_offsets_per_trigger,
            # Nothing comes that would be worth waiting for.
            min_offsets=None if self._target is not None else options.min_offsets_per_trigger,
            max_delay_s=options.max_trigger_delay_ms / 1000,
            max_bytes=options.max_bytes_per_trigger,
        )

    def _is_first_batch(self, starts: Offsets) -> bool:
        """Whether this is the first micro-batch of a query."""
        is_first = starts == self._initial and not self._has_started
        self._has_started = True
        if is_first and self._option_error is not None:
            raise self._option_error
        return is_first

    def _ends(self) -> Offsets:
        return self._lookups.edges(self._lookups.partitions(self._options.selection), LATEST)

    def _find_ends(self, starts: Offsets) -> Offsets:
        """The ends of all partitions that there are now. What is gone since the last time fails or is left out."""
        ends = self._ends() if self._target is None else self._target
        if starts.keys() - ends.keys():
            # A broker that has just started may not know all topics yet.
            _pause(_IDLE_WAIT_S)
            found = self._ends()
            ends = {**{tp: found[tp] for tp in starts.keys() & found.keys()}, **ends}
            self._target = None if self._target is None else ends
        gone = starts.keys() - ends.keys()
        was_waiting = self._all_partitions_gone
        # Without any partition all positions would be forgotten, and everything be read again if this is a mistake.
        self._all_partitions_gone = bool(gone) and not ends and not isinstance(self._options.selection, MatchingTopics)
        if gone and not was_waiting:
            self._report_data_loss(f"{describe(gone)} does not exist any more")
        if self._all_partitions_gone:
            return starts
        for tp in _truncated(starts, ends):
            self._report_data_loss(
                f"{tp} ends at {ends[tp]}, and the query is at {starts[tp]}; the topic was made again, or "
                f"startingOffsets is wrong"
            )
        return {**ends, **self._recreated_starts(starts, ends)}

    def _recreated_starts(self, starts: Offsets, ends: Offsets) -> Offsets:
        """The first offsets of partitions that are others than before, though long enough to look the same.

        They are the ends of a micro-batch without records, so that the next one begins there."""
        found = self._lookups.topic_ids
        others = {topic for topic in found if found[topic] not in self._topic_ids.setdefault(topic, {found[topic]})}
        suspects = {tp for tp in starts.keys() & ends.keys() if tp.topic in others} - _truncated(starts, ends)
        firsts = self._lookups.edges(suspects, EARLIEST)
        again = {tp: first for tp, first in firsts.items() if first < starts[tp]}
        for tp in sorted(again):
            self._report_data_loss(f"{tp} was deleted and made again; the query is at {starts[tp]} of the one before")
        return again

    def _record_topic_ids(self) -> None:
        for topic, topic_id in self._lookups.topic_ids.items():
            self._topic_ids.setdefault(topic, set()).add(topic_id)

    def _admit(self, starts: Offsets, limits: Limits) -> Offsets | None:
        """The ends of the next micro-batch; None if there is none yet."""
        begins = self._beginnings(starts, self._latest)
        ends = {tp: end for tp, end in self._latest.items() if tp in begins}
        behind = lags(begins, ends)
        if not self._gate.opens(sum(behind.values()), limits):
            # That partitions came, went or began anew is noted even if none of their records is read yet.
            noted = {tp: begins[tp] for tp in ends}
            return None if noted == starts else noted
        if limits.max_offsets is not None:
            ends = share(limits.max_offsets, begins, ends)
        if limits.max_bytes is not None:
            count = offsets_within(limits.max_bytes, behind, self._samples(begins, behind))
            ends = ends if count is None else share(count, begins, ends)
        return ends

    def _beginnings(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Where to read from: new partitions, and those that were made again, from their first offset."""
        again, new = _truncated(starts, ends), ends.keys() - starts.keys()
        firsts = self._lookups.edges(again | new, EARLIEST)
        for tp in sorted(new & firsts.keys()):
            if firsts[tp] > 0:
                self._report_data_loss(f"the new partition {tp} begins at {firsts[tp]} and not at 0")
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
        """Whether something came before the time was over."""
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

    # What to read.

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        if start == end and self._initial is None:
            # Before a restarted query replays its last micro-batch, Spark 4.0 asks for this to tell where that ends. If
            # it counted as the query's beginning, the replay of a first micro-batch would not be known as one.
            return []
        starts, ends = offsets_from_json(start), offsets_from_json(end)
        if starts == self._initial and not self._has_started:
            starts = self._repeat_first(starts, ends)
        self._has_started = True
        begins = self._beginnings(starts, ends)
        for tp in sorted(ends.keys() - begins.keys()):
            self._report_data_loss(f"{tp} does not exist any more; it was to be read to {ends[tp]}")
        return tasks_for(self._options, ranges_between(begins, ends))

    def _repeat_first(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Where the first micro-batch begins was looked up again, and may lie behind its end."""
        if not _depends_on_now(self._options):
            for tp in sorted(_truncated(starts, ends)):
                self._report_data_loss(
                    f"{tp} would be read from {starts[tp]} on now, and the first micro-batch ended at {ends[tp]}"
                )
        return {tp: min(offset, ends.get(tp, offset)) for tp, offset in starts.items()}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, RangePartition)
        return self._plan.read(partition.range)


def _pause(duration_s: float) -> None:
    Event().wait(duration_s)


def _depends_on_now(options: ReadOptions) -> bool:
    """Whether the offsets to begin at are others if they are looked up later."""
    bound = options.starting
    if isinstance(bound, Edge):
        return bound.offset == LATEST
    if isinstance(bound, PartitionOffsets):
        return LATEST in bound.offsets.values()
    return options.late_start is not None


def _truncated(starts: Offsets, ends: Offsets) -> set[TopicPartition]:
    return {tp for tp, end in ends.items() if tp in starts and end < starts[tp]}
