"""One broker per module, which allows short sessions."""

from collections.abc import Iterator

import pytest

from rookery.testing import EmbeddedBroker
from tests.client.membership.group_members import SETTINGS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=SETTINGS) as running:
        yield running
