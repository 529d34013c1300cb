"""Parses the positions and times of options such as `consume --from`. Pure."""

from datetime import datetime
from typing import NamedTuple, TypeAlias

from rookery.base.types import TimestampMs
from rookery.client.consume.records import BEGINNING, END, Position, Timestamp


class Tail(NamedTuple):
    """The position before the last `records` records of each partition."""

    records: int


Start: TypeAlias = Position | Tail


def parse_start(text: str) -> Start:
    """Parse a position. Raises ValueError with a sentence.

    A position is `beginning`, `end`, `offset:N` or `N`, `-N` for the last N records, `timestamp:T` or T, where T is
    ISO 8601 or, after `timestamp:`, milliseconds since 1970.
    """
    word = text.strip()
    if word in ("beginning", "earliest"):
        return BEGINNING
    if word in ("end", "latest"):
        return END
    kind, rest = _split_kind(word)
    if kind == "offset" or (kind is None and _is_number(rest)):
        return _number(rest)
    if kind is None and rest.startswith("-") and _is_number(rest[1:]):
        return Tail(int(rest[1:]))
    if kind == "timestamp" and _is_number(rest):
        return Timestamp(int(rest))
    return Timestamp(_timestamp_ms(rest))


def parse_timestamp_ms(text: str) -> TimestampMs:
    """Parse an ISO 8601 time, local unless it has a zone, or milliseconds since 1970. Raises ValueError."""
    word = text.strip()
    if _is_number(word):
        return int(word)
    try:
        return _moment_ms(word)
    except ValueError:
        raise ValueError(f"'{text}' must be an ISO 8601 time or milliseconds since 1970") from None


def _split_kind(word: str) -> tuple[str | None, str]:
    for kind in ("offset", "timestamp"):
        if word.startswith(kind) and word[len(kind) : len(kind) + 1] in (":", "=", " "):
            return kind, word[len(kind) + 1 :].strip()
    return None, word


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(text: str) -> int:
    if not _is_number(text):
        raise ValueError(f"'{text}' must be an offset, a number")
    return int(text)


def _timestamp_ms(text: str) -> TimestampMs:
    try:
        return _moment_ms(text)
    except ValueError:
        raise ValueError(
            f"'{text}' must be beginning, end, an offset, -N for the last N, an ISO 8601 time, or timestamp:MS"
        ) from None


def _moment_ms(text: str) -> TimestampMs:
    """Parse an ISO 8601 time; a time without a zone is local."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
