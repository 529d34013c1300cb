"""Requests to the transaction coordinator as plain values, their results, and the effect `SendMarkers`."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from rookery.base.values import value_class
from rookery.coordinators.txn.states import State
from rookery.coordinators.txn.transaction import Transaction


class NeedsProducerId(Enum):
    """The response of a decision that must be repeated with a new producer id."""

    NEEDS_PRODUCER_ID = "needs producer id"


NEEDS_PRODUCER_ID: Final = NeedsProducerId.NEEDS_PRODUCER_ID


@value_class(kw_only=True)
class InitRequest:
    """A producer that resumes after an error (KIP-360) sends its id and epoch; a new instance has none."""

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class InitResult(NamedTuple):
    error_code: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@value_class(kw_only=True)
class AddRequest:
    """A request to add partitions to a transaction, or to verify that they are in it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


VerifiedPartitions: TypeAlias = tuple[tuple[TopicPartition, ErrorCode], ...]


@value_class(kw_only=True)
class EndRequest:
    """`client_version` is the protocol: CLASSIC or EPOCH_BUMP."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool
    client_version: int


class EndResult(NamedTuple):
    """The result of EndTxn, with the id and epoch for the producer's next transaction."""

    error_code: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class DescribedTransaction(NamedTuple):
    transactional_id: str
    state: State
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    start_ms: TimestampMs
    partitions: frozenset[TopicPartition]


@value_class(kw_only=True)
class ListFilters:
    """Filters of ListTransactions. An empty, negative or None field does not filter."""

    states: frozenset[State] = frozenset()
    producer_ids: frozenset[ProducerId] = frozenset()
    # Only transactions that began longer ago.
    duration_ms: int = -1
    matches: Callable[[str], bool] | None = None


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: State


@value_class(kw_only=True)
class SendMarkers:
    """An effect: write the end marker to all partitions of a transaction, and then `complete` the transaction.

    `prepared` identifies it; producer id and epoch do not: in the classic protocol the next transaction has the same.
    """

    prepared: Transaction

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    partitions: frozenset[TopicPartition]
    client_version: int


def markers_of(transaction: Transaction) -> SendMarkers:
    assert transaction.is_prepared
    return SendMarkers(
        prepared=transaction,
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=transaction.state is State.PREPARE_COMMIT,
        partitions=transaction.partitions,
        client_version=transaction.client_version,
    )
