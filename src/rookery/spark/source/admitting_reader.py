"""The stream reader for Spark 4.2 and newer, which have admission control for sources in Python.

Spark passes the position of the query to the reader and whether another micro-batch may follow. It runs
Trigger.AvailableNow in as many micro-batches as the limits require.
"""

from typing import Final

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rookery.spark.offsets import OffsetJson
from rookery.spark.source.stream_reader import StreamReader

# Not ReadAllAvailable: that is the limit by which Trigger.Once is recognized.
_NO_LIMIT: Final = ReadMaxRows(2**63 - 1)


class AdmittingReader(StreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self.stop_at_current_ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one of the limits. Spark passes it to `latestOffset`, which applies all of them."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return _NO_LIMIT

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark's name
        return self.next_end(start, takes_all=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        return self.latest_seen() or None
