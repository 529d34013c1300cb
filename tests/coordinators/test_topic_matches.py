"""Patterns and topics: each name is matched once, many of them in slices, and the result is that of a full match."""

from random import Random

import pytest

from rookery.coordinators import regex
from rookery.coordinators.topic_matches import TopicMatches

NAMES = [f"{kind}-{number}" for kind in ("orders", "returns") for number in range(3000)]


def finish(matches: TopicMatches) -> int:
    """Advance to the end; return the number of slices."""
    slices = 1
    while matches.advance():
        slices += 1
    return slices


def test_many_topics_are_matched_in_slices() -> None:
    calls: list[None] = []
    matches, topics = TopicMatches(lambda: calls.append(None)), dict.fromkeys(NAMES)
    assert matches.find("orders-.*", topics) is None
    assert matches.find("orders-.*", topics) is None
    assert len(calls) == 2
    assert finish(matches) == 3
    assert matches.find("orders-.*", topics) == frozenset(NAMES[:3000])


def test_no_name_is_matched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    matching = regex.matching

    def note(pattern: str, names: list[str]) -> frozenset[str]:
        seen.extend(names)
        return matching(pattern, names)

    monkeypatch.setattr(regex, "matching", note)
    matches, topics = TopicMatches(lambda: None), dict.fromkeys(NAMES[:1000])
    for _ in range(3):
        assert matches.find(".*-1", topics) == frozenset({"orders-1"})
    assert matches.find(".*-1", {**topics, "new-1": None}) == frozenset({"orders-1", "new-1"})
    assert matches.find(".*-1", {"new-1": None}) == frozenset({"new-1"})
    assert sorted(seen) == sorted([*topics, "new-1"])


def test_the_result_is_that_of_a_full_match_while_topics_change() -> None:
    random = Random(3)
    matches = TopicMatches(lambda: None, patterns_max=3)
    patterns = ["orders-.*", ".*-1.*", "nothing", "returns-[0-9]", ".*"]
    for _ in range(300):
        topics = dict.fromkeys(random.sample(NAMES, random.choice([0, 5, 1000, 5000])))
        for pattern in random.sample(patterns, 3):
            found = matches.find(pattern, topics)
            if found is None:
                for _ in range(random.randrange(4)):
                    matches.advance()
            else:
                assert found == regex.matching(pattern, topics)
    finish(matches)
    assert not matches.advance()
