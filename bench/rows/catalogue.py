"""All rows, in the order of the report."""

from bench.model import Row
from bench.rows import (
    clients,
    columns,
    compaction,
    floor,
    latency,
    memory,
    recovery,
    registry,
    requests,
    security,
    spark,
    startup,
    throughput,
    transactions,
)

ALL_ROWS: tuple[Row, ...] = (
    *throughput.ROWS,
    *latency.ROWS,
    *transactions.ROWS,
    *clients.ROWS,
    *columns.ROWS,
    *registry.ROWS,
    *spark.ROWS,
    *requests.ROWS,
    *security.ROWS,
    *startup.ROWS,
    *memory.ROWS,
    *recovery.ROWS,
    *compaction.ROWS,
    *floor.ROWS,
)
