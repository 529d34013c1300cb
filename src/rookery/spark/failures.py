"""Errors of a cluster as messages that name the option to change. Pure.

Spark shows the message of the exception that ended a query. The user of the query sees its options, not the client.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import Offset, TopicName, TopicPartition
from rookery.client.errors import AuthenticationError
from rookery.spark.offsets import describe
from rookery.spark.query_error import QueryError

_LOG: Final = logging.getLogger(__name__)
# Error codes after which the same request fails again. PRODUCER_FENCED is among them because a fenced producer has a
# successor: a restart would fence that one in turn.
LASTING_CODES: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class SourceError(QueryError):
    """A topic cannot be read; the message says what to do."""


class DataLossError(SourceError):
    """Records that the query has not read no longer exist."""

    is_lasting = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"data loss: {what}. The records were deleted, by retention or by a request, before the query read them. "
            f"To continue with the remaining records, set the option failOnDataLoss to false"
        )


def report_data_loss(what: str, *, is_fatal: bool) -> None:
    """Raise DataLossError if `is_fatal` (the option failOnDataLoss), else log a warning."""
    if is_fatal:
        raise DataLossError(what)
    _LOG.warning("data loss, and failOnDataLoss is false: %s", what)


def unreachable(config: Mapping[str, str], error: ApiError) -> SourceError:
    if isinstance(error, AuthenticationError):
        return SourceError(f"{error}. In Spark these options begin with kafka., as kafka.security.protocol")
    return SourceError(
        f"no broker answers at {config.get('bootstrap.servers')}: check the option kafka.bootstrap.servers ({error})"
    )


def unknown_topics(option: str, names: Iterable[str]) -> SourceError:
    return SourceError(f"no such topic: {', '.join(sorted(names))}. Check the option {option}, or create the topic")


def unknown_partitions(option: str, partitions: Iterable[TopicPartition]) -> SourceError:
    return SourceError(f"no such partition: {describe(partitions)}. Check the option {option}")


def blocked_by_transaction(what: str, partition: TopicPartition, stable: Offset) -> SourceError:
    return SourceError(
        f"{what} cannot be read with kafka.isolation.level=read_committed: an open transaction blocks {partition} at "
        f"offset {stable}. Wait until it ends, or find it (rookery transactions list, rookery transactions "
        f"find-hanging) and abort it. The option kafka.default.api.timeout.ms limits how long the query waits for it"
    )


def dead_letters_failed(topic: TopicName, config: Mapping[str, str], error: ApiError) -> SourceError:
    what = f"writing dead letters to {topic} (options onError and deadLetterTopic)"
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return request_failed(what, config, error)
    return SourceError(
        f"{what} failed: {error}. A record plus the headers that describe its error must fit the option "
        f"kafka.max.request.size ({config.get('max.request.size')}) and max.message.bytes of the topic {topic}: raise "
        f"them, the latter with rookery configs alter"
    )


def request_failed(what: str, config: Mapping[str, str], error: ApiError) -> SourceError:
    """Return the error for any other failed request; most are network errors."""
    hint = "the options kafka.*"
    if isinstance(error, AuthenticationError):
        hint = "the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.*"
    if error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION) or error.code.retriable:
        hint = f"the brokers and the option kafka.bootstrap.servers ({config.get('bootstrap.servers')})"
    return SourceError(f"{what} failed: {error}. Check {hint}")
