"""The exceptions of the clients. All are `ApiError`, so `error.code` and `error.code.retriable` have Kafka's meaning.

    ApiError
    |-- AuthenticationError      a login failed: wrong user, password or mechanism
    |   `-- HandshakeError       a TLS handshake failed: one side does not trust the other's certificate
    |-- ProducerFencedError      a newer producer uses the same transactional id: close this one
    |-- TransactionAbortableError  the transaction cannot be committed any more: abort it and begin another
    |-- FatalProducerError       the producer cannot continue: close it
    |-- RecordTooLargeError      one record exceeds max.request.size or buffer.memory
    |-- BufferExhaustedError     buffer.memory was full for max.block.ms
    |-- DeliveryTimeoutError     not acknowledged within delivery.timeout.ms
    |-- SerializationError       a serializer or deserializer failed; names topic, and partition and offset if known
    |-- CorruptRecordError       a fetched batch is damaged; carries topic, partition and offset
    |-- OffsetOutOfRangeError    a position does not exist, and auto.offset.reset names no other
    |-- NoOffsetError            no offset is committed and auto.offset.reset is none
    |-- CommitFailedError        the group assigned the partitions to other members before the commit
    `-- WakeupError              `wakeup` interrupted a poll

Calls that the client's state does not allow (`begin` twice, `poll` without partitions) raise `ClientStateError`; wrong
settings raise `base.errors.ConfigError`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from rookery.base.errors import ApiError, ErrorCode, RookeryError
from rookery.base.types import Offset, TopicPartition
from rookery.net.errors import AuthenticationError as AuthenticationError
from rookery.net.errors import HandshakeError as HandshakeError


class ClientStateError(RookeryError):
    """The client's state does not allow the call; the text names the call that it does allow."""


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
    """A fetched batch is damaged. `offset` is the last offset that cannot be read.

    `advice` says what to do; the default advice is to seek to the offset after it.
    """

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
        # The error does not come from a broker, and ApiError's text would begin with "NONE: ".
        self.args = (self.message,)


@contextmanager
def suppress_abort_errors() -> Iterator[None]:
    """Suppress what aborting a transaction raises, so that the error that caused the abort is raised instead.

    Errors after which the producer is unusable are not suppressed.
    """
    try:
        yield
    except (ProducerFencedError, FatalProducerError):
        raise
    except (ApiError, ClientStateError):
        pass
