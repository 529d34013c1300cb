"""Fixtures: a registry in memory, for tests of queries and commands."""

from collections.abc import Iterator

import pytest

from rookery.registry import candidates
from rookery.schemas import levels
from tests.registry.fake_format import FakeFormat
from tests.registry.harness import Harness


@pytest.fixture
def fake_formats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(candidates, "find_format", FakeFormat)
    monkeypatch.setattr(levels, "find_format", FakeFormat)
    candidates.parse_text.cache_clear()
    yield
    candidates.parse_text.cache_clear()


@pytest.fixture
def harness(fake_formats: None) -> Harness:
    """A registry in memory whose schemas are lists of fields."""
    return Harness()
