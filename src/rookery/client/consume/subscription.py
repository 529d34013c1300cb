"""The subscription of a consumer and the state of each assigned partition. Pure.

Theory of operation. A partition has a position (the next offset to read, and the leader epoch of the record before it,
where that is known) and a stage, which says what is missing before it can be fetched:

    stage       missing                                  ends with
    COMMITTED   the group's committed offset             the coordinator's reply: READY or VALIDATION; RESET if the
                                                         group has committed nothing
    RESET       the offset of a timestamp, or the        the leader's reply: READY
                beginning or end offset
    VALIDATION  whether the leader's log still has the   the leader's reply with the end of the position's epoch: READY
                records before the position              if it is at or after the position; if it is before, the log was
                                                         truncated, and the position moves back to it
    READY       nothing                                  a new leader epoch (VALIDATION), or OFFSET_OUT_OF_RANGE (RESET)

`seek` leads from any stage to VALIDATION (if it names an epoch) or READY, `reset` from any stage to RESET.

A broker's reply may arrive after the user has sought elsewhere. So every partition has a generation, a number that is
never used twice: seeks, resets and new assignments take another one. The sender of a request notes the generation and
passes it on with the reply; a reply of an older generation changes nothing, and fetched data of an older generation is
dropped. Pausing takes no new generation: buffered data stays valid, and is returned after the partition is resumed.

`failure` is an error that the next poll must raise. No request is sent for the partition until then.

Called by `consumer` (the user's calls), `positions` and `fetcher` (replies), and by the group's membership.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum, auto
from itertools import count
from typing import NamedTuple

from rookery.base.errors import ApiError
from rookery.base.types import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
    TopicName,
    TopicPartition,
)
from rookery.client.consume.records import OffsetAndMetadata
from rookery.client.errors import ClientStateError


class Stage(Enum):
    COMMITTED = auto()
    RESET = auto()
    VALIDATION = auto()
    READY = auto()


class FetchPosition(NamedTuple):
    """The next offset to read. `leader_epoch` is the epoch of the record before `offset`; -1 if unknown."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class PartitionState:
    """The state of one assigned partition. `Subscription` changes it; `fetcher` and `positions` read it."""

    __slots__ = (
        "ahead",
        "failure",
        "generation",
        "high_watermark",
        "is_paused",
        "is_stopped",
        "last_stable_offset",
        "log_start_offset",
        "position",
        "preferred_replica",
        "preferred_until_s",
        "reset_to_ms",
        "retry_at_s",
        "stage",
        "validated_epoch",
    )

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.stage = Stage.COMMITTED
        self.position: FetchPosition | None = None
        # Where to fetch from while the data between `position` and here is being decoded.
        self.ahead: FetchPosition | None = None
        # The timestamp to look up in stage RESET, or ListOffsets' EARLIEST or LATEST; None: use auto.offset.reset.
        self.reset_to_ms: TimestampMs | None = None
        # The leader epoch that the position was last compared with; -1 if it was not compared yet.
        self.validated_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.is_paused = False
        # About to be revoked: polls return none of its records.
        self.is_stopped = False
        # The follower that the leader named to fetch from (KIP-392), and when that expires.
        self.preferred_replica: NodeId | None = None
        self.preferred_until_s = 0.0
        # The earliest time of the next attempt: the last one ended in a transient error.
        self.retry_at_s = 0.0
        self.failure: ApiError | None = None
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NO_OFFSET

    @property
    def fetch_position(self) -> FetchPosition | None:
        """The position at which the next fetch begins."""
        return self.ahead or self.position

    def is_fetchable(self, now_s: float) -> bool:
        return (
            self.stage is Stage.READY
            and not self.is_paused
            and not self.is_stopped
            and self.failure is None
            and self.retry_at_s <= now_s
        )


class Subscription:
    """`has_group`: new partitions begin at the group's committed offsets; without a group, at auto.offset.reset."""

    def __init__(self, *, has_group: bool) -> None:
        self._has_group = has_group
        self._generations = count(1)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._topics: frozenset[TopicName] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._matching: frozenset[TopicName] = frozenset()
        self._is_manual = False

    # Subscription and assignment, by the user or by the group.

    def subscribe(self, topics: Iterable[TopicName]) -> None:
        self._check_not_manual()
        self._topics, self._pattern, self._matching = frozenset(topics), None, frozenset()

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._check_not_manual()
        self._topics, self._pattern, self._matching = None, pattern, frozenset()

    def match(self, topics: Iterable[TopicName]) -> bool:
        """Match the pattern against all existing `topics`; return whether the set of matches changed."""
        if self._pattern is None:
            return False
        before, self._matching = self._matching, frozenset(filter(self._pattern.fullmatch, topics))
        return self._matching != before

    def choose_manually(self) -> None:
        """Switch to manual assignment. The caller continues with `replace_assignment`."""
        if self.is_subscribed:
            raise ClientStateError("this consumer subscribes to topics: unsubscribe() before assign()")
        self._is_manual = True

    def unsubscribe(self) -> None:
        self._topics, self._pattern, self._matching, self._is_manual = None, None, frozenset(), False
        self._states = {}

    @property
    def is_subscribed(self) -> bool:
        return self._topics is not None or self._pattern is not None

    @property
    def is_manual(self) -> bool:
        """Whether the user, not the group, assigns the partitions."""
        return self._is_manual

    @property
    def pattern(self) -> re.Pattern[str] | None:
        return self._pattern

    def subscribed_topics(self) -> frozenset[TopicName]:
        return self._matching if self._topics is None else self._topics

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Assign exactly `partitions`.

        Partitions that were assigned before keep their state. A new state would start again at the committed offset,
        and records that were returned but not committed yet would be read twice.
        """
        wanted = frozenset(partitions)
        kept = {tp: state for tp, state in self._states.items() if tp in wanted}
        for state in kept.values():
            state.is_stopped = False
        self._states = kept | {tp: self._new_state() for tp in partitions if tp not in kept}

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._states:
                self._states[tp].is_stopped = True

    def _check_not_manual(self) -> None:
        if self._is_manual:
            raise ClientStateError("this consumer has assigned partitions: unsubscribe() before subscribe()")

    def _new_state(self) -> PartitionState:
        state = PartitionState(next(self._generations))
        if not self._has_group:
            state.stage = Stage.RESET
        return state

    # Queries.

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._states)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def state(self, tp: TopicPartition) -> PartitionState:
        state = self._states.get(tp)
        if state is None:
            raise ClientStateError(f"partition {tp} is not assigned to this consumer")
        return state

    def find(self, tp: TopicPartition, generation: int) -> PartitionState | None:
        """Return the state that a reply of `generation` is for; None if the reply is stale.

        Without this check, the reply to a request that was sent before a seek would move the position back, or the
        consumer would return records from the old position.
        """
        state = self._states.get(tp)
        return state if state is not None and state.generation == generation else None

    def fetchable(self, now_s: float) -> list[tuple[TopicPartition, PartitionState]]:
        return [item for item in self._states.items() if item[1].is_fetchable(now_s)]

    def in_stage(self, stage: Stage, now_s: float) -> dict[TopicPartition, PartitionState]:
        """Return the partitions in `stage` for which a request can be sent now."""
        return {
            tp: state
            for tp, state in self._states.items()
            if state.stage is stage and state.failure is None and state.retry_at_s <= now_s
        }

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, state in self._states.items() if state.is_paused)

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions after the records that polls have returned.

        `ahead` does not count: it lies after records that are still being decoded, and the group would skip them if
        this consumer committed it and stopped. Partitions whose position is not known yet are left out.
        """
        return {
            tp: OffsetAndMetadata(state.position.offset, "", state.position.leader_epoch)
            for tp, state in self._states.items()
            if state.position is not None and state.stage in (Stage.READY, Stage.VALIDATION)
        }

    def lag(self, tp: TopicPartition, *, read_committed: bool) -> int | None:
        """Return the number of offsets between the position and the end; None before the first fetch response."""
        state = self.state(tp)
        end = state.last_stable_offset if read_committed else state.high_watermark
        return None if end == NO_OFFSET or state.position is None else max(0, end - state.position.offset)

    def next_retry_s(self, now_s: float) -> float | None:
        """Return the earliest time at which a partition may be retried; None if no partition waits for a retry."""
        return min((state.retry_at_s for state in self._states.values() if state.retry_at_s > now_s), default=None)

    # The user's calls.

    def seek(self, tp: TopicPartition, position: FetchPosition) -> None:
        if position.offset < 0:
            raise ValueError(f"there is no offset {position.offset}: use seek_to_beginning or seek_to_end")
        state = self.state(tp)
        self._begin_generation(state)
        self._set_position(state, position)

    def reset(self, tp: TopicPartition, to_ms: TimestampMs | None) -> None:
        """Look the position up by timestamp, EARLIEST or LATEST (`to_ms`), or by auto.offset.reset (None)."""
        state = self.state(tp)
        self._begin_generation(state)
        self._await_reset(state, to_ms)

    def pause(self, tp: TopicPartition) -> None:
        self.state(tp).is_paused = True

    def resume(self, tp: TopicPartition) -> None:
        self.state(tp).is_paused = False

    def look_ahead(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        """Fetch from `position` on, while the records before it are being decoded."""
        state = self.find(tp, generation)
        if state is not None:
            state.ahead = position

    def stop_short(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        """Decoding ended at `position`, not where the fetch ahead began: drop the data that was fetched ahead.

        With the same generation that data would be returned next, and the records between would be skipped.
        """
        state = self.find(tp, generation)
        if state is not None:
            self._begin_generation(state)
            state.position = position

    def _begin_generation(self, state: PartitionState) -> None:
        """Make all requests in flight and all buffered data of the partition stale."""
        state.generation = next(self._generations)
        state.failure, state.retry_at_s = None, 0.0
        state.preferred_replica = state.ahead = None

    def _set_position(self, state: PartitionState, position: FetchPosition) -> None:
        state.position = position
        state.reset_to_ms = None
        state.validated_epoch = NO_LEADER_EPOCH
        state.stage = Stage.READY if position.leader_epoch == NO_LEADER_EPOCH else Stage.VALIDATION

    def _await_reset(self, state: PartitionState, to_ms: TimestampMs | None) -> None:
        state.position, state.reset_to_ms, state.stage = None, to_ms, Stage.RESET

    # Replies of brokers.

    def on_committed(self, tp: TopicPartition, generation: int, found: OffsetAndMetadata | None) -> None:
        state = self.find(tp, generation)
        if state is None or state.stage is not Stage.COMMITTED:
            return
        if found is None:
            self._await_reset(state, None)
        else:
            self._set_position(state, FetchPosition(found.offset, found.leader_epoch))

    def on_reset(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        state = self.find(tp, generation)
        if state is None or state.stage is not Stage.RESET:
            return
        self._begin_generation(state)
        # The leader itself returned this offset: there is nothing to validate.
        state.position, state.stage, state.reset_to_ms = position, Stage.READY, None
        state.validated_epoch = NO_LEADER_EPOCH

    def on_validated(self, tp: TopicPartition, generation: int, epoch: LeaderEpoch) -> None:
        """The leader of `epoch` has the records before the position: the partition can be fetched."""
        state = self.find(tp, generation)
        if state is not None and state.stage is Stage.VALIDATION:
            state.stage, state.validated_epoch = Stage.READY, epoch

    def on_leader_epoch(self, tp: TopicPartition, epoch: LeaderEpoch) -> None:
        """Compare the position with the leader epoch from new metadata (KIP-320).

        A new leader may lack records that were read from the old one, and may have written others at their offsets.
        Without the validation the consumer would read on at its position, and skip those.
        """
        state = self._states.get(tp)
        if state is None or state.position is None or epoch <= state.validated_epoch:
            return
        if state.stage is Stage.READY and state.position.leader_epoch not in (NO_LEADER_EPOCH, epoch):
            state.stage = Stage.VALIDATION
        elif state.stage is Stage.READY:
            state.validated_epoch = epoch
        if state.validated_epoch != NO_LEADER_EPOCH:
            # The old leader chose this replica; the new one chooses again.
            state.preferred_replica = None

    def on_out_of_range(self, tp: TopicPartition, generation: int, *, failure: Callable[[], ApiError] | None) -> None:
        """The position does not exist in the log. Reset it; with auto.offset.reset=none (`failure`), fail instead."""
        state = self.find(tp, generation)
        if state is None or state.stage not in (Stage.READY, Stage.VALIDATION):
            return
        if failure is not None:
            state.failure = failure()
        else:
            self._begin_generation(state)
            self._await_reset(state, None)

    def on_fetched(
        self, tp: TopicPartition, generation: int, *, high_watermark: Offset, last_stable: Offset, log_start: Offset
    ) -> None:
        state = self.find(tp, generation)
        if state is None:
            return
        state.high_watermark, state.last_stable_offset, state.log_start_offset = high_watermark, last_stable, log_start

    def move_to_end(self, tp: TopicPartition) -> None:
        """Put a partition last in the next request.

        Brokers fill a response in the order of the request: a busy partition at the front would starve the others.
        """
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state

    def on_consumed(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        """Move the position: the records before `position` were returned to the user."""
        state = self.find(tp, generation)
        if state is not None:
            state.position, state.ahead = position, None

    def prefer_replica(self, tp: TopicPartition, generation: int, node: NodeId | None, until_s: float) -> None:
        state = self.find(tp, generation)
        if state is not None:
            state.preferred_replica, state.preferred_until_s = node, until_s

    def fail(self, tp: TopicPartition, generation: int, failure: ApiError) -> None:
        state = self.find(tp, generation)
        if state is not None and state.failure is None:
            state.failure = failure

    def defer(self, tp: TopicPartition, generation: int, until_s: float) -> None:
        """Send no request for the partition before `until_s`."""
        state = self.find(tp, generation)
        if state is not None:
            state.retry_at_s = until_s

    def take_failure(self) -> ApiError | None:
        """Return the next error that a poll must raise, once; afterwards the partition is retried."""
        failures = (state.failure for state in self._states.values() if not state.is_paused and not state.is_stopped)
        failure = next((failure for failure in failures if failure is not None), None)
        if failure is not None:
            # One error may stand for several partitions (`NoOffsetError`): it is raised once for all of them.
            for state in self._states.values():
                state.failure = None if state.failure is failure else state.failure
        return failure
