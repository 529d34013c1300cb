"""Patterns of clients, for topics and transactional ids, in RE2's syntax and in linear time; the only door to re2.

The pattern comes from a client and is matched against every name on the event loop, so an engine that
backtracks would let one client stop a broker. RE2 is also what Kafka's coordinator uses (as RE2/J). Whole names are
matched. An empty pattern is no pattern: it matches nothing.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import re2

from rookery.base.types import TopicName

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# A pattern may be large when it is unrolled; RE2 refuses what does not fit.
_OPTIONS.max_mem = 1 << 20


def problem(pattern: str) -> str | None:
    """Why a pattern cannot be used, None if it can."""
    try:
        _compile(pattern)
    except re2.error as error:
        reason = error.args[0]
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def matching(pattern: str, names: Iterable[TopicName]) -> frozenset[TopicName]:
    if not pattern:
        return frozenset()
    return frozenset(filter(matcher(pattern), names))


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a whole name matches."""
    fullmatch = _compile(pattern).fullmatch
    return lambda name: fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)
