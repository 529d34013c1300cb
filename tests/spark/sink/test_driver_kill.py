"""Kills a Spark driver in its own process in the middle of a commit; tests/soak does this many times."""

from pathlib import Path

import pytest

from rookery.testing.embedded import EmbeddedBroker
from tests.soak.series import Series, killed_at


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_driver_that_is_killed_between_two_ends(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    series = Series(broker, tmp_path, topic)
    series.add_files(2)
    assert series.run_driver(killed_at("ended")) < 0
    assert series.run_driver(None) == 0
    assert series.difference() == {}
