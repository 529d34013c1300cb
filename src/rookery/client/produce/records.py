"""The producer's data types: records, their metadata, and the protocols of the hooks that users supply.

Pure. `producer` creates these; users import them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from rookery.base.errors import ApiError
from rookery.base.types import Offset, PartitionIndex, TimestampMs, TopicName
from rookery.client.errors import SerializationError
from rookery.client.generics import K, V
from rookery.records.record import Headers

_Data = TypeVar("_Data", contravariant=True)

# Timestamps are signed 64-bit integers.
TIMESTAMP_MS_MAX = 2**63 - 1
# The size of a key or value that is None, as in Kafka's RecordMetadata.
NO_SIZE = -1

HeadersLike: TypeAlias = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


class ProducerRecord(NamedTuple, Generic[K, V]):
    """A record before it is serialized; interceptors get it and may return another one."""

    topic: TopicName
    value: V | None = None
    key: K | None = None
    partition: PartitionIndex | None = None
    headers: Headers = ()
    timestamp_ms: TimestampMs | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written; the offset is -1 if the broker did not return it (acks=0, an old duplicate)."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    timestamp_ms: TimestampMs
    serialized_key_size: int
    serialized_value_size: int


class BatchMetadata(NamedTuple):
    """Where a whole batch of `send_arrow` was written; `timestamp_ms` is its newest record's or the broker's."""

    topic: TopicName
    partition: PartitionIndex
    base_offset: Offset
    record_count: int
    timestamp_ms: TimestampMs


DeliveryCallback: TypeAlias = Callable[[RecordMetadata | None, ApiError | None], object]


class SerializerObject(Protocol[_Data]):
    def serialize(self, topic: TopicName, data: _Data, /) -> bytes | None: ...


Serializer: TypeAlias = SerializerObject[_Data] | Callable[[TopicName, _Data], bytes | None]


class ProducerInterceptor(Protocol):
    """Both methods are called for every record. Their exceptions are logged and have no other effect."""

    def on_send(self, record: ProducerRecord[Any, Any], /) -> ProducerRecord[Any, Any]:
        """Called before the record is serialized. Return it, or another one instead."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ApiError | None, /) -> None:
        """Called with the metadata of a written record, or the error of a failed one; the other argument is None."""
        ...


def normalize_headers(headers: HeadersLike) -> Headers:
    """Return pairs or a mapping as a tuple of pairs. Raises SerializationError if they are not valid headers."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        normal = tuple([(name, value) for name, value in pairs])
    except (TypeError, ValueError):
        raise SerializationError(f"headers are pairs of a name and bytes, or a mapping, not {headers!r}") from None
    for name, value in normal:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise SerializationError(f"a header is a name and bytes or None, not {name!r}: {value!r}")
        if not name.isascii():
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise SerializationError(f"the name of a header cannot be encoded: {error}") from None
    return normal


def check_timestamp(topic: TopicName, timestamp_ms: object) -> TimestampMs:
    """Return milliseconds since 1970. Raises SerializationError for values that the format cannot hold."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise SerializationError(f"topic {topic}: a timestamp is a whole number of milliseconds, not {timestamp_ms!r}")
    if timestamp_ms < 0:
        raise SerializationError(f"topic {topic}: the timestamp {timestamp_ms} is before 1970")
    if timestamp_ms > TIMESTAMP_MS_MAX:
        raise SerializationError(f"topic {topic}: the timestamp {timestamp_ms} is larger than {TIMESTAMP_MS_MAX}")
    return int(timestamp_ms)
