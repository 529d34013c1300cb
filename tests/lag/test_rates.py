"""Rates and estimates: exact for constant rates."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.lag import Rates
from rookery.lag.rates import Point, rates


@given(
    written=st.integers(0, 1000),
    committed=st.integers(0, 1000),
    backlog=st.integers(0, 10_000),
    seconds=st.lists(st.integers(1, 60), min_size=1, max_size=20),
)
def test_constant_rates_are_found_exactly(written: int, committed: int, backlog: int, seconds: list[int]) -> None:
    at_s, points = 0, [Point(0, 0, backlog)]
    for pause_s in seconds:
        at_s += pause_s
        points.append(Point(at_s * 1000, committed * at_s, backlog + written * at_s))
    found = rates(points)
    assert found is not None
    assert found.written == pytest.approx(written)
    assert found.committed == pytest.approx(committed)
    assert found.trend == pytest.approx(written - committed)


@given(lag=st.integers(1, 10**9), written=st.integers(0, 1000), faster=st.integers(1, 1000))
def test_after_the_estimated_time_the_lag_is_gone(lag: int, written: int, faster: int) -> None:
    found = Rates(written, written + faster)
    assert lag + found.catch_up_s(lag) * found.trend == pytest.approx(0, abs=1e-3)


def test_a_lag_that_does_not_fall_is_never_gone() -> None:
    assert Rates(10, 10).catch_up_s(5) == math.inf
    assert Rates(10, 5).catch_up_s(5) == math.inf
    assert Rates(10, 5).catch_up_s(0) == 0


def test_a_reset_says_nothing_about_speed() -> None:
    points = [Point(0, 1000, 2000), Point(1000, 10, 2000), Point(2000, 110, 2100)]
    assert rates(points) == Rates(100, 100)
    assert rates(points[:2]) is None


def test_a_log_that_became_shorter_says_nothing_about_speed() -> None:
    assert rates([Point(0, 0, 2000), Point(1000, 10, 50), Point(3000, 30, 60)]) == Rates(5, 10)


def test_one_point_has_no_rate() -> None:
    assert rates([]) is None
    assert rates([Point(0, 1, 2)]) is None
    assert rates([Point(5, 1, 2), Point(5, 1, 3)]) is None
