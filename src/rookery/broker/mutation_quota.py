"""Admits the topics of a request that creates or deletes partitions, as far as its client's quota allows it.

Topics are admitted in the order of the request. The partitions of those that fail afterwards are given back.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from rookery.base.errors import ErrorCode
from rookery.broker.context import ClusterContext
from rookery.metadata.requests import Outcome

THROTTLED: Final = Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

_Topic = TypeVar("_Topic")


class TopicMutations:
    """The topics that one request may create, extend or delete."""

    def __init__(self, context: ClusterContext, *, strict_since: int) -> None:
        """`strict_since` is the first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
        usage = context.usage
        is_strict = context.api_version >= strict_since
        self._quota = None if usage is None else usage.mutations(is_strict=is_strict)
        self._counts: dict[Hashable, int] = {}

    def split(
        self, topics: Iterable[_Topic], measure: Callable[[_Topic], tuple[Hashable, int]]
    ) -> tuple[list[_Topic], list[_Topic]]:
        """Return the topics that may be changed, and those beyond the quota.

        `measure` returns the name or id of a topic, and the number of its partitions that are created or deleted.
        """
        admitted: list[_Topic] = []
        refused: list[_Topic] = []
        for topic in topics:
            (admitted if self.admit(*measure(topic)) else refused).append(topic)
        return admitted, refused

    def admit(self, key: Hashable, partition_count: int) -> bool:
        """Return whether a topic may be changed. One without partitions fails for another reason, and is admitted."""
        if self._quota is None or partition_count <= 0:
            return True
        is_admitted = self._quota.admit(partition_count)
        if is_admitted:
            self._counts[key] = partition_count
        return is_admitted

    def settle(self, outcomes: Iterable[tuple[Hashable, Outcome]]) -> None:
        """Give back the partitions of topics that failed. After a time-out they may still be changed."""
        if self._quota is None:
            return
        for key, outcome in outcomes:
            if outcome.code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                self._quota.give_back(self._counts.pop(key, 0))
