"""The records that threads queue for the clients' thread, and the producer there that sends them.

A queued record is bytes: interceptors and serializers have run in the sending thread, which may reuse its objects
immediately. The `Delivery` that the sender holds is stored in the batch itself, also for a record that had to wait. So
completing the batch completes the delivery, and each record is completed exactly once: either it is in a batch, or
`sync.producer` fails it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from rookery.base.errors import ApiError
from rookery.base.types import PartitionIndex, TimestampMs, TopicName
from rookery.client.produce.producer import Producer as AsyncProducer
from rookery.client.produce.receipts import Interceptors, RecordFuture
from rookery.client.produce.records import DeliveryCallback, ProducerInterceptor, ProducerRecord
from rookery.client.sync.delivery import Delivery
from rookery.records.record import Headers


class QueuedRecord(NamedTuple):
    """A record that a thread has queued for the loop."""

    topic: TopicName
    key: bytes | None
    value: bytes | None
    partition: PartitionIndex | None
    headers: Headers
    timestamp_ms: TimestampMs | None
    on_delivery: DeliveryCallback | None
    delivery: Delivery
    size_bytes: int


# Like `QueuedRecord(*row)`, without a Python call for each record.
make_queued_record: Callable[[tuple[object, ...]], QueuedRecord] = partial(tuple.__new__, QueuedRecord)

# The delivery of the record that the current task sends with `send_waiting`; None once it is in a batch.
_waiting_delivery: ContextVar[Delivery | None] = ContextVar("_patient", default=None)


class LoopProducer(AsyncProducer[Any, Any]):
    """A producer whose records come with existing futures (`Delivery`). Used on the loop only."""

    def __init__(
        self, config: Mapping[str, object], *, interceptors: Sequence[ProducerInterceptor], **options: Any
    ) -> None:
        super().__init__(config, **options)
        self._interceptors = _AcknowledgementInterceptors(interceptors)
        self._delivery: Delivery | None = None

    def _make_shell(self) -> Any:
        shell = super()._make_shell()
        self._new_future = self._next_future
        # The batches call the interceptors, so only a partitioner prevents the direct path.
        self._is_plain = self._choose_partition is None
        return shell

    def _next_future(self) -> RecordFuture:
        """Return the delivery of the record that is about to be appended: by `send_now`, or by `send_waiting`."""
        delivery: Any = self._delivery
        if delivery is None:
            delivery = _waiting_delivery.get()
            _waiting_delivery.set(None)
        future: RecordFuture = delivery
        return future

    def send_now(self, record: QueuedRecord) -> bool:
        """Send a record if that needs no wait; return whether it was sent. Raises if the transaction's state forbids
        it."""
        if self._transactions is not None:
            self._transactions.check_may_send()
        if not self._is_plain:
            return False
        topic, key, value, partition, headers, timestamp_ms, on_delivery, self._delivery, _ = record
        try:
            return self._append(topic, key, value, partition, headers, timestamp_ms, on_delivery) is not None
        finally:
            self._delivery = None

    async def send_waiting(self, record: QueuedRecord) -> None:
        """Send a record that `send_now` did not send; wait for metadata or memory. Raises like `send`.

        If it is cancelled, the record may be in a batch already: check `is_in_batch` in the same task.
        """
        _waiting_delivery.set(record.delivery)
        topic, key, value, partition, headers, timestamp_ms, on_delivery, _, _ = record
        await self._queue_record(ProducerRecord(topic, value, key, partition, headers, timestamp_ms), on_delivery)

    @property
    def is_in_batch(self) -> bool:
        """Whether the last record of the current task is in a batch."""
        return _waiting_delivery.get() is None

    def notify_interceptors(self, error: ApiError) -> None:
        """Report `error` for a record that the interceptors saw and that will never be in a batch."""
        self._interceptors.on_acknowledgement(None, error)

    def count_error(self, topic: TopicName) -> None:
        """Count a record that failed before it was queued."""
        self._metrics.errors(topic, 1)

    @property
    def has_open_transaction(self) -> bool:
        return self._transactions is not None and self._transactions.is_open


class _AcknowledgementInterceptors(Interceptors):
    """Calls only `on_acknowledgement`: `on_send` has run in the sending thread."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return record
