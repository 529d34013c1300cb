"""What a consumer reads, and how far it is: the state of each assigned partition. Pure.

Theory of operation. A partition has a position (the next offset to read, and the leader epoch of the record before it,
where that is known) and a stage, which says what is missing before it can be fetched:

    stage       missing                                  ends when
    COMMITTED   what the group committed                 the coordinator tells (READY, VALIDATION; RESET: nothing)
    RESET       the offset of a time, or of an end       the leader tells (READY)
    VALIDATION  whether the leader has our records       its epoch's end is told: at or behind us is a truncation, and
                                                         the position goes back there; else READY
    READY       nothing                                  the leader's epoch rises (VALIDATION), or the position does not
                                                         exist (RESET)

`seek` leads from any stage to VALIDATION (if it names an epoch) or READY, `reset` from any to RESET.

What is asked of brokers takes a while, and the answer may come after the user has moved on. So every partition has a
generation, a number that is never used twice: seeks, resets and new assignments take another one. Whoever asks notes
the generation and gives it back with the answer; an answer of an older generation changes nothing, and fetched data of
an older generation is dropped. Pausing takes no new generation: what is buffered stays good, and is handed out when the
partition is resumed.

`failure` is an error that the next poll must raise. Nothing more is asked for the partition until then.

Called by `consumer` (the user's wishes), `positions` and `fetcher` (answers), and by the group's membership.
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
    """`leader_epoch` is that of the record before `offset`; -1 if unknown."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class PartitionState:
    """Of one assigned partition. Only `Subscription` writes; the shells read."""

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
        # Where to fetch from while the data between the position and here is being decoded.
        self.ahead: FetchPosition | None = None
        # The time to look for in stage RESET, or ListOffsets' numbers for the ends; None: as auto.offset.reset says.
        self.reset_to_ms: TimestampMs | None = None
        # The leader epoch that the position is good for; -1 if none was compared.
        self.validated_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.is_paused = False
        # About to be revoked.
        self.is_stopped = False
        # A follower that the leader sends us to, until then.
        self.preferred_replica: NodeId | None = None
        self.preferred_until_s = 0.0
        # Not before this time: the last attempt ended in a transient error.
        self.retry_at_s = 0.0
        self.failure: ApiError | None = None
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NO_OFFSET

    @property
    def fetch_position(self) -> FetchPosition | None:
        """Where the next fetch begins."""
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
    """`has_group`: positions of new partitions begin at what the group committed."""

    def __init__(self, *, has_group: bool) -> None:
        self._has_group = has_group
        self._generations = count(1)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._topics: frozenset[TopicName] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._matching: frozenset[TopicName] = frozenset()
        self._is_manual = False

    # What is read: chosen by the user, or by the group.

    def subscribe(self, topics: Iterable[TopicName]) -> None:
        self._check_not_manual()
        self._topics, self._pattern, self._matching = frozenset(topics), None, frozenset()

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._check_not_manual()
        self._topics, self._pattern, self._matching = None, pattern, frozenset()

    def match(self, topics: Iterable[TopicName]) -> bool:
        """These topics exist; whether the pattern finds others among them than before."""
        if self._pattern is None:
            return False
        before, self._matching = self._matching, frozenset(filter(self._pattern.fullmatch, topics))
        return self._matching != before

    def choose_manually(self) -> None:
        """The user assigns: `replace_assignment` follows."""
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
        """The user has assigned partitions."""
        return self._is_manual

    @property
    def pattern(self) -> re.Pattern[str] | None:
        return self._pattern

    def subscribed_topics(self) -> frozenset[TopicName]:
        return self._matching if self._topics is None else self._topics

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Kept partitions keep their positions."""
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

    # Looking.

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
        """The state that an answer is for; None if it comes too late."""
        state = self._states.get(tp)
        return state if state is not None and state.generation == generation else None

    def fetchable(self, now_s: float) -> list[tuple[TopicPartition, PartitionState]]:
        return [item for item in self._states.items() if item[1].is_fetchable(now_s)]

    def in_stage(self, stage: Stage, now_s: float) -> dict[TopicPartition, PartitionState]:
        """Partitions to ask about now."""
        return {
            tp: state
            for tp, state in self._states.items()
            if state.stage is stage and state.failure is None and state.retry_at_s <= now_s
        }

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, state in self._states.items() if state.is_paused)

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            tp: OffsetAndMetadata(state.position.offset, "", state.position.leader_epoch)
            for tp, state in self._states.items()
            if state.position is not None and state.stage in (Stage.READY, Stage.VALIDATION)
        }

    def lag(self, tp: TopicPartition, *, read_committed: bool) -> int | None:
        """How many offsets lie before us; None until a fetch has told."""
        state = self.state(tp)
        end = state.last_stable_offset if read_committed else state.high_watermark
        return None if end == NO_OFFSET or state.position is None else max(0, end - state.position.offset)

    def next_retry_s(self, now_s: float) -> float | None:
        """When the next partition may be asked about again."""
        return min((state.retry_at_s for state in self._states.values() if state.retry_at_s > now_s), default=None)

    # Wishes of the user.

    def seek(self, tp: TopicPartition, position: FetchPosition) -> None:
        if position.offset < 0:
            raise ValueError(f"there is no offset {position.offset}: use seek_to_beginning or seek_to_end")
        state = self.state(tp)
        self._move(state)
        self._stand_at(state, position)

    def reset(self, tp: TopicPartition, to_ms: TimestampMs | None) -> None:
        """Look for an offset by its time, or by auto.offset.reset (None)."""
        state = self.state(tp)
        self._move(state)
        self._await_reset(state, to_ms)

    def pause(self, tp: TopicPartition) -> None:
        self.state(tp).is_paused = True

    def resume(self, tp: TopicPartition) -> None:
        self.state(tp).is_paused = False

    def look_ahead(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        """What lies before `position` is in good hands: fetch what comes behind it."""
        state = self.find(tp, generation)
        if state is not None:
            state.ahead = position

    def stop_short(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        """Decoding ended here, before the place from which more was fetched: that is to be dropped."""
        state = self.find(tp, generation)
        if state is not None:
            self._move(state)
            state.position = position

    def _move(self, state: PartitionState) -> None:
        state.generation = next(self._generations)
        state.failure, state.retry_at_s = None, 0.0
        state.preferred_replica = state.ahead = None

    def _stand_at(self, state: PartitionState, position: FetchPosition) -> None:
        state.position = position
        state.reset_to_ms = None
        state.validated_epoch = NO_LEADER_EPOCH
        state.stage = Stage.READY if position.leader_epoch == NO_LEADER_EPOCH else Stage.VALIDATION

    def _await_reset(self, state: PartitionState, to_ms: TimestampMs | None) -> None:
        state.position, state.reset_to_ms, state.stage = None, to_ms, Stage.RESET

    # Answers of brokers.

    def on_committed(self, tp: TopicPartition, generation: int, found: OffsetAndMetadata | None) -> None:
        state = self.find(tp, generation)
        if state is None or state.stage is not Stage.COMMITTED:
            return
        if found is None:
            self._await_reset(state, None)
        else:
            self._stand_at(state, FetchPosition(found.offset, found.leader_epoch))

    def on_reset(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        state = self.find(tp, generation)
        if state is None or state.stage is not Stage.RESET:
            return
        self._move(state)
        # The leader itself has just named the offset: nothing to validate.
        state.position, state.stage, state.reset_to_ms = position, Stage.READY, None
        state.validated_epoch = NO_LEADER_EPOCH

    def on_validated(self, tp: TopicPartition, generation: int, epoch: LeaderEpoch) -> None:
        """The leader of this epoch has the records that we read."""
        state = self.find(tp, generation)
        if state is not None and state.stage is Stage.VALIDATION:
            state.stage, state.validated_epoch = Stage.READY, epoch

    def on_leader_epoch(self, tp: TopicPartition, epoch: LeaderEpoch) -> None:
        """Metadata tells a leader's epoch. A new leader may have lost what we read from the old one (KIP-320)."""
        state = self._states.get(tp)
        if state is None or state.position is None or epoch <= state.validated_epoch:
            return
        if state.stage is Stage.READY and state.position.leader_epoch not in (NO_LEADER_EPOCH, epoch):
            state.stage = Stage.VALIDATION
        elif state.stage is Stage.READY:
            state.validated_epoch = epoch
        if state.validated_epoch != NO_LEADER_EPOCH:
            state.preferred_replica = None

    def on_out_of_range(self, tp: TopicPartition, generation: int, *, failure: Callable[[], ApiError] | None) -> None:
        """The position does not exist: reset it, or fail where that is not wanted."""
        state = self.find(tp, generation)
        if state is None or state.stage not in (Stage.READY, Stage.VALIDATION):
            return
        if failure is not None:
            state.failure = failure()
        else:
            self._move(state)
            self._await_reset(state, None)

    def on_fetched(
        self, tp: TopicPartition, generation: int, *, high_watermark: Offset, last_stable: Offset, log_start: Offset
    ) -> None:
        state = self.find(tp, generation)
        if state is None:
            return
        state.high_watermark, state.last_stable_offset, state.log_start_offset = high_watermark, last_stable, log_start

    def move_to_end(self, tp: TopicPartition) -> None:
        """Others come first in the next request: brokers serve the first rows first."""
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state

    def on_consumed(self, tp: TopicPartition, generation: int, position: FetchPosition) -> None:
        """Records up to here were handed out."""
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
        """Try again then, not before."""
        state = self.find(tp, generation)
        if state is not None:
            state.retry_at_s = until_s

    def take_failure(self) -> ApiError | None:
        """The next error that a poll must raise; it is raised once, and then the partition is tried again."""
        failures = (state.failure for state in self._states.values() if not state.is_paused and not state.is_stopped)
        failure = next((failure for failure in failures if failure is not None), None)
        if failure is not None:
            # One error may speak for several partitions.
            for state in self._states.values():
                state.failure = None if state.failure is failure else state.failure
        return failure
