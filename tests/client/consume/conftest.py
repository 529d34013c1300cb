"""One broker for the package: every test has topics and groups of its own."""

from collections.abc import Iterator

import pytest

from rookery.testing import EmbeddedBroker
from tests.support.retention import KEEPS_OLD_RECORDS


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    """One broker for all: every test has topics and groups of its own."""
    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"} | KEEPS_OLD_RECORDS) as embedded:
        yield embedded
