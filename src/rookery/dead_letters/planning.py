"""What a redrive does with each dead letter, and why it leaves one out. Pure.

Theory of operation. A redrive walks through a dead-letter topic once. It sends what is selected, has an origin (or a
topic was named), was tried less often than allowed, and was not sent before. The same origin is sent once, however many
dead letters it has: `Planner` knows those that earlier runs sent (`recall`) and those that this one sends. The count of
attempts goes along as a header, and comes back with the record if it fails again: that ends the loop of a record which
never succeeds.

Key, value, own headers and time of the record are untouched. It goes back to the partition it came from; to its key's
partition where that does not exist, or in a topic that was named.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from rookery.base.types import PartitionIndex, TimestampMs, TopicName
from rookery.dead_letters.letters import DeadLetter, Selection
from rookery.dead_letters.standard import ATTEMPT, FIRST_ATTEMPT, Identity, original_headers
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

    @property
    def is_over(self) -> bool:
        """There is nothing left to do: a later redrive need not look at it again."""
        return self in (Skip.DONE_BEFORE, Skip.DUPLICATE)


class Send(NamedTuple):
    """`partition` None: the key decides."""

    topic: TopicName
    partition: PartitionIndex | None
    headers: Headers
    timestamp_ms: TimestampMs


Step: TypeAlias = Send | Skip


class Wish(NamedTuple):
    """What a redrive was asked for. `to` None: where each came from."""

    topic: TopicName
    selection: Selection
    to: TopicName | None = None
    max_attempts: int = MAX_ATTEMPTS

    def target(self, letter: DeadLetter) -> TopicName | None:
        if self.to is not None or letter.failure is None:
            return self.to
        return letter.failure.origin.topic


class Planner:
    """Decides one dead letter after the other."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._sent: set[Identity] = set()

    def recall(self, letter: DeadLetter) -> None:
        """An earlier run sent it."""
        self._sent.add(letter.identity)

    def decide(self, letter: DeadLetter, partition_counts: Mapping[TopicName, int]) -> Step:
        """`partition_counts` has the target of the dead letter, if that exists. What is sent, is remembered."""
        if letter.identity in self._sent:
            return Skip.DUPLICATE
        if not self._wish.selection.takes(letter):
            return Skip.NOT_SELECTED
        target = self._wish.target(letter)
        attempt = FIRST_ATTEMPT if letter.failure is None else letter.failure.attempt
        if target is None:
            return Skip.NO_ORIGIN
        if attempt >= self._wish.max_attempts:
            return Skip.TOO_OFTEN
        if target == self._wish.topic:
            return Skip.INTO_ITSELF
        if target not in partition_counts:
            return Skip.NO_TOPIC
        self._sent.add(letter.identity)
        return self._send(letter, target, partition_counts[target], attempt + 1)

    def _send(self, letter: DeadLetter, target: TopicName, partition_count: int, attempt: int) -> Send:
        record, failure = letter.record, letter.failure
        headers = (*original_headers(record.headers), (ATTEMPT, str(attempt).encode()))
        if failure is None:
            return Send(target, None, headers, record.timestamp_ms)
        origin = failure.origin
        returns = target == origin.topic and origin.partition < partition_count
        timestamp_ms = record.timestamp_ms if origin.timestamp_ms is None else origin.timestamp_ms
        return Send(target, origin.partition if returns else None, headers, timestamp_ms)
