"""The app in front of an empty registry."""

import pytest

from tests.registry.rest.memory import Rest


@pytest.fixture
def rest() -> Rest:
    return Rest()
