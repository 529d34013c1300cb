"""What went wrong with a cluster, in words that name the option to change. Pure.

Spark shows the text of an exception that ends a query, and the user of a query knows its options only.
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
# Answers of a broker after which the same request is refused again. A producer that was fenced has a successor, with
# which it would fight.
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
    """A topic cannot be read, and what to do about it."""


class DataLossError(SourceError):
    """Records are gone that the query was to read."""

    is_lasting = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"data loss: {what}. Retention or somebody deleted what the query has not read. To go on with what is "
            f"left, set the option failOnDataLoss to false"
        )


def report_data_loss(what: str, *, is_fatal: bool) -> None:
    """Records are gone: the end of the query, or a line in the log, as failOnDataLoss says."""
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
        f"{what} was to be read with kafka.isolation.level=read_committed, and a transaction that is open holds "
        f"{partition} up at {stable}. Wait for its end, or find it (rookery transactions list, rookery transactions "
        f"find-hanging) and abort it. How long it is waited for is the option kafka.default.api.timeout.ms"
    )


def dead_letters_failed(topic: TopicName, config: Mapping[str, str], error: ApiError) -> SourceError:
    what = f"writing dead letters to {topic} (options onError and deadLetterTopic)"
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return request_failed(what, config, error)
    return SourceError(
        f"{what} failed: {error}. A record with the headers that tell its error must fit the option "
        f"kafka.max.request.size ({config.get('max.request.size')}) and max.message.bytes of the topic {topic}: raise "
        f"them, as with rookery configs alter"
    )


def request_failed(what: str, config: Mapping[str, str], error: ApiError) -> SourceError:
    """Any other failure; most are of the network."""
    hint = "the options kafka.*"
    if isinstance(error, AuthenticationError):
        hint = "the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.*"
    if error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION) or error.code.retriable:
        hint = f"the brokers and the option kafka.bootstrap.servers ({config.get('bootstrap.servers')})"
    return SourceError(f"{what} failed: {error}. Check {hint}")
