import pytest

from rookery.dead_letters.letters import OffsetSpan, Selection, Summary, newest, parse_span
from rookery.dead_letters.standard import Origin
from tests.dead_letters.samples import failure, letter


@pytest.mark.parametrize(
    ("selection", "is_match"),
    [
        (Selection(), True),
        (Selection(origin_topics=frozenset({"orders", "others"})), True),
        (Selection(origin_topics=frozenset({"others"})), False),
        (Selection(error_classes=frozenset({"ValueError"})), True),
        (Selection(error_classes=frozenset({"builtins.ValueError"})), True),
        (Selection(error_classes=frozenset({"Value"})), False),
        (Selection(stages=frozenset({"VALUE_CONVERTER"})), True),
        (Selection(stages=frozenset({"TRANSFORMATION"})), False),
        (Selection(pipelines=frozenset({"billing"})), True),
        (Selection(pipelines=frozenset({"other"})), False),
        (Selection(spans=(OffsetSpan(1, 0, 9), OffsetSpan(0, 5, 5))), True),
        (Selection(spans=(OffsetSpan(1, 0, 9), OffsetSpan(0, 6, 9))), False),
        (Selection(since_ms=1000, until_ms=1001), True),
        (Selection(since_ms=1001), False),
        (Selection(until_ms=1000), False),
        (Selection(origin_topics=frozenset({"orders"}), stages=frozenset({"TRANSFORMATION"})), False),
    ],
)
def test_every_field_filters(selection: Selection, is_match: bool) -> None:
    assert selection.matches(letter(failure(), offset=5)) is is_match


def test_a_letter_without_failure_matches_by_time_and_offset_only() -> None:
    assert Selection(since_ms=0, spans=(OffsetSpan(0, 0, 0),)).matches(letter())
    assert not Selection(error_classes=frozenset({""})).matches(letter())


def test_a_letter_without_origin_matches_by_its_error() -> None:
    row = letter(failure(None))
    assert Selection(error_classes=frozenset({"ValueError"})).matches(row)
    assert not Selection(origin_topics=frozenset({"orders"})).matches(row)
    assert row.identity != letter(failure(None), offset=1).identity


def test_spans_are_parsed() -> None:
    assert parse_span("2:5") == OffsetSpan(2, 5, 5)
    assert parse_span("0:5-9") == OffsetSpan(0, 5, 9)
    for text in ("5", "0:", "0:a", "0:5-", ":5", "0:9-5", "-1:5", "0:٣"):
        with pytest.raises(ValueError, match=r"neither|ends before"):
            parse_span(text)


def test_a_summary_counts_origins_once() -> None:
    summary = Summary()
    summary.add(letter(failure(), offset=0), is_redriven=True)
    summary.add(letter(failure(), offset=1, timestamp_ms=3000), is_redriven=False)
    summary.add(letter(failure(Origin("orders", 1, 8)), offset=2), is_redriven=False)
    summary.add(letter(failure(Origin("orders", 1, 9), error_class="KeyError"), offset=3), is_redriven=False)
    summary.add(letter(offset=4), is_redriven=False)
    assert (summary.total, summary.origins, summary.waiting, summary.newest_ms) == (5, 4, 3, 3000)
    assert summary.error_classes() == [("builtins.ValueError", 2), ("", 1), ("KeyError", 1)]


def test_the_newest_letters_are_in_order() -> None:
    letters = [letter(offset=offset, timestamp_ms=time) for offset, time in ((0, 5), (1, 9), (2, 1), (3, 9))]
    assert [found.record.offset for found in newest(letters, 3)] == [0, 1, 3]
    assert len(newest(letters, 10)) == 4
