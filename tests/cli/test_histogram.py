import random
from itertools import pairwise

import pytest

from rookery.cli.histogram import Histogram


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


def test_percentiles_are_close_to_the_sorted_values() -> None:
    generator = random.Random(1)
    values = sorted(generator.lognormvariate(1, 1) for _ in range(10_000))
    histogram = filled(values)
    for percent in (50.0, 95.0, 99.0, 99.9):
        assert histogram.percentile_ms(percent) == pytest.approx(values[int(len(values) * percent / 100) - 1], rel=0.03)
    assert histogram.max_ms == values[-1]
    assert histogram.mean_ms == pytest.approx(sum(values) / len(values))


def test_a_percentile_is_never_above_the_maximum() -> None:
    assert filled([1.0]).summary() == {"mean": 1.0, "p50": 1.0, "p95": 1.0, "p99": 1.0, "p99.9": 1.0, "max": 1.0}


def test_bars_count_every_value_without_gaps() -> None:
    histogram = filled([0.0, 0.3, 3.0, 3.5, 40.0])
    bars = histogram.bars()
    assert sum(bar.count for bar in bars) == 5
    assert all(before.to_ms == after.from_ms for before, after in pairwise(bars))
    found = next(bar for bar in bars if bar.from_ms == pytest.approx(2))
    assert found.to_ms == pytest.approx(5)
    assert found.count == 2


def test_a_histogram_without_values() -> None:
    histogram = Histogram()
    assert histogram.bars() == []
    assert set(histogram.summary().values()) == {0.0}
