"""One broker per test process, shared by the tests of all clients; each test has topics of its own.

`ROOKERY_CONFORMANCE_BOOTSTRAP=host:port` runs the same tests against another broker, for example Apache Kafka itself:
that is how one finds out whether a failing test or the broker is wrong.
"""

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.java_driver import JavaDriver
from tests.support.broker import start_broker

# The samples' timestamps are old, so retention must not come between writing and reading them.
SETTINGS = (
    "num.partitions=1",
    "auto.create.topics.enable=true",
    "log.retention.check.interval.ms=86400000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    "transaction.state.log.num.partitions=3",
)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker."""
    if address := os.environ.get("ROOKERY_CONFORMANCE_BOOTSTRAP"):
        yield address
        return
    with start_broker(tmp_path_factory.mktemp("broker") / "data", *SETTINGS) as broker:
        yield broker.address


@pytest.fixture
def empty_bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker without other tests' topics: a client with a pattern asks for all of them, again and again."""
    if address := os.environ.get("ROOKERY_CONFORMANCE_BOOTSTRAP"):
        yield address
        return
    with start_broker(tmp_path / "data", *SETTINGS) as broker:
        yield broker.address


@pytest.fixture(scope="session")
def java() -> Iterator[JavaDriver]:
    """Java's clients, to be driven."""
    with JavaDriver() as driver:
        yield driver


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name: str = request.node.name
    return f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{uuid.uuid4().hex[:8]}"
