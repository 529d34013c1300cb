"""What a redrive does with each dead letter, and why it leaves one out. Pure.

Theory of operation. A redrive walks through a dead-letter topic once. It sends what is selected, has an origin (or a
topic was named), was tried less often than allowed, and was not sent before. The same origin is sent once, however many
dead letters it has: `Planner` knows those that earlier runs sent (`recall`) and those that this one sends. The count of
attempts goes along as a header, and comes back with the record if it fails again: that ends the loop of a record which
never succeeds.

What is older than its topic keeps would be deleted there before anybody reads it, and be remembered as sent: it stays,
unless the current time is asked for.

Key, value, own headers and time of the record are untouched (the time unless the current one is asked for). It goes
back to the partition it came from; to its key's partition where that does not exist, or in a topic that was named.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from rookery.base.types import PartitionIndex, TimestampMs, TopicName
from rookery.dead_letters.letters import DeadLetter, Identity, Selection
from rookery.dead_letters.standard import ATTEMPT, FIRST_ATTEMPT, original_headers
from rookery.records.record import Headers

MAX_ATTEMPTS: Final = 3


class Skip(StrEnum):
    """Why a dead letter is not sent."""

    NOT_SELECTED = "not selected"
    DONE_BEFORE = "sent again before"
    DUPLICATE = "a second dead letter of the same record"
    NO_ORIGIN = "no origin in its headers: name a topic with --to"
    TOO_OFTEN = "tried as often as --max-attempts allows"
    INTO_ITSELF = "its origin is this dead-letter topic: name another with --to"
    NO_TOPIC = "its topic does not exist: create it, or name another with --to"
    TOO_OLD = "older than the topic keeps: send with the current time by --now, or raise its retention.ms"

    @property
    def is_over(self) -> bool:
        """There is nothing left to do: a later redrive need not look at it again."""
        return self in (Skip.DONE_BEFORE, Skip.DUPLICATE)

    @property
    def is_failure(self) -> bool:
        """It was asked for, and could not be done."""
        return self in (Skip.NO_ORIGIN, Skip.INTO_ITSELF, Skip.NO_TOPIC, Skip.TOO_OLD)


class Send(NamedTuple):
    """`partition` None: the key decides."""

    topic: TopicName
    partition: PartitionIndex | None
    headers: Headers
    timestamp_ms: TimestampMs


Step: TypeAlias = Send | Skip


class Target(NamedTuple):
    """A topic that records are sent to. `keeps_ms` None: it does not delete by the records' time."""

    partition_count: int
    keeps_ms: int | None = None


class Wish(NamedTuple):
    """What a redrive was asked for. `to` None: where each came from. `now`: with the current time, not the record's."""

    topic: TopicName
    selection: Selection
    to: TopicName | None = None
    max_attempts: int = MAX_ATTEMPTS
    now: bool = False

    def target(self, letter: DeadLetter) -> TopicName | None:
        if self.to is not None or letter.origin is None:
            return self.to
        return letter.origin.topic


class Planner:
    """Decides one dead letter after the other."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._sent: set[Identity] = set()

    def recall(self, letter: DeadLetter) -> None:
        """An earlier run sent it."""
        self._sent.add(letter.identity)

    def decide(self, letter: DeadLetter, targets: Mapping[TopicName, Target], now_ms: TimestampMs) -> Step:
        """`targets` has that of the dead letter, if it exists. What is sent, is remembered."""
        if letter.identity in self._sent:
            return Skip.DUPLICATE
        if not self._wish.selection.takes(letter):
            return Skip.NOT_SELECTED
        topic = self._wish.target(letter)
        attempt = FIRST_ATTEMPT if letter.failure is None else letter.failure.attempt
        if topic is None:
            return Skip.NO_ORIGIN
        if attempt >= self._wish.max_attempts:
            return Skip.TOO_OFTEN
        if topic == self._wish.topic:
            return Skip.INTO_ITSELF
        if topic not in targets:
            return Skip.NO_TOPIC
        target, timestamp_ms = targets[topic], now_ms if self._wish.now else _time_of(letter)
        if target.keeps_ms is not None and timestamp_ms < now_ms - target.keeps_ms:
            return Skip.TOO_OLD
        self._sent.add(letter.identity)
        headers = (*original_headers(letter.record.headers), (ATTEMPT, str(attempt + 1).encode()))
        return Send(topic, _partition_of(letter, topic, target), headers, timestamp_ms)


def _time_of(letter: DeadLetter) -> TimestampMs:
    """When the record was written, where that is known."""
    known = None if letter.origin is None else letter.origin.timestamp_ms
    return letter.record.timestamp_ms if known is None else known


def _partition_of(letter: DeadLetter, topic: TopicName, target: Target) -> PartitionIndex | None:
    origin = letter.origin
    if origin is None:
        return None
    return origin.partition if origin.topic == topic and origin.partition < target.partition_count else None
