"""The name by which Spark knows our source and sink, and its own names of what it tells the tasks of a stream."""

from typing import Final

FORMAT: Final = "rookery"
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
