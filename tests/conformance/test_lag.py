"""Lag in seconds on a known schedule, seen from outside: the same scenarios with Rookery and with Apache Kafka."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.conformance import brokers
from tests.lag.schedule import SCENARIOS, Scenario


@pytest.fixture(scope="module", params=brokers.BOTH)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from brokers.start(request.param, tmp_path_factory.mktemp(request.param), {"log.cleaner.backoff.ms": "50"})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_lag_on_a_schedule(bootstrap: str, scenario: Scenario) -> None:
    asyncio.run(scenario(bootstrap))
