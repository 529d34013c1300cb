"""Fixtures: the REST app of an empty registry."""

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient

from tests.registry.rest.memory import Rest


@pytest.fixture(scope="session", autouse=True)
def _one_event_loop() -> Iterator[None]:
    """Share one event loop: by default a test client starts a thread with a loop for every request."""
    with start_blocking_portal() as portal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestClient, "portal", portal)
        yield


@pytest.fixture
def rest() -> Rest:
    return Rest()
