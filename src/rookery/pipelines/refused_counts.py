"""How many rows a sink made dead letters of, by batch. Pure.

Whoever writes a batch notes it, in Spark's thread; Spark's report of the batch, which comes later, does not know of it
and is completed here.
"""

from dataclasses import replace
from typing import Final

from rookery.pipelines.progress import BatchReport

# Spark keeps its last 100 reports.
_BATCHES_MAX: Final = 1000


class RefusedCounts:
    """Of one flow, whose batches are numbered over all its runs."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, batch_id: int, count: int) -> None:
        if count:
            self._counts[batch_id] = self._counts.get(batch_id, 0) + count
        if len(self._counts) > _BATCHES_MAX:
            del self._counts[min(self._counts)]

    def complete(self, report: BatchReport) -> BatchReport:
        """What became a dead letter was not written to the sink."""
        count = self._counts.get(report.batch_id, 0)
        return replace(report, rows_out=max(report.rows_out - count, 0), dead_letters=report.dead_letters + count)
