"""One Spark session and one broker for all of these tests: either takes longer to start than most tests to run.

Tests take topics, groups and checkpoints of their own (the fixtures `topic` and `tmp_path`).
"""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from rookery.spark.session import start_session
from rookery.testing.embedded import EmbeddedBroker
from tests.support.retention import KEEPS_OLD_RECORDS
from tests.support.spark import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who uses the session runs with all the others that do, one after the other."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # A first query starts a dozen processes; a busy machine takes minutes.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(schema_registry=True, settings=KEEPS_OLD_RECORDS) as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session = start_session("tests", master="local[2]", settings=SESSION_SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"spark-{next(_NUMBERS)}"
