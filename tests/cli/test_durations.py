"""Durations as text."""

import math

import pytest

from rookery.cli.durations import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "1 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (59.6, "1 m"),
        (192, "3 m 12 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (7320, "2 h 2 m"),
        (90_000, "1 d 1 h"),
        (math.inf, "never"),
    ],
)
def test_two_units_are_shown(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
