"""What the clients raise. Everything is an `ApiError`, so `error.code` and `error.code.retriable` tell what Kafka says.

    ApiError
    |-- AuthenticationError      the broker and the client do not trust each other: user and password
    |   `-- HandshakeError       or certificates, in TLS
    |-- ProducerFencedError      a newer producer took over our transactional id: close this one
    |-- TransactionAbortableError  the transaction cannot be committed any more: abort it and begin another
    |-- FatalProducerError       the producer cannot go on: close it
    |-- RecordTooLargeError      one record exceeds max.request.size or buffer.memory
    |-- BufferExhaustedError     no room in buffer.memory within max.block.ms
    |-- DeliveryTimeoutError     not acknowledged within delivery.timeout.ms
    |-- SerializationError       a serializer or deserializer failed; names topic, and partition and offset if known
    |-- CorruptRecordError       a fetched batch is damaged; carries topic, partition and offset
    |-- OffsetOutOfRangeError    a position does not exist, and there is no other to go to
    |-- NoOffsetError            nothing committed and auto.offset.reset is none
    |-- CommitFailedError        the group gave our partitions to others before the commit
    `-- WakeupError              `wakeup` interrupted a poll

Calls that make no sense in the client's state (`begin` twice, `poll` without partitions) are `ClientStateError`;
wrong settings are `base.errors.ConfigError`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from rookery.base.errors import ApiError, ErrorCode, RookeryError
from rookery.base.types import Offset, TopicPartition
from rookery.net.errors import AuthenticationError as AuthenticationError
from rookery.net.errors import HandshakeError as HandshakeError


class ClientStateError(RookeryError):
    """The call does not fit the client's state; the text says which call would."""


class ProducerFencedError(ApiError):
    def __init__(self, message: str | None = None, code: ErrorCode = ErrorCode.PRODUCER_FENCED) -> None:
        super().__init__(code, message or "a newer producer with the same transactional.id is active")


class TransactionAbortableError(ApiError):
    def __init__(self, message: str, code: ErrorCode = ErrorCode.TRANSACTION_ABORTABLE) -> None:
        super().__init__(code, message)


class FatalProducerError(ApiError):
    pass


class RecordTooLargeError(ApiError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferExhaustedError(ApiError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryTimeoutError(ApiError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class SerializationError(ApiError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class CorruptRecordError(ApiError):
    """`advice` says what to do; by default to seek behind `offset`, which is the last that cannot be read."""

    def __init__(self, partition: TopicPartition, offset: Offset, reason: str, *, advice: str | None = None) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"topic {partition.topic}, partition {partition.partition}, offset {offset}: {reason}; "
            f"{advice or f'seek to {offset + 1} to skip it'}",
        )
        self.partition = partition
        self.offset = offset


class OffsetOutOfRangeError(ApiError):
    def __init__(
        self, partition: TopicPartition, offset: Offset, reason: str = "and auto.offset.reset is none"
    ) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no offset {offset}, {reason}")
        self.partition = partition
        self.offset = offset


class NoOffsetError(ApiError):
    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        names = ", ".join(map(str, sorted(partitions)))
        super().__init__(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"nothing committed for {names}, and auto.offset.reset is none"
        )
        self.partitions = frozenset(partitions)


class CommitFailedError(ApiError):
    pass


class WakeupError(ApiError):
    def __init__(self) -> None:
        super().__init__(ErrorCode.NONE, "woken up by wakeup()")
        # No broker said this: without the code, which would read as "NONE: ...".
        self.args = (self.message,)


@contextmanager
def while_aborting() -> Iterator[None]:
    """Why a transaction is aborted matters more than what the abort raises, unless that is the end of the producer."""
    try:
        yield
    except (ProducerFencedError, FatalProducerError):
        raise
    except (ApiError, ClientStateError):
        pass
