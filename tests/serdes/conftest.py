"""Fixtures: a registry that records the requests it receives, and a client connected to it."""

from collections.abc import Iterator

import pytest

from rookery.serdes import RegistryClient
from tests.serdes.fake_registry import FakeRegistry, fake_registry


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[RegistryClient]:
    with RegistryClient(server.url) as client:
        yield client
