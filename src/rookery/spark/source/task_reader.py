"""Reads a range of offsets in a task: fetches raw batches, converts them to Arrow columns with the compiled kernel and
shapes them to the schema. No Python code runs per row, except for rows that cannot be decoded.

A `ReadPlan` is created on the driver, pickled and used in tasks, so it holds no client and no connection.
"""

from collections.abc import Iterator
from threading import Event
from typing import Final

import pyarrow as pa

from rookery.base.clock import SystemClock
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset
from rookery.base.values import value_class
from rookery.client.errors import OffsetOutOfRangeError
from rookery.client.settings.consumer import ConsumerSettings
from rookery.spark.clients import admin_for, consumer_for, producer_for
from rookery.spark.failures import blocked_by_transaction, dead_letters_failed, report_data_loss, request_failed
from rookery.spark.offsets import LATEST
from rookery.spark.options import ReadOptions
from rookery.spark.source.ranges import OffsetRange
from rookery.spark.source.row_shape import Shaped, shape
from rookery.spark.source.schema import Decoders

_PORTION_BYTES: Final = 16 * 1024 * 1024
# The interval at which an open transaction is checked.
_PAUSE_S: Final = 0.2


@value_class
class ReadPlan:
    options: ReadOptions
    decoders: Decoders
    arrow_schema: pa.Schema

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        for records in fetch(self.options, wanted):
            shaped = shape(records, self.arrow_schema, self.decoders, self.options)
            if shaped.dead is not None:
                _send_dead_letters(self.options, shaped)
            yield from _portions(shaped.rows)


def _send_dead_letters(options: ReadOptions, shaped: Shaped) -> None:
    """Send the dead letters before the remaining rows are returned, so that none is lost.

    Delivery is at least once: a failed task is tried again and sends them again.
    """
    from rookery.spark.dead_letter_columns import dead_letter_table

    table = dead_letter_table(shaped.dead, shaped.failures, options.dead_letter_topic)
    try:
        producer_for(options.dead_letter_config).send_arrow(table).result()
    except ApiError as error:
        (topic,) = set(table.column("topic").to_pylist())
        raise dead_letters_failed(topic, options.dead_letter_config, error) from error


def _portions(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch that is large because its records were well compressed: Spark holds a whole batch in memory."""
    count = max(rows.num_rows * _PORTION_BYTES // max(rows.nbytes, 1), 1)
    return (rows.slice(start, count) for start in range(0, rows.num_rows, count))


def fetch(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in the client's columns.

    Records that no longer exist fail the query or are skipped, as failOnDataLoss says.
    """
    config = options.client_config
    consumer = consumer_for(config)
    tp = wanted.partition
    position = wanted.start
    while position < wanted.end:
        try:
            _check_end(options, wanted)
            for batch in consumer.iterate_arrow(tp.topic, {tp.partition: position}, {tp.partition: wanted.end}):
                yield batch
                position = batch.column("offset")[-1].as_py() + 1
            return
        except OffsetOutOfRangeError:
            position = _skip_gap(options, wanted, position, consumer.beginning_offsets([tp])[tp])
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise request_failed(f"reading {wanted}", config, error) from error
            report_data_loss(f"{tp} no longer exists; {wanted} was to be read", is_fatal=options.fail_on_data_loss)
            return


def _check_end(options: ReadOptions, wanted: OffsetRange) -> None:
    """Wait until the end of the range can be read.

    With read_committed, records before `wanted.end` may belong to open transactions. Without the wait, the range would
    be read only up to the last stable offset, although the checkpoint says that it was read completely.
    """
    config, tp = options.client_config, wanted.partition
    consumer = consumer_for(config)
    if consumer.end_offsets([tp])[tp] >= wanted.end:
        return
    end = admin_for(config).list_offsets({tp: LATEST})[tp].offset
    if end < wanted.end:
        report_data_loss(f"{tp} ends at {end}, and {wanted} was to be read", is_fatal=options.fail_on_data_loss)
    clock = SystemClock()
    deadline_s = clock.monotonic() + ConsumerSettings.parse(config).common.default_api_timeout_ms / 1000
    while (stable := consumer.end_offsets([tp])[tp]) < min(end, wanted.end):
        if clock.monotonic() > deadline_s:
            raise blocked_by_transaction(str(wanted), tp, stable)
        Event().wait(_PAUSE_S)


def _skip_gap(options: ReadOptions, wanted: OffsetRange, position: Offset, beginning: Offset) -> Offset:
    report_data_loss(
        f"{wanted.partition} begins at {beginning}, and {wanted} was to be read from {position}",
        is_fatal=options.fail_on_data_loss,
    )
    return max(beginning, position)
