"""Patterns of clients, for topics and transactional ids, in RE2's syntax and in linear time; the only door to re2.

The pattern comes from a client and is matched against every name on the event loop, so an engine that backtracks would
let one client stop a broker. RE2 is also what Kafka's coordinator uses (as RE2/J). A match takes time with the size of
the compiled pattern and the length of the name, and so does its memory for each capture group; hence groups do not
capture, and large patterns are refused. Whole names are matched. An empty pattern is no pattern: it matches nothing.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import re2

from rookery.base.bounds import NAMES_PER_SLICE, PATTERN_BYTES_MAX, PATTERN_LENGTH_MAX, PATTERN_PROGRAM_MAX
from rookery.base.types import TopicName

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# A pattern with thousands of groups took gigabytes for the places that they would have captured.
_OPTIONS.never_capture = True
# A pattern may be large when it is unrolled; RE2 refuses what does not fit.
_OPTIONS.max_mem = PATTERN_BYTES_MAX


def problem(pattern: str) -> str | None:
    """Why a pattern cannot be used, None if it can."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        return f"a pattern of {len(pattern)} characters, where {PATTERN_LENGTH_MAX} are the most"
    try:
        if _compile(pattern).programsize > PATTERN_PROGRAM_MAX:
            return "pattern too large"
    except re2.error as error:
        reason = error.args[0]
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def matching(pattern: str, names: Iterable[TopicName]) -> frozenset[TopicName]:
    # A pattern may come from the log of a broker that took larger ones: it matches nothing then.
    if not pattern or problem(pattern) is not None:
        return frozenset()
    return frozenset(filter(matcher(pattern), names))


def names_per_slice(pattern: str) -> int:
    """How many names may be matched in one turn of the event loop."""
    if problem(pattern) is not None:
        return NAMES_PER_SLICE
    instructions: int = _compile(pattern).programsize
    return max(1, NAMES_PER_SLICE // 100, min(NAMES_PER_SLICE, 50 * NAMES_PER_SLICE // instructions))


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a whole name matches."""
    fullmatch = _compile(pattern).fullmatch
    return lambda name: fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)
