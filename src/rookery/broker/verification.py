"""Verifies transactional batches with the transaction coordinator before Produce appends them (KIP-890).

A batch that begins its producer's transaction on a partition is appended only if the coordinator has the partition in
the transaction. Otherwise no marker would ever end the transaction on this partition, and `read_committed` consumers
would never get past it. A batch of a transaction that is already open on the partition needs no verification. So a
transaction needs one verification per partition, and a request with several partitions one call of the coordinator.

Older clients (up to v11) have added their partitions by AddPartitionsToTxn, and the coordinator checks that. From v12
on, the broker has the coordinator add them. The coordinator may be on another broker
(`coordinators.txn.partition_transactions`).

The coordinator's errors are converted to those that a producer of the request's version handles:

    not part of the transaction                     TRANSACTION_ABORTABLE, INVALID_TXN_STATE up to v10
    PRODUCER_FENCED                                 INVALID_PRODUCER_EPOCH
    no coordinator, or it is loading                NOT_ENOUGH_REPLICAS: it retries, without refreshing metadata
    the coordinator's broker does not respond       the same
    CONCURRENT_TRANSACTIONS                         unchanged; NOT_ENOUGH_REPLICAS up to v11
    any other, such as INVALID_PRODUCER_ID_MAPPING  unchanged
"""

from collections.abc import Awaitable, Mapping
from typing import TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.answers import CONNECTION_ERRORS, COORDINATOR_ERRORS, respond
from rookery.broker.context import RequestContext
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.replication.replica import Appended
from rookery.storage.producers import Verification

_ABORTABLE_SINCE = 11
_ADDED_SINCE = 12

# OPERATION_NOT_ATTEMPTED: another partition of the request could not be added.
_UNVERIFIED = COORDINATOR_ERRORS | CONNECTION_ERRORS | {ErrorCode.OPERATION_NOT_ATTEMPTED}

_NOT_ADDED = "The partition was not added to the transaction."

# Per partition: the verification to append its batch with, or the outcome of a batch that was not verified.
Verifications: TypeAlias = dict[TopicPartition, Verification | Appended]


def verify(
    context: RequestContext, transactional_id: str, unverified: Mapping[TopicPartition, Verification]
) -> Verifications | Awaitable[Verifications]:
    """Verify all partitions of `unverified` with one call of the coordinator. The result has each of them."""
    version, services = context.api_version, context.services
    adds = version >= _ADDED_SINCE
    if not unverified:
        return {}
    # v12 clients leave it to the broker to add partitions: for them the setting must not skip the call.
    if not adds and not services.config().boolean("transaction.partition.verification.enable"):
        return {partition: each._replace(guard=None) for partition, each in unverified.items()}
    producers = {(each.producer_id, each.producer_epoch) for each in unverified.values()}
    if len(producers) > 1:
        rejected = Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message="The request has more than one producer.")
        return dict.fromkeys(unverified, rejected)
    ((producer_id, producer_epoch),) = producers
    request = AddRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=frozenset(unverified),
    )
    transactions = services.partition_transactions
    answer = transactions.add_partitions(request) if adds else transactions.verify_partitions(request)
    return respond(answer, lambda outcome: _results(version, unverified, outcome))


def _results(
    version: int, unverified: Mapping[TopicPartition, Verification], outcome: VerifiedPartitions | ErrorCode
) -> Verifications:
    codes = dict.fromkeys(unverified, outcome) if isinstance(outcome, ErrorCode) else dict(outcome)
    return {
        partition: verification if codes[partition] is ErrorCode.NONE else _reject(version, codes[partition])
        for partition, verification in unverified.items()
    }


def _reject(version: int, code: ErrorCode) -> Appended:
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        known = ErrorCode.INVALID_TXN_STATE if version < _ABORTABLE_SINCE else code
        return Appended(known, message=_NOT_ADDED)
    if code is ErrorCode.PRODUCER_FENCED:
        return Appended(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code in _UNVERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDED_SINCE):
        reason = f"It cannot be known yet whether the partition is part of the transaction: {code.name}."
        return Appended(ErrorCode.NOT_ENOUGH_REPLICAS, message=reason)
    return Appended(code)
