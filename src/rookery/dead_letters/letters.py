"""Dead letters as read from their topic, the filter for them, and their statistics. Pure.

`rookery dlq show` and `redrive` filter by a `Selection`; `list` prints a `Summary`. Times are the timestamps of the
dead letters, that is the times of the failures, not the timestamps of the records that failed.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from rookery.base.types import Offset, PartitionIndex, TimestampMs
from rookery.client.consume.records import ConsumerRecord
from rookery.dead_letters.standard import Failure, Origin, read_failure

_DIGEST_SIZE: Final = 16

# The origin and the digests of key and value. The origin alone is not enough: a topic that was deleted and created
# again reuses its offsets, and only the timestamp or the content distinguishes the records.
Identity: TypeAlias = tuple[Origin, bytes, bytes]


class DeadLetter(NamedTuple):
    """A record of a dead-letter topic. `failure` is None if its headers name neither an origin nor an error."""

    record: ConsumerRecord[bytes, bytes]
    failure: Failure | None

    @property
    def identity(self) -> Identity:
        """Equal for all dead letters of the same record. A letter without an origin is equal only to itself."""
        record = self.record
        if self.origin is None:
            return Origin(record.topic, record.partition, record.offset), b"", b""
        return self.origin, _digest(record.key), _digest(record.value)

    @property
    def origin(self) -> Origin | None:
        return None if self.failure is None else self.failure.origin


def _digest(data: bytes | None) -> bytes:
    return b"" if data is None else blake2b(data, digest_size=_DIGEST_SIZE).digest()


def read_letter(record: ConsumerRecord[bytes, bytes]) -> DeadLetter:
    return DeadLetter(record, read_failure(record.headers))


class OffsetSpan(NamedTuple):
    """A range of offsets in one partition of the dead-letter topic, `first` and `last` inclusive."""

    partition: PartitionIndex
    first: Offset
    last: Offset

    def contains(self, partition: PartitionIndex, offset: Offset) -> bool:
        return partition == self.partition and self.first <= offset <= self.last


def parse_span(text: str) -> OffsetSpan:
    """Parse `PARTITION:OFFSET` or `PARTITION:FIRST-LAST`.

    Raises ValueError with a message that can be shown to the user.
    """
    partition, colon, offsets = text.partition(":")
    first, dash, last = offsets.partition("-")
    words = [partition, first, last if dash else first]
    if not colon or not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"'{text}' is neither PARTITION:OFFSET nor PARTITION:FIRST-LAST")
    span = OffsetSpan(*map(int, words))
    if span.last < span.first:
        raise ValueError(f"'{text}' ends before it begins")
    return span


class Selection(NamedTuple):
    """A filter for dead letters. A letter must match every field that is set; an empty field matches all letters."""

    origin_topics: frozenset[str] = frozenset()
    error_classes: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    pipelines: frozenset[str] = frozenset()
    spans: tuple[OffsetSpan, ...] = ()
    # The half-open interval [since_ms, until_ms).
    since_ms: TimestampMs | None = None
    until_ms: TimestampMs | None = None

    def matches(self, letter: DeadLetter) -> bool:
        record, failure = letter.record, letter.failure
        if self.since_ms is not None and record.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.timestamp_ms >= self.until_ms:
            return False
        if self.spans and not any(span.contains(record.partition, record.offset) for span in self.spans):
            return False
        if failure is None:
            return not (self.origin_topics or self.error_classes or self.stages or self.pipelines)
        return (
            (not self.origin_topics or (letter.origin is not None and letter.origin.topic in self.origin_topics))
            and (not self.error_classes or self._matches_class(failure.error_class))
            and (not self.stages or failure.stage.upper() in self.stages)
            and (not self.pipelines or failure.pipeline in self.pipelines)
        )

    def _matches_class(self, error_class: str) -> bool:
        """Compare the qualified and the short class name: `DataException` matches `org.apache...DataException`."""
        return error_class in self.error_classes or short_class(error_class) in self.error_classes


def short_class(error_class: str) -> str:
    return error_class.rpartition(".")[2]


class Summary:
    """Statistics of the dead letters of a topic. Several dead letters of one record count once, except in `total`."""

    def __init__(self) -> None:
        self.total = 0
        self.newest_ms: TimestampMs | None = None
        self._open: set[Identity] = set()
        self._redriven: set[Identity] = set()
        self._classes: dict[Identity, str] = {}

    def add(self, letter: DeadLetter, *, is_redriven: bool) -> None:
        self.total += 1
        time_ms, identity = letter.record.timestamp_ms, letter.identity
        self.newest_ms = time_ms if self.newest_ms is None else max(self.newest_ms, time_ms)
        (self._redriven if is_redriven else self._open).add(identity)
        self._classes[identity] = letter.failure.error_class if letter.failure else ""

    @property
    def origins(self) -> int:
        """The number of distinct records that failed."""
        return len(self._classes)

    @property
    def waiting(self) -> int:
        """The number of failed records of which no dead letter was sent again."""
        return len(self._open - self._redriven)

    def error_classes(self) -> list[tuple[str, int]]:
        """Return the error classes with the number of records that failed with each, the most frequent first."""
        counts = Counter(self._classes.values())
        return sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))


def newest(letters: Iterable[DeadLetter], count: int) -> list[DeadLetter]:
    """Return the `count` latest letters, in the order of their timestamps."""
    ordered = sorted(
        letters, key=lambda letter: (letter.record.timestamp_ms, letter.record.partition, letter.record.offset)
    )
    return ordered[-count:]
