"""Reports the results of records: to futures, delivery callbacks and interceptors.

Each batch is reported once, by `deliver` or by `fail`. Of a failed batch, asyncio logs at most the first future whose
exception is never retrieved, and none in a transaction, so that a failure does not fill the log. Exceptions of
callbacks (once for each batch) and of interceptors are logged and have no other effect. `sender` and `base` call this.
"""

import asyncio
from asyncio import InvalidStateError
from collections.abc import Sequence
from typing import Any, TypeAlias

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TimestampMs, TopicPartition
from rookery.client.produce.batches import Batch
from rookery.client.produce.records import BatchMetadata, ProducerInterceptor, ProducerRecord, RecordMetadata
from rookery.telemetry.library_logs import LibraryLogger

RecordFuture: TypeAlias = asyncio.Future[RecordMetadata]
RecordBatch: TypeAlias = Batch[RecordFuture]

_log = LibraryLogger(__name__)


class PackedGroup:
    """The batches of one `send_arrow` call, and the future of where they were written."""

    def __init__(self, future: asyncio.Future[list[BatchMetadata]], *, log_unretrieved: bool = True) -> None:
        self.future = future
        self._must_be_seen = log_unretrieved
        # One is for the `send_arrow` call itself, until it has queued all batches.
        self._open_count = 1
        self.has_batches = False
        self._delivered: list[BatchMetadata] = []

    def expect(self) -> None:
        """Wait for one more batch."""
        self.has_batches = True
        self._open_count += 1

    def delivered(self, metadata: BatchMetadata) -> None:
        self._delivered.append(metadata)
        self.finish()

    def failed(self, error: ApiError) -> None:
        """Fail the future with the first error; other batches of the group may have been written."""
        if not self.future.done():
            self.future.set_exception(error)
            if not self._must_be_seen:
                self.future.exception()
        self.finish()

    def abandon(self) -> None:
        """Cancel the future: `send_arrow` raised before all batches were queued, and did not return it."""
        self.future.cancel()

    def finish(self) -> None:
        self._open_count -= 1
        if self._open_count == 0 and not self.future.done():
            self.future.set_result(sorted(self._delivered))


class Interceptors:
    """Calls the interceptors of a producer, in their order."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                _log.exception("an interceptor failed in on_send", interceptor=type(interceptor).__name__)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ApiError | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                _log.exception("an interceptor failed in on_acknowledgement", interceptor=type(interceptor).__name__)


class Receipts:
    """Resolves the futures of records.

    `log_unretrieved`: asyncio logs a failure that is never retrieved. False in transactions, whose commits raise it.
    """

    def __init__(self, interceptors: Interceptors, *, log_unretrieved: bool = True) -> None:
        self._interceptors = interceptors
        self._must_be_seen = log_unretrieved

    def deliver(self, batch: RecordBatch, base_offset: Offset, append_time_ms: TimestampMs) -> None:
        """Report a batch that was written from `base_offset` on. A value that the broker did not return is -1."""
        if batch.group is not None:
            batch.group.delivered(_batch_metadata(batch, base_offset, append_time_ms))
            return
        rows = batch.metadata_rows(base_offset, append_time_ms)
        for future, row in zip(batch.tokens, rows, strict=True):
            # The caller may have cancelled its future.
            try:
                future.set_result(row)
            except InvalidStateError:
                continue
        if batch.callbacks is not None or self._interceptors:
            self._notify(batch, rows, [None] * len(rows))

    def fail(self, batch: RecordBatch, error: ApiError, record_errors: Sequence[tuple[int, str | None]] = ()) -> None:
        """Report a failed batch. `record_errors` are the indexes of the invalid records, with the reasons."""
        if batch.group is not None:
            batch.group.failed(error)
            return
        errors = [error] * batch.record_count
        if record_errors:
            errors = _record_errors(batch.partition, error, record_errors, batch.record_count)
        is_first = self._must_be_seen and batch.callbacks is None
        for future, own_error in zip(batch.tokens, errors, strict=True):
            if not future.done():
                future.set_exception(own_error)
                if not is_first:
                    future.exception()
                is_first = False
        if batch.callbacks is not None or self._interceptors:
            self._notify(batch, [None] * len(errors), errors)

    def _notify(
        self, batch: RecordBatch, rows: Sequence[RecordMetadata | None], errors: Sequence[ApiError | None]
    ) -> None:
        failure: Exception | None = None
        for index, callback in batch.callbacks or ():
            try:
                callback(rows[index], errors[index])
            except Exception as raised:
                failure = failure or raised
        if failure is not None:
            _log.error("on_delivery failed", partition=str(batch.partition), exc_info=failure)
        if self._interceptors:
            for row, error in zip(rows, errors, strict=True):
                self._interceptors.on_acknowledgement(row, error)


def _batch_metadata(batch: RecordBatch, base_offset: Offset, append_time_ms: TimestampMs) -> BatchMetadata:
    newest_ms = max(batch.timestamps) if batch.packed is None else batch.packed.max_timestamp_ms
    timestamp_ms = append_time_ms if append_time_ms >= 0 else newest_ms
    return BatchMetadata(*batch.partition, base_offset, batch.record_count, timestamp_ms)


def _record_errors(
    partition: TopicPartition, error: ApiError, faulty: Sequence[tuple[int, str | None]], record_count: int
) -> list[ApiError]:
    """Return an error for each record: its own reason for an invalid one, a general one for the others."""
    not_written = ApiError(
        ErrorCode.INVALID_RECORD, f"partition {partition}: not written, because other records of its batch are invalid"
    )
    errors = [not_written] * record_count
    for index, message in faulty:
        if 0 <= index < record_count:
            errors[index] = ApiError(error.code, f"partition {partition}: {message}" if message else error.message)
    return errors
