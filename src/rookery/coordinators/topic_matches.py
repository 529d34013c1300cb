"""The topics that match the patterns of consumer groups, updated incrementally.

A new pattern is matched with all topics, and every pattern with each new topic, never twice with the same name. If
these are more names than one iteration of the event loop allows, `find` returns None, and `advance` matches them slice
by slice; a group keeps its present topics until a later heartbeat gets the result. Pure: `group.service` calls
`advance` after `on_waiting` has been called.
"""

from collections.abc import Callable, Mapping, Set
from itertools import islice

from rookery.base.bounds import TOPIC_PATTERNS_MAX
from rookery.base.types import TopicName
from rookery.coordinators import regex


class _Match:
    __slots__ = ("matched", "unseen")

    def __init__(self, names: Set[TopicName]) -> None:
        self.matched: frozenset[TopicName] = frozenset()
        # Names with which the pattern has not been matched yet.
        self.unseen = set(names)


class TopicMatches:
    """`on_waiting` is called when a pattern has more unseen names than one slice allows."""

    def __init__(self, on_waiting: Callable[[], None], *, patterns_max: int = TOPIC_PATTERNS_MAX) -> None:
        self._on_waiting = on_waiting
        self._patterns_max = patterns_max
        self._topics: Mapping[TopicName, object] = {}
        # The least recently used pattern comes first.
        self._matches: dict[str, _Match] = {}
        self._waiting: dict[str, None] = {}

    def find(self, pattern: str, topics: Mapping[TopicName, object]) -> frozenset[TopicName] | None:
        """Return the topics that match, or None while they are being matched."""
        if topics is not self._topics:
            self._follow(topics)
        match = self._matches.pop(pattern, None) or _Match(topics.keys())
        self._matches[pattern] = match
        if len(self._matches) > self._patterns_max:
            oldest = next(iter(self._matches))
            del self._matches[oldest]
            self._waiting.pop(oldest, None)
        if len(match.unseen) <= regex.names_per_slice(pattern):
            self._match_some(pattern, match)
            return match.matched
        self._waiting[pattern] = None
        self._on_waiting()
        return None

    def advance(self) -> bool:
        """Match one slice of a waiting pattern; return whether patterns are still waiting."""
        pattern = next(iter(self._waiting), None)
        if pattern is None:
            return False
        match = self._matches[pattern]
        self._match_some(pattern, match)
        if not match.unseen:
            del self._waiting[pattern]
        return bool(self._waiting)

    def _match_some(self, pattern: str, match: _Match) -> None:
        if match.unseen:
            some = list(islice(match.unseen, regex.names_per_slice(pattern)))
            match.matched |= regex.matching(pattern, some)
            match.unseen.difference_update(some)

    def _follow(self, topics: Mapping[TopicName, object]) -> None:
        added, removed = topics.keys() - self._topics.keys(), self._topics.keys() - topics.keys()
        self._topics = topics
        for match in self._matches.values():
            match.unseen |= added
            if removed:
                match.unseen -= removed
                match.matched -= removed
