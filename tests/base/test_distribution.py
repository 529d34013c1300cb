from importlib import metadata
from pathlib import Path

import pyspark_rookery
import rookery
from rookery.base import distribution


def test_the_distribution_does_not_use_another_programs_name() -> None:
    assert metadata.metadata(distribution.NAME)["Name"] == "rookery-streaming"
    assert distribution.version() == metadata.version("rookery-streaming")


def test_a_hint_names_the_extra_and_no_package_index() -> None:
    assert "pip install '.[spark]'" in distribution.install_hint("spark")


def test_both_packages_are_marked_as_typed() -> None:
    for package in (pyspark_rookery, rookery):
        assert (Path(*package.__path__) / "py.typed").exists()
