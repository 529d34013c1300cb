"""What the error codes of a transactional producer's requests mean.

The meaning of a code depends on the request that got it (`classify_error`). The kinds are those of Kafka's own client,
as summarized by KIP-1050: retriable; abortable (the transaction is lost, the producer is not); fenced or fatal (the
producer is lost).

Pure. `transactions` acts on the kinds, `transaction_calls` retries.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from rookery.base.errors import ApiError, ErrorCode


class Request(Enum):
    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END_COMMIT = "EndTxn (commit)"
    END_ABORT = "EndTxn (abort)"
    PRODUCE = "Produce"


class ErrorKind(Enum):
    """How to treat an error code.

    RECOVERABLE is ABORTABLE, and the epoch must be raised afterwards. UNAUTHORIZED: the request had no effect, and may
    be sent again when the user has the permission.
    """

    RETRY = auto()
    ABORTABLE = auto()
    RECOVERABLE = auto()
    COMMIT_FAILED = auto()
    UNAUTHORIZED = auto()
    FENCED = auto()
    FATAL = auto()


_FENCED: Final = {ErrorCode.PRODUCER_FENCED: ErrorKind.FENCED, ErrorCode.INVALID_PRODUCER_EPOCH: ErrorKind.FENCED}
_COORDINATOR: Final = {
    **_FENCED,
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorKind.RECOVERABLE,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorKind.ABORTABLE,
}
# These do not depend on the content of the request, and would fail the next transaction as well.
_LASTING: Final = dict.fromkeys(
    (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    ErrorKind.FATAL,
)
_GROUP_REBALANCED: Final = dict.fromkeys(
    (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    ErrorKind.COMMIT_FAILED,
)

# For each request, the codes with their own kind, and the kind of all others. Retriable codes are not listed.
_ERROR_KINDS: Final[Mapping[Request, tuple[Mapping[ErrorCode, ErrorKind], ErrorKind]]] = {
    Request.INIT: (
        {
            **_FENCED,
            ErrorCode.TRANSACTION_ABORTABLE: ErrorKind.ABORTABLE,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorKind.UNAUTHORIZED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorKind.UNAUTHORIZED,
        },
        ErrorKind.FATAL,
    ),
    Request.ADD_PARTITIONS: (
        {**_COORDINATOR, **_LASTING, ErrorCode.INVALID_TXN_STATE: ErrorKind.FATAL},
        ErrorKind.ABORTABLE,
    ),
    Request.ADD_OFFSETS: ({**_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorKind.ABORTABLE}, ErrorKind.FATAL),
    Request.COMMIT_OFFSETS: (
        {
            **_FENCED,
            **_GROUP_REBALANCED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorKind.ABORTABLE,
            ErrorCode.TRANSACTION_ABORTABLE: ErrorKind.ABORTABLE,
        },
        ErrorKind.FATAL,
    ),
    Request.END_COMMIT: (_COORDINATOR, ErrorKind.FATAL),
    # An error whose remedy is an abort is fatal if it comes from the abort: the retries would never end.
    Request.END_ABORT: ({**_COORDINATOR, ErrorCode.TRANSACTION_ABORTABLE: ErrorKind.FATAL}, ErrorKind.FATAL),
    # A leader also returns INVALID_PRODUCER_EPOCH after a transaction timed out. Only the coordinator can tell that
    # from fencing (KIP-588), so the transaction is aborted, and the coordinator's response to the abort decides.
    Request.PRODUCE: (
        {
            **_LASTING,
            ErrorCode.PRODUCER_FENCED: ErrorKind.FENCED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorKind.FATAL,
        },
        ErrorKind.RECOVERABLE,
    ),
}


def classify_error(request: Request, code: ErrorCode) -> ErrorKind:
    """Return the kind of an error code in the response to `request`.

    For Produce, only codes that are not retried are passed: `sender` does the retries.
    """
    if request is not Request.PRODUCE and (code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE):
        return ErrorKind.RETRY
    codes, otherwise = _ERROR_KINDS[request]
    return codes.get(code, otherwise)


# Explanations for the codes that coordinators return without a message.
_REASONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.PRODUCER_FENCED: "a newer producer has this transactional.id, or the transaction timed out",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has this transactional.id, or the transaction timed out",
    ErrorCode.INVALID_TXN_STATE: "the coordinator has no such transaction; it may have timed out",
}


def reason_of(error: ApiError) -> str:
    return error.message or _REASONS.get(error.code, error.code.name)
