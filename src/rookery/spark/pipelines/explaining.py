"""Spark's error messages as one sentence, with the line of the SQL text that they are about. Pure.

Spark writes the plan or the text behind what is wrong, and wraps what Python raised in its own words and a traceback.
"""

import re
from typing import Final, NamedTuple

_LINE: Final = re.compile(r"[;(]\s*line (\d+),? pos \d+\)?")
_END: Final = re.compile(r"\s*(?:SQLSTATE: \w+|== SQL|JVM stacktrace|Driver stacktrace|\n\s+at [\w.$]+\(|\n'?\w+ ?\[)")
_CONDITION: Final = re.compile(r"^\s*\[[A-Z][A-Z_.\d]+\]\s*")
_TRACEBACK: Final = "Traceback (most recent call last)"
_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.*)", re.MULTILINE | re.DOTALL)
_MESSAGE_LENGTH_MAX: Final = 500


class Explanation(NamedTuple):
    """`line` counts from one; None if the message names none."""

    message: str
    line: int | None


def explain(text: str) -> Explanation:
    match = _LINE.search(text)
    line = int(match[1]) if match else None
    if _TRACEBACK in text:
        return Explanation(_last_raised(text), line)
    end = min((found.start() for found in (match, _END.search(text)) if found), default=len(text))
    message = " ".join(_CONDITION.sub("", text[:end]).split())
    return Explanation(_short(message) or _short(text.strip()), line)


def _last_raised(text: str) -> str:
    """What Python raised, without its class: the innermost is written last, at the beginning of a line."""
    behind = text.rpartition(_TRACEBACK)[2]
    found = _RAISED.search(behind)
    said = found[2] if found else behind.strip().splitlines()[-1]
    end = _END.search(said)
    return _short(" ".join((said[: end.start()] if end else said).split()))


def _short(message: str) -> str:
    return message if len(message) <= _MESSAGE_LENGTH_MAX else f"{message[:_MESSAGE_LENGTH_MAX]}..."
