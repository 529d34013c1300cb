"""Decides for each dead letter whether a redrive sends it, and if not, why it is skipped. Pure.

Theory of operation. A redrive reads a dead-letter topic once. It sends a dead letter that is selected, has an origin
(or the request names a target topic), was tried less than `max_attempts` times, and was not sent before. Each origin is
sent once, no matter how many dead letters it has: `Planner` holds the identities that earlier runs sent (`mark_sent`)
and those that this run sends. The attempt count is sent along as a header and returns with the record if it fails
again. Without it, a record that never succeeds would be redriven forever.

A record older than the retention of its target topic is skipped, unless the request says to send with the current time.
If it were sent, the topic would delete it before a consumer reads it, while the progress says that it was redriven.

Key, value, own headers and timestamp of the record stay unchanged (the timestamp unless the request says to send with
the current time). A record goes back to the partition it came from. Its key chooses the partition if that one does not
exist, or if the request names another topic.
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
    """The reasons for which a dead letter is not sent."""

    NOT_SELECTED = "not selected"
    DONE_BEFORE = "sent again before"
    DUPLICATE = "a second dead letter of the same record"
    NO_ORIGIN = "no origin in its headers: name a topic with --to"
    TOO_OFTEN = "tried as often as --max-attempts allows"
    INTO_ITSELF = "its origin is this dead-letter topic: name another topic with --to"
    NO_TOPIC = "its topic does not exist: create it, or name another topic with --to"
    TOO_OLD = "older than the retention of its topic: send with the current time by --now, or raise its retention.ms"

    @property
    def is_settled(self) -> bool:
        """Whether the record was sent already, so that later redrives do not have to look at this letter again."""
        return self in (Skip.DONE_BEFORE, Skip.DUPLICATE)

    @property
    def is_failure(self) -> bool:
        """Whether the letter was selected but could not be sent."""
        return self in (Skip.NO_ORIGIN, Skip.INTO_ITSELF, Skip.NO_TOPIC, Skip.TOO_OLD)


class Send(NamedTuple):
    """A record to send. If `partition` is None, the key chooses it."""

    topic: TopicName
    partition: PartitionIndex | None
    headers: Headers
    timestamp_ms: TimestampMs


Step: TypeAlias = Send | Skip


class Target(NamedTuple):
    """A topic that records are sent to. `retention_ms` is None if it does not delete records by their timestamps."""

    partition_count: int
    retention_ms: int | None = None


class RedriveRequest(NamedTuple):
    """The parameters of a redrive.

    `to`: the target topic; None sends each record to the topic it came from.
    `now`: send with the current time instead of the record's timestamp.
    """

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
    """Decides for one dead letter after the other, and remembers which records were sent."""

    def __init__(self, request: RedriveRequest) -> None:
        self._request = request
        self._sent: set[Identity] = set()

    def mark_sent(self, letter: DeadLetter) -> None:
        """Record that an earlier run sent this letter."""
        self._sent.add(letter.identity)

    def decide(self, letter: DeadLetter, targets: Mapping[TopicName, Target], now_ms: TimestampMs) -> Step:
        """Return what to send for `letter`, or the reason to skip it.

        `targets` must hold the target topic of the letter, unless that topic does not exist.
        A letter for which this returns a `Send` counts as sent from then on.
        """
        if letter.identity in self._sent:
            return Skip.DUPLICATE
        if not self._request.selection.matches(letter):
            return Skip.NOT_SELECTED
        topic = self._request.target(letter)
        attempt = FIRST_ATTEMPT if letter.failure is None else letter.failure.attempt
        if topic is None:
            return Skip.NO_ORIGIN
        if attempt >= self._request.max_attempts:
            return Skip.TOO_OFTEN
        if topic == self._request.topic:
            return Skip.INTO_ITSELF
        if topic not in targets:
            return Skip.NO_TOPIC
        target, timestamp_ms = targets[topic], now_ms if self._request.now else _timestamp_of(letter)
        if target.retention_ms is not None and timestamp_ms < now_ms - target.retention_ms:
            return Skip.TOO_OLD
        self._sent.add(letter.identity)
        headers = (*original_headers(letter.record.headers), (ATTEMPT, str(attempt + 1).encode()))
        return Send(topic, _partition_of(letter, topic, target), headers, timestamp_ms)


def _timestamp_of(letter: DeadLetter) -> TimestampMs:
    """Return the timestamp of the original record, or that of the dead letter if the headers do not contain it."""
    original = None if letter.origin is None else letter.origin.timestamp_ms
    return letter.record.timestamp_ms if original is None else original


def _partition_of(letter: DeadLetter, topic: TopicName, target: Target) -> PartitionIndex | None:
    origin = letter.origin
    if origin is None:
        return None
    return origin.partition if origin.topic == topic and origin.partition < target.partition_count else None
