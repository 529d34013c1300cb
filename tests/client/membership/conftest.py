"""One broker per module, which lets sessions be short."""

from collections.abc import Iterator

import pytest

from rookery.testing import EmbeddedBroker
from tests.client.membership.players import SETTINGS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as running:
        yield running
