"""One broker for all tests of the package: each uses its own topics and groups."""

from collections.abc import Iterator

import pytest

from rookery.testing import EmbeddedBroker
from tests.support.retention import KEEPS_OLD_RECORDS


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"} | KEEPS_OLD_RECORDS) as embedded:
        yield embedded
