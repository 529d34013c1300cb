import pytest

from rookery.base.errors import ErrorCode
from rookery.client.produce.transaction_errors import ErrorKind, Request, classify_error

TABLE = {
    Request.INIT: {
        ErrorKind.RETRY: [
            "NOT_COORDINATOR",
            "COORDINATOR_NOT_AVAILABLE",
            "CONCURRENT_TRANSACTIONS",
            "NETWORK_EXCEPTION",
        ],
        ErrorKind.UNAUTHORIZED: ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"],
        ErrorKind.FENCED: ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
        ErrorKind.ABORTABLE: ["TRANSACTION_ABORTABLE"],
        ErrorKind.FATAL: ["INVALID_TRANSACTION_TIMEOUT", "UNSUPPORTED_VERSION", "UNKNOWN_SERVER_ERROR"],
    },
    Request.ADD_PARTITIONS: {
        ErrorKind.RETRY: ["COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION", "BROKER_NOT_AVAILABLE"],
        ErrorKind.FENCED: ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
        ErrorKind.RECOVERABLE: ["UNKNOWN_PRODUCER_ID"],
        ErrorKind.ABORTABLE: [
            "TOPIC_AUTHORIZATION_FAILED",
            "OPERATION_NOT_ATTEMPTED",
            "TRANSACTION_ABORTABLE",
            "UNKNOWN_SERVER_ERROR",
        ],
        ErrorKind.FATAL: [
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "INVALID_TXN_STATE",
            "INVALID_PRODUCER_ID_MAPPING",
            "UNSUPPORTED_VERSION",
        ],
    },
    Request.ADD_OFFSETS: {
        ErrorKind.RETRY: ["CONCURRENT_TRANSACTIONS", "REQUEST_TIMED_OUT"],
        ErrorKind.FENCED: ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
        ErrorKind.RECOVERABLE: ["UNKNOWN_PRODUCER_ID"],
        ErrorKind.ABORTABLE: ["GROUP_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"],
        ErrorKind.FATAL: ["INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_SERVER_ERROR"],
    },
    Request.COMMIT_OFFSETS: {
        ErrorKind.RETRY: ["NOT_COORDINATOR", "UNKNOWN_TOPIC_OR_PARTITION"],
        ErrorKind.FENCED: ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
        ErrorKind.COMMIT_FAILED: [
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "FENCED_INSTANCE_ID",
            "STALE_MEMBER_EPOCH",
            "GROUP_ID_NOT_FOUND",
        ],
        ErrorKind.ABORTABLE: ["GROUP_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"],
        ErrorKind.FATAL: [
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            "INVALID_TXN_STATE",
        ],
    },
    Request.END_COMMIT: {
        ErrorKind.RETRY: ["NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS", "NETWORK_EXCEPTION"],
        ErrorKind.FENCED: ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
        ErrorKind.RECOVERABLE: ["UNKNOWN_PRODUCER_ID"],
        ErrorKind.ABORTABLE: ["TRANSACTION_ABORTABLE"],
        ErrorKind.FATAL: ["INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_SERVER_ERROR"],
    },
    Request.END_ABORT: {
        ErrorKind.FENCED: ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"],
        ErrorKind.RECOVERABLE: ["UNKNOWN_PRODUCER_ID"],
        ErrorKind.FATAL: ["TRANSACTION_ABORTABLE", "INVALID_TXN_STATE"],
    },
    Request.PRODUCE: {
        ErrorKind.FENCED: ["PRODUCER_FENCED"],
        ErrorKind.FATAL: [
            "CLUSTER_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "UNSUPPORTED_VERSION",
            "INVALID_PRODUCER_ID_MAPPING",
        ],
        ErrorKind.RECOVERABLE: [
            "INVALID_PRODUCER_EPOCH",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "UNKNOWN_PRODUCER_ID",
            "INVALID_TXN_STATE",
            "TRANSACTION_ABORTABLE",
            "REQUEST_TIMED_OUT",
            "TOPIC_AUTHORIZATION_FAILED",
        ],
    },
}


@pytest.mark.parametrize("request_kind", Request)
def test_the_kind_of_each_error_code(request_kind: Request) -> None:
    for kind, names in TABLE[request_kind].items():
        for name in names:
            assert classify_error(request_kind, ErrorCode[name]) is kind, name
