"""One Spark session that has both connectors, and both brokers with the same topics.

They are started once; `make conformance` runs these tests one after the other.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark_jars import spark_jars
from rookery.spark.session import start_session
from tests.conformance import brokers
from tests.conformance.spark.topics import fill
from tests.support.spark import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for marker in (pytest.mark.java, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(300)):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    settings = {**SESSION_SETTINGS, "spark.jars": spark_jars()}
    session = start_session("conformance", master="local[2]", settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session", params=["rookery", "kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for address in brokers.start(request.param, tmp_path_factory.mktemp(request.param)):
        fill(address)
        yield address
