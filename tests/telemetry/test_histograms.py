"""Percentiles of histograms are close to those of the values, and old values are forgotten."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.telemetry.histograms import PERCENTILES, PERIODS, Histogram, bucket_of, distribution, middle_of

# Half the width of a bucket: an eighth of a power of two.
ERROR_MAX = 0.07


def filled(*values: int) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.lists(st.integers(0, 1 << 39), min_size=1, max_size=200))
def test_percentiles_are_close_to_the_exact_ones(values: list[int]) -> None:
    found = distribution([filled(*values)])
    ordered = sorted(values)
    for share, percentile in zip(PERCENTILES, found.percentiles, strict=True):
        exact = ordered[max(0, ceil(share * len(ordered)) - 1)]
        assert percentile == pytest.approx(exact, rel=ERROR_MAX)
    assert found.number == len(values)
    assert found.sum == sum(values)
    assert found.maximum == pytest.approx(ordered[-1], rel=ERROR_MAX)
    assert found.minimum == pytest.approx(ordered[0], rel=ERROR_MAX)


@given(st.integers(0, 1 << 39), st.integers(0, 1 << 39))
def test_buckets_keep_the_order(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert bucket_of(low) <= bucket_of(high)
    assert middle_of(bucket_of(high)) == pytest.approx(high, rel=ERROR_MAX)


def test_values_without_meaning_are_limited() -> None:
    assert bucket_of(-5) == bucket_of(0)
    assert bucket_of(1 << 60) == bucket_of((1 << 40) - 1)


def test_percentiles_forget_old_periods_and_counts_do_not() -> None:
    histogram = filled(1000)
    for _ in range(PERIODS - 1):
        histogram.rotate()
        histogram.record(1)
    assert distribution([histogram]).maximum == pytest.approx(1000, rel=ERROR_MAX)
    histogram.rotate()
    found = distribution([histogram])
    assert found.maximum == 1
    assert (found.number, found.sum) == (PERIODS, 1000 + PERIODS - 1)


def test_values_that_are_zero_need_not_be_recorded() -> None:
    found = distribution([filled(5000)], zeros=9, scale=0.001)
    assert found.number == 10
    assert found.percentiles[0] == 0
    assert found.maximum == pytest.approx(5, rel=ERROR_MAX)
    assert found.mean == pytest.approx(0.5, rel=ERROR_MAX)


def test_no_values_at_all() -> None:
    assert distribution([Histogram()]).percentiles == (0.0,) * len(PERCENTILES)
