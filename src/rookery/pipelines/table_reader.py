"""Reads the table of a partition inside a task: the cached table of the process, and the records that came since.

Spark runs many tasks in one process, one after the other, and any process can get any task. Each process has its own
cache, and reads a partition in full if it has not had it before, or not recently.
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
# Spark holds a whole Arrow batch in memory: this bounds its size.
_CHUNK_BYTES: Final = 16 * 1024 * 1024

TABLES: Final = TableCache(clock=SystemClock())


def read_table(
    plan: ReadPlan, wanted: OffsetRange, incarnation: Incarnation, tables: TableCache
) -> Iterator[pa.RecordBatch]:
    """Yield at least the latest record of each key; if the table is too large to cache, older records of keys as well.

    `incarnation` was looked up before the range: if the topic changes in between, the next read notices. A record that
    cannot be decoded either fails each read, or becomes a dead letter when it is first read, and is not read again.
    """
    name = (_fingerprint(plan), wanted.partition)
    columns = plan.arrow_schema.names
    cached = tables.find(name, incarnation, wanted.start, wanted.end)
    table = KeyTable.empty(wanted.start, plan.arrow_schema) if cached is None else cached.since(wanted.start)
    free_bytes = tables.free_bytes(name)
    records = _records(plan, OffsetRange(wanted.partition, table.end, wanted.end))
    gathered: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in records:
        gathered.append(batch)
        size_bytes += batch.nbytes
        # Merge when the new records are as large as the table: merging small chunks into it takes quadratic time.
        if size_bytes >= max(_CHUNK_BYTES, table.size_bytes):
            table, gathered, size_bytes = table.with_records(gathered), [], 0
            if table.size_bytes > free_bytes:
                tables.remove(name)
                break
    else:
        table = table.with_records(gathered).up_to(wanted.end)
        tables.put(name, incarnation, table)
    yield from _chunks(table.rows.select(columns))
    yield from (batch.select(columns) for batch in records)


def _fingerprint(plan: ReadPlan) -> str:
    """Return a cache key of everything that the rows of a plan, and their dead letters, depend on."""
    pins = [None if each is None else each.pin() for each in (plan.decoders.key, plan.decoders.value)]
    return repr((plan.options, pins, plan.arrow_schema.to_string()))


def _records(plan: ReadPlan, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield records in the plan's columns, with an IDENTITY.

    `include_raw` changes the content of raw columns, which no pipeline uses for tables.
    """
    schema = plan.arrow_schema
    with_keys = schema if _RAW_KEY in schema.names else schema.append(pa.field(_RAW_KEY, pa.binary()))
    options = replace(plan.options, include_raw="always")
    for batch in replace(plan, options=options, arrow_schema=with_keys).read(wanted):
        identity = identities(batch.column(_RAW_KEY), _failed(batch, options))
        yield batch.select(schema.names).append_column(pa.field(IDENTITY, pa.binary()), identity)


def _failed(batch: pa.RecordBatch, options: ReadOptions) -> pa.Array:
    """Return which rows have an error in a decoded column."""
    formats = (("key", options.key_format), ("value", options.value_format))
    errors = [
        pc.is_valid(pc.struct_field(batch.column(name), "error"))
        for name, form in formats
        if form is not None and form.detailed
    ]
    return reduce(pc.or_, errors, pa.repeat(pa.scalar(False), batch.num_rows))


def _chunks(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    count = max(rows.num_rows * _CHUNK_BYTES // max(rows.nbytes, 1), 1)
    yield from rows.to_batches(max_chunksize=count)
