"""Burrow's rules as a table, and what holds for any commits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.lag import Commit, Status, evaluate, worst

# (time in seconds, offset, lag) of each commit, oldest first.
Commits = list[tuple[int, int, int | None]]

RULES: list[tuple[str, Commits, int, Status]] = [
    ("no commits", [], 60, Status.OK),
    ("the lag falls", [(0, 10, 90), (10, 40, 80), (20, 70, 70)], 20, Status.OK),
    ("the lag falls once", [(0, 10, 90), (10, 40, 80), (20, 50, 95)], 20, Status.OK),
    ("the lag was zero once", [(0, 10, 5), (10, 20, 0), (20, 20, 50)], 20, Status.OK),
    ("the lag grows, commits advance", [(0, 10, 5), (10, 20, 10), (20, 30, 15)], 20, Status.WARNING),
    ("the lag is constant, commits advance", [(0, 10, 5), (10, 20, 5), (20, 30, 5)], 20, Status.WARNING),
    ("lags that are not known do not count", [(0, 10, 5), (10, 20, None), (20, 30, 6)], 20, Status.WARNING),
    ("commits repeat an offset, the lag grows", [(0, 10, 5), (10, 10, 8), (20, 10, 9)], 20, Status.STALL),
    ("commits repeat an offset, the lag is constant", [(0, 10, 5), (10, 10, 5)], 10, Status.STALL),
    ("commits stall for a while only", [(0, 10, 5), (10, 10, 8), (20, 18, 2)], 20, Status.OK),
    ("a commit goes back", [(0, 10, 5), (10, 4, 20), (20, 6, 25)], 20, Status.REWIND),
    ("a commit goes back, the lag was zero", [(0, 10, 0), (10, 4, 20), (20, 6, 25)], 20, Status.OK),
    ("no commit for longer than the window", [(0, 10, 5), (10, 20, 5)], 21, Status.STOP),
    ("no commit for as long as the window", [(0, 10, 5), (10, 20, 3)], 20, Status.OK),
    ("no commit for longer, the lag was zero", [(0, 10, 0), (10, 20, 0)], 21, Status.STOP),
    ("one commit long ago", [(0, 10, 5)], 60, Status.STOP),
]


@pytest.mark.parametrize(
    ("commits", "now_s", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES]
)
def test_rules(commits: Commits, now_s: int, expected: Status) -> None:
    found = [Commit(at_s * 1000, offset, lag) for at_s, offset, lag in commits]
    assert evaluate(found, is_caught_up=False, now_ms=now_s * 1000) is expected
    assert evaluate(found, is_caught_up=True, now_ms=now_s * 1000) is Status.OK, "nothing to read is never an error"


def test_words() -> None:
    assert {status.name: status.word for status in Status} == {
        "OK": "fine",
        "WARNING": "falling behind",
        "REWIND": "rewound",
        "STALL": "stuck",
        "STOP": "stuck",
    }


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], None),
        ([None], None),
        ([Status.OK, Status.OK], Status.OK),
        ([Status.OK, None], None),
        ([Status.STALL, None, Status.WARNING], Status.STALL),
        ([Status.WARNING, Status.OK], Status.WARNING),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(statuses: list[Status | None], expected: Status | None) -> None:
    assert worst(statuses) is expected


@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(0, 100), st.integers(1, 100)), min_size=2),
    st.integers(1, 1000),
)
def test_a_status_does_not_depend_on_where_time_and_offsets_begin(
    steps: list[tuple[int, int, int]], shift: int
) -> None:
    at_ms, commits = 0, []
    for pause, offset, lag in steps:
        at_ms += pause
        commits.append(Commit(at_ms, offset, lag))
    moved = [Commit(each.at_ms + shift, each.offset + shift, each.lag) for each in commits]
    assert evaluate(commits, is_caught_up=False, now_ms=at_ms) is evaluate(
        moved, is_caught_up=False, now_ms=at_ms + shift
    )


@given(st.lists(st.integers(1, 50), min_size=2), st.integers(1, 1000))
def test_a_consumer_that_reads_more_than_is_written_is_fine(reads: list[int], backlog: int) -> None:
    """Lags fall at each commit, and never reach zero."""
    lag, offset, commits = backlog + sum(reads), 0, []
    for index, count in enumerate(reads):
        lag, offset = lag - count, offset + count
        commits.append(Commit(index, offset, lag))
    assert evaluate(commits, is_caught_up=False, now_ms=len(reads) - 1) is Status.OK
