"""Records that threads hand to the clients' thread, and the producer there that takes them.

A record is bytes when it is handed over: interceptors and serializers have seen it in the thread that sends, which may
use its objects again at once. The `Delivery` that the thread holds lies in the batch itself, also of a record that had
to wait. So whoever settles the batch settles the delivery, and a record has one fate: either it got into a batch, or
`sync.producer` refuses it.
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


class Handed(NamedTuple):
    """A record on its way from a thread to the loop."""

    topic: TopicName
    key: bytes | None
    value: bytes | None
    partition: PartitionIndex | None
    headers: Headers
    timestamp_ms: TimestampMs | None
    on_delivery: DeliveryCallback | None
    delivery: Delivery
    size_bytes: int


# What `Handed(*row)` does, without a call in Python for each record.
make_handed: Callable[[tuple[object, ...]], Handed] = partial(tuple.__new__, Handed)

# The delivery of the record that this task sends patiently, until it lies in a batch.
_patient: ContextVar[Delivery | None] = ContextVar("_patient", default=None)


class HandedProducer(AsyncProducer[Any, Any]):
    """A producer that takes records with futures that were made elsewhere. Used on the loop only."""

    def __init__(
        self, config: Mapping[str, object], *, interceptors: Sequence[ProducerInterceptor], **options: Any
    ) -> None:
        super().__init__(config, **options)
        self._interceptors = _Acknowledging(interceptors)
        self._delivery: Delivery | None = None

    def _make_shell(self) -> Any:
        shell = super()._make_shell()
        self._new_future = self._next_future
        # Interceptors are told by the batches: only a partitioner has a say here.
        self._is_plain = self._choose_partition is None
        return shell

    def _next_future(self) -> RecordFuture:
        """Right before the record is appended: of `send_now`, or of the task that was patient and has room now."""
        delivery: Any = self._delivery
        if delivery is None:
            delivery = _patient.get()
            _patient.set(None)
        future: RecordFuture = delivery
        return future

    def send_now(self, record: Handed) -> bool:
        """Send a record if nothing has to be waited for. Raises if the transaction, or its lack, forbids to send."""
        if self._transactions is not None:
            self._transactions.check_may_send()
        if not self._is_plain:
            return False
        topic, key, value, partition, headers, timestamp_ms, on_delivery, self._delivery, _ = record
        try:
            return self._append(topic, key, value, partition, headers, timestamp_ms, on_delivery) is not None
        finally:
            self._delivery = None

    async def send_patiently(self, record: Handed) -> None:
        """Send a record that `send_now` did not take, and wait for what it needs. Raises what `send` raises.

        Cancelled, it may be in its batch already: `is_in_batch` tells, in the same task.
        """
        _patient.set(record.delivery)
        topic, key, value, partition, headers, timestamp_ms, on_delivery, _, _ = record
        await self._queue_record(ProducerRecord(topic, value, key, partition, headers, timestamp_ms), on_delivery)

    @property
    def is_in_batch(self) -> bool:
        """Whether the record that this task sent last got into a batch."""
        return _patient.get() is None

    def tell_interceptors(self, error: ApiError) -> None:
        """Of a record that they saw, and that will never be in a batch."""
        self._interceptors.on_acknowledgement(None, error)

    def count_error(self, topic: TopicName) -> None:
        """A record failed before it was handed over."""
        self._metrics.errors(topic, 1)

    @property
    def has_open_transaction(self) -> bool:
        return self._transactions is not None and self._transactions.is_open


class _Acknowledging(Interceptors):
    """They saw the record in the thread that sent it; what is left is to tell them what became of it."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return record
