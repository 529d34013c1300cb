"""Clients' patterns for topics and transactional ids, in RE2's syntax and in linear time. The only importer of re2.

The pattern comes from a client and is matched against every name on the event loop, so that with a backtracking engine
one client could stop a broker. Kafka's coordinator uses RE2 too (as RE2/J). The time of a match is proportional to the
size of the compiled pattern and the length of the name, and so is the memory for each capture group; hence groups do
not capture, and large patterns are rejected. Whole names are matched. An empty pattern matches nothing.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import re2

from rookery.base.bounds import NAMES_PER_SLICE, PATTERN_BYTES_MAX, PATTERN_LENGTH_MAX, PATTERN_PROGRAM_MAX
from rookery.base.types import TopicName

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# With captures, a pattern with thousands of groups took gigabytes.
_OPTIONS.never_capture = True
# A short pattern may be large when its repetitions are unrolled; RE2 rejects those that need more.
_OPTIONS.max_mem = PATTERN_BYTES_MAX


def problem(pattern: str) -> str | None:
    """Return why a pattern cannot be used, None if it can."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        return f"a pattern of {len(pattern)} characters exceeds the limit of {PATTERN_LENGTH_MAX}"
    try:
        if _compile(pattern).programsize > PATTERN_PROGRAM_MAX:
            return "pattern too large"
    except re2.error as error:
        reason = error.args[0]
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def matching(pattern: str, names: Iterable[TopicName]) -> frozenset[TopicName]:
    # The log may have a pattern of a broker with larger limits. It matches nothing here.
    if not pattern or problem(pattern) is not None:
        return frozenset()
    return frozenset(filter(matcher(pattern), names))


def names_per_slice(pattern: str) -> int:
    """Return how many names may be matched in one iteration of the event loop."""
    if problem(pattern) is not None:
        return NAMES_PER_SLICE
    instructions: int = _compile(pattern).programsize
    return max(1, NAMES_PER_SLICE // 100, min(NAMES_PER_SLICE, 50 * NAMES_PER_SLICE // instructions))


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a whole name matches."""
    fullmatch = _compile(pattern).fullmatch
    return lambda name: fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)
