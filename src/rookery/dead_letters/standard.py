"""What a dead letter is, for the whole product: which topic it goes to, and what its headers say. Pure.

A dead letter is the record that failed, its key, value and headers untouched, with a block of headers behind its own:
where it came from and why it is here. The names are those of Kafka Connect (KIP-298), so that its dead letters can be
read here and ours by tools for those; `timestamp` and `attempt` are ours. All values are text in UTF-8.

What was made of several records, as a sum is, has no origin: then the value is the row, as JSON, and the block says
only why it is here.

A task that is tried again may write a dead letter twice, so who counts dead letters counts distinct origins.

`attempt` counts how often a record was tried. A record without that header is tried for the first time; whoever sends
a dead letter again raises it, and who fails again hands it on. The record's own headers may hold a block already, where
dead letters themselves are processed: the last header of each name counts.
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

# Stages by Connect's names: which step failed.
KEY_CONVERTER: Final = "KEY_CONVERTER"
VALUE_CONVERTER: Final = "VALUE_CONVERTER"
TRANSFORMATION: Final = "TRANSFORMATION"
TASK_PUT: Final = "TASK_PUT"

FIRST_ATTEMPT: Final = 1
# A message may quote the record it complains about; together they must fit a batch.
MESSAGE_LENGTH_MAX: Final = 4096


class Origin(NamedTuple):
    """The record that failed. Connect does not tell its time."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    timestamp_ms: TimestampMs | None = None


class Failure(NamedTuple):
    """Why a record is a dead letter. `origin` is None of a row that is no record's alone."""

    origin: Origin | None
    error_class: str
    message: str
    stage: str
    pipeline: str | None = None
    attempt: int = FIRST_ATTEMPT


def dead_letter_topic(topic: TopicName) -> TopicName:
    """Where the dead letters of a topic go, if no other topic is named."""
    return topic + SUFFIX


def headers_of(failure: Failure) -> list[tuple[str, bytes]]:
    """The block of headers that stands behind a record's own. What is not known is left out."""
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
    """What the headers of a dead letter say; None if they name neither an origin nor an error, as of other records."""
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
    """Which attempt it is to process a record with these headers."""
    return _number(_last_texts(headers), ATTEMPT) or FIRST_ATTEMPT


def original_headers(headers: Headers) -> Headers:
    """The record's own headers: without the block behind them, and without the count of attempts."""
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
