"""One broker per test process, shared by the tests of all clients; each test has its own topics.

`ROOKERY_CONFORMANCE_BOOTSTRAP=host:port` runs the same tests against another broker, for example Apache Kafka. This
shows whether a failing test or the broker is wrong.
"""

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.java_driver import JavaDriver
from tests.support.broker import start_broker

# The samples' timestamps are old, so retention must not delete them between writing and reading.
SETTINGS = (
    "num.partitions=1",
    "auto.create.topics.enable=true",
    "log.retention.check.interval.ms=86400000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    "transaction.state.log.num.partitions=3",
)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker; yields its address."""
    if address := os.environ.get("ROOKERY_CONFORMANCE_BOOTSTRAP"):
        yield address
        return
    with start_broker(tmp_path_factory.mktemp("broker") / "data", *SETTINGS) as broker:
        yield broker.address


@pytest.fixture
def empty_bootstrap(tmp_path: Path) -> Iterator[str]:
    """Run a broker without other tests' topics: a client with a pattern repeatedly requests all of them."""
    if address := os.environ.get("ROOKERY_CONFORMANCE_BOOTSTRAP"):
        yield address
        return
    with start_broker(tmp_path / "data", *SETTINGS) as broker:
        yield broker.address


@pytest.fixture(scope="session")
def java() -> Iterator[JavaDriver]:
    """Run a driver of the Java clients."""
    with JavaDriver() as driver:
        yield driver


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a topic name that no other test uses."""
    name: str = request.node.name
    return f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{uuid.uuid4().hex[:8]}"
