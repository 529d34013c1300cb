"""`kafka_samples.json` holds the values of Apache Kafka 4.3.1's Avg, Max, Min and Rate for random events."""

import json
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.client.metrics import Sensor, Windows

SCENARIOS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "kafka_samples.json").read_text())
# Kafka counts in whole milliseconds. Here one of them is a second, so that nothing is rounded.
MILLISECONDS_PER_SECOND = 1000


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_values_as_kafka(scenario: dict[str, Any]) -> None:
    sensor = Sensor(Windows(scenario["num_samples"], scenario["window_ms"]))
    recorded = []
    for step in scenario["steps"]:
        now_s = float(step["at_ms"])
        if "record" in step:
            sensor.record(step["record"], now_s)
            recorded.append(step["record"])
            continue
        for name in ("average", "maximum", "minimum"):
            expected = nan if step[name] is None else step[name]
            assert getattr(sensor, name)(now_s) == pytest.approx(expected, nan_ok=True), (name, step)
        for name in ("rate", "count_rate"):
            per_unit = getattr(sensor, name)(now_s, unit_s=MILLISECONDS_PER_SECOND)
            assert per_unit == pytest.approx(step[name]), (name, step)
    assert sensor.count == len(recorded)
    assert sensor.total == pytest.approx(sum(recorded))


def test_the_scenarios_cover_all_cases() -> None:
    steps = [step for scenario in SCENARIOS for step in scenario["steps"]]
    assert {scenario["num_samples"] for scenario in SCENARIOS} == {1, 2, 3, 4}
    assert sum("record" in step for step in steps) > 300
    assert sum(step.get("average", 0) is None for step in steps) > 5
    assert sum("average" in step for step in steps) > 150


def test_values_before_any_event() -> None:
    sensor = Sensor(Windows())
    assert isnan(sensor.average(5.0))
    assert isnan(sensor.maximum(5.0))
    assert isnan(sensor.minimum(5.0))
    assert sensor.rate(5.0) == sensor.count_rate(5.0) == 0
    assert (sensor.count, sensor.total, sensor.last_s) == (0, 0, None)


def test_one_event_is_no_spike() -> None:
    sensor = Sensor(Windows(2, 30.0))
    sensor.record(60, 100.0)
    assert sensor.rate(100.0) == 2
    assert sensor.count_rate(115.0) == 1 / 45
    assert sensor.rate(100.0, unit_s=3600) == 7200


def test_old_events_count_only_in_totals() -> None:
    sensor = Sensor(Windows(2, 30.0))
    sensor.record(10, 0.0)
    sensor.record(30, 31.0)
    assert sensor.average(59.0) == 20
    assert sensor.average(60.0) == 30
    assert isnan(sensor.average(91.0))
    assert sensor.rate(91.0) == 0
    assert (sensor.count, sensor.total, sensor.last_s) == (2, 40, 31.0)


def test_windows_of_length_zero_do_not_divide_by_zero() -> None:
    sensor = Sensor(Windows(1, 0.0))
    sensor.record(1, 5.0)
    assert sensor.rate(5.0) == 1000


@given(
    windows=st.builds(Windows, st.integers(1, 4), st.floats(0.001, 100)),
    events=st.lists(st.tuples(st.floats(0, 50), st.floats(-1e6, 1e6), st.booleans()), max_size=60),
)
def test_measurements_lie_between_recorded_values(windows: Windows, events: list[tuple[float, float, bool]]) -> None:
    sensor = Sensor(windows)
    now_s, values = 0.0, []
    for passed_s, value, is_measured in events:
        now_s += passed_s
        sensor.record(value, now_s)
        values.append(value)
        if is_measured:
            largest, smallest = sensor.maximum(now_s), sensor.minimum(now_s)
            assert smallest <= value <= largest
            assert {smallest, largest} <= set(values)
            slack = 1e-6 + abs(largest - smallest) * 1e-9
            assert smallest - slack <= sensor.average(now_s) <= largest + slack
            assert sensor.count_rate(now_s) > 0
    assert sensor.count == len(values)
    assert sensor.total == pytest.approx(sum(values), abs=1e-3)
