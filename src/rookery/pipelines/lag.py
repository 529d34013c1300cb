"""Asks the broker for the end offsets of topics and for the age of the first record that a flow has not processed."""

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

from rookery.base.clock import Clock
from rookery.base.errors import ApiError
from rookery.base.types import Offset, TimestampMs, TopicPartition
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.client.sync import Consumer

# The broker returns at least one whole batch, however small the limit; more is not needed.
_SMALL_FETCH: Final = {"max.partition.fetch.bytes": "1", "fetch.max.wait.ms": "100", "auto.offset.reset": "earliest"}
_TIMEOUT_S: Final = 1.0
_PARTITIONS_MAX: Final = 16


class LagLookup:
    """Looks up offsets and timestamps with one consumer, which connects at the first lookup."""

    def __init__(self, config: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._config = {name: text for name, text in config.items() if name in CONSUMER_KEYS} | _SMALL_FETCH
        self._consumer: Consumer[bytes, bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the end offsets of `partitions`; an empty dict if the broker does not respond in time."""
        try:
            return self._get_consumer().end_offsets(list(partitions), timeout_s=_TIMEOUT_S) if partitions else {}
        except ApiError:
            return {}

    def oldest_ms(
        self, positions: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
    ) -> TimestampMs | None:
        """Return the lowest timestamp of the records at `positions`, found by a small fetch of each; None if none came.

        All positions are before the `ends`. There may still be no record between them, but only a transaction marker.
        """
        try:
            return min(self._timestamps(dict(list(positions.items())[:_PARTITIONS_MAX]), ends), default=None)
        except ApiError:
            return None

    def _get_consumer(self) -> Consumer[bytes, bytes]:
        self._consumer = self._consumer or Consumer(self._config)
        return self._consumer

    def _timestamps(
        self, positions: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
    ) -> list[TimestampMs]:
        consumer = self._get_consumer()
        consumer.assign(list(positions))
        for partition, offset in positions.items():
            consumer.seek(partition, offset)
        found: dict[TopicPartition, TimestampMs] = {}
        pending = set(positions)
        deadline_s = self._clock.monotonic() + _TIMEOUT_S
        while pending and self._clock.monotonic() < deadline_s:
            for record in consumer.poll(_TIMEOUT_S / 4, max_records=1):
                found.setdefault(TopicPartition(record.topic, record.partition), record.timestamp_ms)
            pending = {tp for tp in pending - found.keys() if consumer.position(tp, timeout_s=_TIMEOUT_S) < ends[tp]}
            # Partitions that are done are not fetched again.
            consumer.assign(pending)
        return list(found.values())
