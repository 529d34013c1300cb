"""A fixture of all tests of the sink."""

import pytest

from rookery.spark.sink.committer import Committer


@pytest.fixture(autouse=True)
def no_late_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for late tasks: in tests that play Spark, no task runs after an abort."""
    monkeypatch.setattr(Committer, "late_tasks_s", 0.0)
