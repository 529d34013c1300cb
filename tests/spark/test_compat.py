"""Compares the table of features with the installed PySpark; `make conformance` runs this with each version."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from rookery.spark import compat
from rookery.spark.compat import FIRST_VERSION, OLDEST, Feature, SparkVersion, has, lacking, parse_version

REPOSITORY = Path(__file__).resolve().parents[2]


def is_in_pyspark(feature: Feature) -> bool:
    """Whether PySpark has the feature: `module:name`, or `module:name(parameter)`."""
    module, name, parameter = re.fullmatch(r"([\w.]+):(\w+)(?:\((\w+)\))?", feature.value).groups()  # type: ignore[union-attr]
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return False
    return parameter is None or parameter in inspect.signature(found).parameters


@pytest.mark.parametrize("feature", Feature)
def test_the_table_of_features_matches_the_installed_spark(feature: Feature) -> None:
    assert has(feature) == is_in_pyspark(feature)


def test_every_feature_has_a_first_version() -> None:
    assert FIRST_VERSION.keys() == set(Feature)
    assert min(FIRST_VERSION.values()) == OLDEST


@pytest.mark.parametrize("text", ["4.1.4", "4.1.0-amzn-0", "4.1.0.dev3", "4.1"])
def test_versions_as_distributors_write_them(text: str) -> None:
    assert parse_version(text) == SparkVersion(4, 1)


def test_an_invalid_version() -> None:
    with pytest.raises(ValueError, match="'unknown', which does not begin with two numbers"):
        parse_version("unknown")


def test_the_error_names_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "installed_version", lambda: SparkVersion(4, 0))
    assert not has(Feature.ADMISSION_CONTROL)
    assert lacking(Feature.ADMISSION_CONTROL, "it") == "it needs Spark 4.2, and this is Spark 4.0"


def test_versions_with_different_features_are_tested_and_documented() -> None:
    """`make sparks` tests all versions but the newest, which is that of `.venv`; docs/spark.md lists their features."""
    run = re.search(r"^SPARKS \?= (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    header = re.search(r"^\| \| (4\.0 .+) \|$", (REPOSITORY / "docs" / "spark.md").read_text(), re.MULTILINE)
    assert run is not None
    assert header is not None
    differing = {str(version) for version in FIRST_VERSION.values()}
    assert differing <= set(run[1].split())
    assert set(run[1].split()) < set(re.findall(r"\d\.\d", header[1]))
