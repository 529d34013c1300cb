"""What a follower does next with each partition that it copies from one leader. Pure.

`fetcher` sends the requests and passes the results here; `follower_log` changes the logs. The position of a partition
is not stored: it is the end of its log, so that the two cannot disagree.

    state        the partition                                              ends
    ready        is in the next fetch                                       -
    waiting      had an error that may go away                              after a back-off
    parked       cannot be fetched in this leader epoch                     with the next `start`: new metadata

Truncation (KIP-595): a fetch names the epoch of the last record that the follower has. If the leader's log does not
have that epoch up to the fetch offset, it answers with the newest epoch that it has before, and where that epoch ends.
The follower truncates to the smaller of the two logs' ends of that epoch and fetches again; after several elections
without a complete copy in between, it may take several rounds until both logs agree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_OFFSET, LeaderEpoch, Offset, TopicId, TopicPartition
from rookery.protocol.fetch import FetchPartition
from rookery.protocol.fetch_session import SessionRow

# The first wait after an error; it doubles up to `replica.fetch.backoff.ms`. An election reaches the brokers within a
# few milliseconds of each other, so that the first error of a new epoch is mostly gone by then.
FIRST_BACKOFF_S = 0.02


class Position(NamedTuple):
    """Where a follower's log ends, and what the leader should know of it."""

    end_offset: Offset
    # The epoch of the last record, -1 if the log is empty.
    last_epoch: LeaderEpoch
    start_offset: Offset
    high_watermark: Offset


class Reaction(Enum):
    """What to do after an error code for one partition."""

    RETRY = auto()
    PARK = auto()
    FIND_OFFSETS = auto()


class _Followed:
    """One partition in one leader epoch."""

    __slots__ = ("failures", "is_parked", "leader_epoch", "ready_s", "topic_id")

    def __init__(self, topic_id: TopicId, leader_epoch: LeaderEpoch) -> None:
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.failures = 0
        self.ready_s = -inf
        self.is_parked = False


class Following:
    """The partitions that one fetcher copies from one leader."""

    def __init__(self, *, backoff_s: float) -> None:
        self.backoff_s = backoff_s
        self._partitions: dict[TopicPartition, _Followed] = {}
        # The rows of the next fetch, and the partitions whose rows are to be computed: with thousands of partitions,
        # most of them idle, a fetch must not cost time for each.
        self._rows: dict[TopicPartition, SessionRow] = {}
        self._unsettled: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def start(self, partition: TopicPartition, topic_id: TopicId, leader_epoch: LeaderEpoch) -> None:
        """Follow a partition in this leader epoch. Errors of earlier epochs are forgotten."""
        self._partitions[partition] = _Followed(topic_id, leader_epoch)
        self._unsettled[partition] = None

    def stop(self, partition: TopicPartition) -> None:
        self._partitions.pop(partition, None)
        self._unsettled.pop(partition, None)
        self._rows.pop(partition, None)

    def note_change(self, partition: TopicPartition) -> None:
        """Compute the partition's row again: its log has changed, or cannot be written any more."""
        if partition in self._partitions:
            self._unsettled[partition] = None

    @property
    def unsettled(self) -> Sequence[TopicPartition]:
        """The partitions whose rows are to be computed: new and changed ones, and those that wait."""
        return list(self._unsettled)

    def settle(
        self,
        partitions: Iterable[TopicPartition],
        now_s: float,
        max_bytes: int,
        position_of: Callable[[TopicPartition], Position | None],
    ) -> None:
        """Compute the rows of unsettled partitions. `position_of` returns None if a log cannot be written now."""
        for partition in partitions:
            followed = self._partitions.get(partition)
            if followed is None:
                # It was stopped after the caller had read `unsettled`.
                continue
            is_ready = not followed.is_parked and followed.ready_s <= now_s
            position = position_of(partition) if is_ready else None
            if position is not None:
                self._rows[partition] = _row(partition, followed, position, max_bytes)
            else:
                self._rows.pop(partition, None)
            if position is not None or followed.is_parked:
                self._unsettled.pop(partition, None)

    def rows(self) -> dict[TopicPartition, SessionRow]:
        """Return the next fetch: all partitions that are settled and can be fetched."""
        return dict(self._rows)

    def wait_s(self, now_s: float) -> float:
        """Return the time until the first partition that waits is ready again; infinity if none waits."""
        waiting = (self._partitions[partition].ready_s for partition in self._unsettled)
        return min((ready_s for ready_s in waiting if ready_s > now_s), default=inf) - now_s

    def matches(self, partition: TopicPartition, asked: SessionRow, position: Position) -> bool:
        """Return whether the response to `asked` still counts for a log at `position`.

        Without the check of the leader epoch, the records of a deposed leader would be appended to a log that already
        follows the next one. Without that of the last record's epoch, a late answer would truncate other records than
        those that it was about.
        """
        followed = self._partitions.get(partition)
        return (
            followed is not None
            and not followed.is_parked
            and followed.topic_id == asked.topic_id
            and followed.leader_epoch == asked.row.current_leader_epoch
            and position.end_offset == asked.row.fetch_offset
            and position.last_epoch == asked.row.last_fetched_epoch
        )

    def follows(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Return whether a partition is still copied in this leader epoch."""
        followed = self._partitions.get(partition)
        return followed is not None and not followed.is_parked and followed.leader_epoch == leader_epoch

    def succeeded(self, partition: TopicPartition) -> None:
        followed = self._partitions.get(partition)
        if followed is not None:
            followed.failures = 0

    def back_off(self, partition: TopicPartition, now_s: float) -> None:
        """Leave a partition out for a while, longer after each error in a row."""
        followed = self._partitions.get(partition)
        if followed is not None:
            followed.ready_s = now_s + backoff_s(followed.failures, self.backoff_s)
            followed.failures += 1
            self._unsettled[partition] = None

    def park(self, partition: TopicPartition) -> None:
        """Leave a partition out until the metadata has a new leader epoch for it."""
        followed = self._partitions.get(partition)
        if followed is not None:
            followed.is_parked = True
            self._unsettled[partition] = None


def _row(partition: TopicPartition, followed: _Followed, position: Position, max_bytes: int) -> SessionRow:
    return SessionRow(
        followed.topic_id,
        FetchPartition(
            partition.partition,
            position.end_offset,
            max_bytes,
            followed.leader_epoch,
            position.last_epoch,
            position.start_offset,
            high_watermark=position.high_watermark,
        ),
    )


def backoff_s(failures: int, limit_s: float) -> float:
    """Return the wait after `failures` errors in a row."""
    return min(limit_s, FIRST_BACKOFF_S * (1 << min(failures, 16)))


def react(code: ErrorCode) -> Reaction:
    """Return what to do with a partition that had this error code."""
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Reaction.FIND_OFFSETS
    if code is ErrorCode.FENCED_LEADER_EPOCH:
        # The leader is in a newer epoch, and so will be the metadata of this node. The fetch cannot succeed before.
        return Reaction.PARK
    return Reaction.RETRY


def truncation_offset(
    leader_epoch: LeaderEpoch, leader_end: Offset, own_end_of_epoch: tuple[LeaderEpoch, Offset], end_offset: Offset
) -> Offset:
    """Return where to truncate a log that diverges from its leader's.

    The leader has answered `leader_epoch`, which ends at `leader_end` in its log; `own_end_of_epoch` is the newest
    epoch up to it that this log has, and where that one ends here.
    """
    own_epoch, own_end = own_end_of_epoch
    if own_end == NO_OFFSET:
        return min(leader_end, end_offset)
    if own_epoch != leader_epoch:
        # This log does not have the leader's epoch: keep only what is older, and compare again.
        return min(own_end, end_offset)
    return min(own_end, leader_end, end_offset)


class NewStart(NamedTuple):
    """What to do after OFFSET_OUT_OF_RANGE: truncate to `offset`, or remove all records and begin there."""

    offset: Offset
    is_restart: bool


def place_after_out_of_range(leader_start: Offset, leader_end: Offset, end_offset: Offset) -> NewStart | None:
    """Return how to bring a log that ends at `end_offset` into the range of its leader's; None if it is in range."""
    if leader_end < end_offset:
        return NewStart(leader_end, is_restart=False)
    if leader_start > end_offset:
        return NewStart(leader_start, is_restart=True)
    return None
