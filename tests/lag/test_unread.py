"""The cache of first unread records never returns what a read would not."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.lag import LogSpan, Unread
from rookery.lag.samples import NOTHING_UNREAD
from rookery.lag.unread import UnreadCache
from tests.lag.factories import TP


def cached(unread: Unread, span: LogSpan, *, compacted: bool = False) -> UnreadCache:
    cache = UnreadCache()
    cache.keep({(TP, 5): unread}, {TP: span}, used={(TP, 5)}, compacted={TP.topic} if compacted else set())
    return cache


def test_a_record_is_known_while_the_log_has_it() -> None:
    cache = cached(Unread(7, 1000), LogSpan(0, 10))
    assert cache.find(TP, 5, LogSpan(0, 10)) == Unread(7, 1000)
    assert cache.find(TP, 5, LogSpan(7, 90)) == Unread(7, 1000)
    assert cache.find(TP, 5, LogSpan(8, 90)) is None, "retention has deleted it"
    assert cache.find(TP, 5, LogSpan(0, 9)) is None, "the log was truncated"
    assert cache.find(TP, 6, LogSpan(0, 10)) is None, "another commit"


def test_that_there_is_no_record_is_known_until_the_log_grows() -> None:
    cache = cached(NOTHING_UNREAD, LogSpan(0, 10))
    assert cache.find(TP, 5, LogSpan(0, 10)) == NOTHING_UNREAD
    assert cache.find(TP, 5, LogSpan(0, 11)) is None


def test_a_caught_up_group_needs_no_read() -> None:
    assert UnreadCache().find(TP, 10, LogSpan(0, 10)) == NOTHING_UNREAD
    assert UnreadCache().find(TP, 3, LogSpan(10, 10)) == NOTHING_UNREAD


def test_compacted_topics_are_read_each_time() -> None:
    assert cached(Unread(7, 1000), LogSpan(0, 10), compacted=True).find(TP, 5, LogSpan(0, 10)) is None


def test_what_no_group_uses_is_forgotten() -> None:
    cache = cached(Unread(7, 1000), LogSpan(0, 10))
    cache.keep({}, {}, used=set(), compacted=set())
    assert cache.find(TP, 5, LogSpan(0, 10)) is None


def test_a_topic_that_was_created_again_is_forgotten() -> None:
    cache = cached(Unread(7, 1000), LogSpan(0, 10))
    cache.forget_topic(TP.topic)
    assert cache.find(TP, 5, LogSpan(0, 10)) is None


def first_at(timestamps: dict[int, int], committed: int, span: LogSpan) -> Unread:
    offsets = [offset for offset in timestamps if max(committed, span.start) <= offset < span.end]
    return Unread(min(offsets), timestamps[min(offsets)]) if offsets else NOTHING_UNREAD


@given(st.data())
def test_it_equals_reading_while_records_are_added_and_deleted(data: st.DataObject) -> None:
    """`timestamps` is a log with gaps; its start and its end only grow, as those of a log that is not compacted."""
    timestamps: dict[int, int] = {}
    cache, start, end = UnreadCache(), 0, 0
    for _ in range(data.draw(st.integers(1, 10))):
        for _ in range(data.draw(st.integers(0, 3))):
            if data.draw(st.booleans()):
                timestamps[end] = data.draw(st.integers(0, 10**6))
            end += 1
        start = data.draw(st.integers(start, end))
        span, committed = LogSpan(start, end), data.draw(st.integers(0, end))
        expected = first_at(timestamps, committed, span)
        found = cache.find(TP, committed, span)
        if found is None:
            cache.keep({(TP, committed): expected}, {TP: span}, used={(TP, each) for each in range(end)}, compacted=())
        else:
            assert found == expected
