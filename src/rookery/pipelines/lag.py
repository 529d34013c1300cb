"""Where topics end, and how old the first record is that a flow has not processed: asked of the broker."""

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

from rookery.base.clock import Clock
from rookery.base.errors import ApiError
from rookery.base.types import Offset, TimestampMs, TopicPartition
from rookery.client.settings.consumer import CONSUMER_KEYS
from rookery.client.sync import Consumer

# The batch that a record is in comes as a whole, in any case; more is not wanted.
_SMALL_FETCH: Final = {"max.partition.fetch.bytes": "1", "fetch.max.wait.ms": "100", "auto.offset.reset": "earliest"}
_PATIENCE_S: Final = 1.0
_PARTITIONS_MAX: Final = 16


class LagLookup:
    """Connects when it is first asked."""

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
        """Empty if the broker does not tell in time."""
        try:
            return self._connected().end_offsets(list(partitions), timeout_s=_PATIENCE_S) if partitions else {}
        except ApiError:
            return {}

    def oldest_ms(
        self, positions: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
    ) -> TimestampMs | None:
        """The timestamp of the oldest record at these positions, by a small fetch of each; None if none came.

        All positions are before the ends. What lies between may be no record, but the mark of a transaction.
        """
        try:
            return min(self._timestamps(dict(list(positions.items())[:_PARTITIONS_MAX]), ends), default=None)
        except ApiError:
            return None

    def _connected(self) -> Consumer[bytes, bytes]:
        self._consumer = self._consumer or Consumer(self._config)
        return self._consumer

    def _timestamps(
        self, positions: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
    ) -> list[TimestampMs]:
        consumer = self._connected()
        consumer.assign(list(positions))
        for partition, offset in positions.items():
            consumer.seek(partition, offset)
        found: dict[TopicPartition, TimestampMs] = {}
        open_partitions = set(positions)
        deadline_s = self._clock.monotonic() + _PATIENCE_S
        while open_partitions and self._clock.monotonic() < deadline_s:
            for record in consumer.poll(_PATIENCE_S / 4, max_records=1):
                found.setdefault(TopicPartition(record.topic, record.partition), record.timestamp_ms)
            open_partitions = {
                tp for tp in open_partitions - found.keys() if consumer.position(tp, timeout_s=_PATIENCE_S) < ends[tp]
            }
            # The others are not fetched any more.
            consumer.assign(open_partitions)
        return list(found.values())
