"""Remembers the first unread records, so that a group that stands still costs no reads. Pure.

A result is valid for its committed offset while the log still has the record that was found: retention may have deleted
it, and a truncated log may have another one there. That there is no record is valid until the log grows. Compaction can
remove a record at any time, so results of compacted topics are not kept.
"""

from collections.abc import Collection, Mapping

from rookery.base.types import Offset, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.lag.samples import NOTHING_UNREAD, LogSpan, Unread

_Key = tuple[TopicPartition, Offset]


@value_class
class _Known:
    unread: Unread
    end: Offset


class UnreadCache:
    def __init__(self) -> None:
        self._known: dict[_Key, _Known] = {}

    def find(self, partition: TopicPartition, committed: Offset, span: LogSpan) -> Unread | None:
        """Return the first unread record if it is known without reading; None if it must be read."""
        if position_of(committed, span) >= span.end:
            return NOTHING_UNREAD
        known = self._known.get((partition, committed))
        if known is None or known.end > span.end:
            return None
        offset = known.unread.offset
        is_valid = known.end == span.end if offset is None else span.start <= offset < span.end
        return known.unread if is_valid else None

    def forget_topic(self, topic: TopicName) -> None:
        """Forget a topic that was deleted and created again: its offsets begin again."""
        self._known = {key: known for key, known in self._known.items() if key[0].topic != topic}

    def keep(
        self,
        found: Mapping[_Key, Unread],
        spans: Mapping[TopicPartition, LogSpan],
        *,
        used: Collection[_Key],
        compacted: Collection[TopicName],
    ) -> None:
        """Add what was read; forget what no group uses any more."""
        self._known = {key: known for key, known in self._known.items() if key in used}
        for key, unread in found.items():
            partition, _ = key
            if partition.topic not in compacted:
                self._known[key] = _Known(unread, spans[partition].end)


def position_of(committed: Offset, span: LogSpan) -> Offset:
    """Return where reading continues: at the committed offset, or at the start of the log if that is later."""
    return max(committed, span.start)
