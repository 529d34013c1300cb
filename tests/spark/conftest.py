"""One Spark session and one broker for all of these tests: each takes longer to start than most tests to run.

Tests use their own topics, groups and checkpoints (the fixtures `topic` and `tmp_path`).
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
    """Mark the tests that use the session, so that they run one after the other in one process."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # The first query starts a dozen processes, which takes minutes on a busy machine.
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
    """A unique name."""
    return f"spark-{next(_NUMBERS)}"
