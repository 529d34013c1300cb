"""What all tests of the sink have in common."""

import pytest

from rookery.spark.sink.committer import Committer


@pytest.fixture(autouse=True)
def no_late_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that play Spark know when their tasks are done."""
    monkeypatch.setattr(Committer, "late_tasks_s", 0.0)
