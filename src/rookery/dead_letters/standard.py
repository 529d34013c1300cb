"""The format of dead letters for the whole product: the name of their topic and their headers. Pure.

A dead letter is the record that failed with its key, value and headers unchanged, followed by a block of headers that
say where it came from and why it failed. The header names are those of Kafka Connect (KIP-298): Rookery reads Connect's
dead letters, and tools for Connect read Rookery's. `timestamp` and `attempt` are Rookery's additions. All values are
UTF-8 text.

A row computed from several records, such as a sum, has no origin. Its value is the row as JSON, and the block contains
only the error.

A retried task may write a dead letter twice, so statistics count distinct origins.

`attempt` counts how often a record was tried. A record without that header is at its first attempt. A redrive
increments it, and the writer of the next dead letter copies it. If dead letters themselves are processed and fail,
their own headers contain a block already: the last header of each name counts.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName
from rookery.records.record import Headers

SUFFIX: Final = ".dlq"

PREFIX: Final = "__connect.errors."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
TIMESTAMP: Final = PREFIX + "timestamp"
PIPELINE: Final = PREFIX + "connector.name"
STAGE: Final = PREFIX + "stage"
ERROR_CLASS: Final = PREFIX + "exception.class.name"
MESSAGE: Final = PREFIX + "exception.message"
ATTEMPT: Final = PREFIX + "attempt"

# The stages: the step that failed, with Connect's names.
KEY_CONVERTER: Final = "KEY_CONVERTER"
VALUE_CONVERTER: Final = "VALUE_CONVERTER"
TRANSFORMATION: Final = "TRANSFORMATION"
TASK_PUT: Final = "TASK_PUT"

FIRST_ATTEMPT: Final = 1
# A message may quote the record. Without a limit, a dead letter could exceed the maximum batch size and be rejected.
MESSAGE_LENGTH_MAX: Final = 4096


class Origin(NamedTuple):
    """The position of the record that failed. Connect's headers do not contain `timestamp_ms`."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    timestamp_ms: TimestampMs | None = None


class Failure(NamedTuple):
    """The reason why a record is a dead letter. `origin` is None for a row that was computed from several records."""

    origin: Origin | None
    error_class: str
    message: str
    stage: str
    pipeline: str | None = None
    attempt: int = FIRST_ATTEMPT


def dead_letter_topic(topic: TopicName) -> TopicName:
    """Return the default dead-letter topic of a topic."""
    return topic + SUFFIX


def headers_of(failure: Failure) -> list[tuple[str, bytes]]:
    """Return the block of headers to append to a record's own. Fields that are None are omitted."""
    texts = (
        *_origin_texts(failure.origin),
        (PIPELINE, failure.pipeline),
        (STAGE, failure.stage),
        (ERROR_CLASS, failure.error_class),
        (MESSAGE, failure.message[:MESSAGE_LENGTH_MAX]),
        (ATTEMPT, str(failure.attempt)),
    )
    return [(name, text.encode("utf-8", "replace")) for name, text in texts if text is not None]


def _origin_texts(origin: Origin | None) -> tuple[tuple[str, str | None], ...]:
    if origin is None:
        return ()
    return (
        (TOPIC, origin.topic),
        (PARTITION, str(origin.partition)),
        (OFFSET, str(origin.offset)),
        (TIMESTAMP, None if origin.timestamp_ms is None else str(origin.timestamp_ms)),
    )


def read_failure(headers: Iterable[tuple[str, bytes | None]]) -> Failure | None:
    """Read the headers of a dead letter. Returns None if they name neither an origin nor an error."""
    texts = _last_texts(headers)
    origin = _read_origin(texts)
    if origin is None and ERROR_CLASS not in texts:
        return None
    return Failure(
        origin,
        texts.get(ERROR_CLASS, ""),
        texts.get(MESSAGE, ""),
        texts.get(STAGE, ""),
        texts.get(PIPELINE),
        _number(texts, ATTEMPT) or FIRST_ATTEMPT,
    )


def _read_origin(texts: Mapping[str, str]) -> Origin | None:
    topic, partition, offset = texts.get(TOPIC), _number(texts, PARTITION), _number(texts, OFFSET)
    if not topic or partition is None or offset is None:
        return None
    return Origin(topic, partition, offset, _number(texts, TIMESTAMP))


def attempt_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return the number of the current attempt to process a record with these headers."""
    return _number(_last_texts(headers), ATTEMPT) or FIRST_ATTEMPT


def original_headers(headers: Headers) -> Headers:
    """Return the record's own headers: without the last block, and without any attempt count."""
    kept: list[tuple[str, bytes | None]] = []
    removed: set[str] = set()
    for name, value in reversed(headers):
        if name == ATTEMPT or (name.startswith(PREFIX) and name not in removed):
            removed.add(name)
        else:
            kept.append((name, value))
    return tuple(reversed(kept))


def _last_texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {
        name: value.decode("utf-8", "replace")
        for name, value in headers
        if value is not None and name.startswith(PREFIX)
    }


def _number(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
