"""What is rendered is read back by Prometheus' own parsers."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as open_metrics_parser

from rookery.telemetry import names
from rookery.telemetry.dialects import DIALECTS
from rookery.telemetry.exposition import render
from rookery.telemetry.histograms import Histogram, distribution
from rookery.telemetry.measurements import Family, Idle, Kind, Value, single

SOME = Histogram()
SOME.record(3)
VALUES: dict[Kind, Value] = {Kind.HISTOGRAM: distribution([SOME]), Kind.IDLE: Idle(1e9, 0.5, 0.25)}


def all_families() -> list[Family]:
    return [single(each, VALUES.get(each.kind, 1.5), ("topic", 'a "b" \\ c\nd')) for each in names.DEFINITIONS]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_formats_can_be_parsed(dialect: str) -> None:
    plain = list(parser.text_string_to_metric_families(render(all_families(), DIALECTS[dialect])))
    text = render(all_families(), DIALECTS[dialect], is_open_metrics=True)
    opened = list(open_metrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    assert _names(plain) == _names(opened)
    labels = {next(iter(sample.labels.items())) for each in plain for sample in each.samples}
    assert labels == {("topic", 'a "b" \\ c\nd')}


def _names(families: list[Metric]) -> set[str]:
    # The parser of the plain format gives each counter the suffix.
    return {sample.name.removesuffix("_total") for each in families for sample in each.samples}


@given(st.floats(allow_nan=False) | st.integers(-(2**60), 2**60))
def test_numbers_are_exact(value: float) -> None:
    text = render([single(names.LOAD, value)], DIALECTS["strimzi"])
    assert float(text.splitlines()[-1].split()[-1]) == float(value)


def test_numbers_that_are_none() -> None:
    lines = render([Family(names.LOAD, [((), nan), ((), inf), ((), -inf)])], DIALECTS["strimzi"]).splitlines()
    assert [line.split()[-1] for line in lines[2:]] == ["NaN", "+Inf", "-Inf"]


def test_families_without_values_are_left_out() -> None:
    assert render([Family(names.LOAD, [])], DIALECTS["strimzi"]) == "\n"


def test_a_name_occurs_once() -> None:
    text = render([single(names.LOAD, 1, ("a", "b")), single(names.LOAD, 2)], DIALECTS["strimzi"])
    assert text.count("# TYPE") == 1
