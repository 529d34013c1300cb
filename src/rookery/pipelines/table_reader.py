"""A partition's table in a task: what the process kept of it, and what has come since, which is all that is read.

Tasks of Spark run in processes that serve many of them, one after the other. Which of them gets a task is chance: each
has its own tables, and one that has not had a partition yet, or not for long, reads all of it.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rookery.base.clock import SystemClock
from rookery.pipelines.table_cache import Incarnation, TableCache
from rookery.pipelines.table_rows import IDENTITY, KeyTable, identities
from rookery.spark.options import ReadOptions
from rookery.spark.source.ranges import OffsetRange
from rookery.spark.source.task_reader import ReadPlan

_RAW_KEY: Final = "rawKey"
# Spark holds the whole of a batch in memory.
_PORTION_BYTES: Final = 16 * 1024 * 1024

TABLES: Final = TableCache(clock=SystemClock())


def read_table(
    plan: ReadPlan, wanted: OffsetRange, incarnation: Incarnation, tables: TableCache
) -> Iterator[pa.RecordBatch]:
    """At least the latest record of each key. What is too large to be kept is handed on as it comes, with old records.

    `incarnation` was looked up before the range was: if the topic changes meanwhile, the next read finds out. A record
    that cannot be decoded fails the read each time, or is left out and buried when it is read; it then counts as read.
    """
    name = (_fingerprint(plan), wanted.partition)
    columns = plan.arrow_schema.names
    kept = tables.find(name, incarnation, wanted.start, wanted.end)
    table = KeyTable.empty(wanted.start, plan.arrow_schema) if kept is None else kept.since(wanted.start)
    room_bytes = tables.room_for(name)
    records = _records(plan, OffsetRange(wanted.partition, table.end, wanted.end))
    gathered: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in records:
        gathered.append(batch)
        size_bytes += batch.nbytes
        # As much as the table itself, lest a long topic be merged into a large table bit by bit.
        if size_bytes >= max(_PORTION_BYTES, table.size_bytes):
            table, gathered, size_bytes = table.with_records(gathered), [], 0
            if table.size_bytes > room_bytes:
                tables.forget(name)
                break
    else:
        table = table.with_records(gathered).up_to(wanted.end)
        tables.keep(name, incarnation, table)
    yield from _portions(table.rows.select(columns))
    yield from (batch.select(columns) for batch in records)


def _fingerprint(plan: ReadPlan) -> str:
    """Of everything that rows depend on, and who wants dead letters of them."""
    pins = [None if each is None else each.pin() for each in (plan.decoders.key, plan.decoders.value)]
    return repr((plan.options, pins, plan.arrow_schema.to_string()))


def _records(plan: ReadPlan, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """In the plan's columns, with an IDENTITY. Raw columns show all bytes: no pipeline sees those of a table."""
    schema = plan.arrow_schema
    with_keys = schema if _RAW_KEY in schema.names else schema.append(pa.field(_RAW_KEY, pa.binary()))
    options = replace(plan.options, include_raw="always")
    for batch in replace(plan, options=options, arrow_schema=with_keys).read(wanted):
        identity = identities(batch.column(_RAW_KEY), _failed(batch, options))
        yield batch.select(schema.names).append_column(pa.field(IDENTITY, pa.binary()), identity)


def _failed(batch: pa.RecordBatch, options: ReadOptions) -> pa.Array:
    """Which rows say themselves that they could not be decoded."""
    formats = (("key", options.key_format), ("value", options.value_format))
    errors = [
        pc.is_valid(pc.struct_field(batch.column(name), "error"))
        for name, form in formats
        if form is not None and form.detailed
    ]
    return reduce(pc.or_, errors, pa.repeat(pa.scalar(False), batch.num_rows))


def _portions(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    count = max(rows.num_rows * _PORTION_BYTES // max(rows.nbytes, 1), 1)
    yield from rows.to_batches(max_chunksize=count)
