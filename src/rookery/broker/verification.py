"""May a transactional batch be written? What Produce asks the transaction coordinator before it appends (KIP-890).

A batch that begins its producer's transaction on a partition is written only if the coordinator knows that the
partition belongs to the transaction. Otherwise nobody would ever end it there, and whoever reads committed records
would wait at it for ever. Batches of a transaction that is open on the partition already need no question, so that a
transaction costs one per partition, and a request with several partitions one in all.

Older clients (up to v11) have added their partitions by AddPartitionsToTxn, and the coordinator is asked whether that
is so. From v12 on they leave it to the broker, and the coordinator is told to add them.

The coordinator's errors reach a producer as those that it knows:

    not part of the transaction                     TRANSACTION_ABORTABLE, INVALID_TXN_STATE up to v10
    PRODUCER_FENCED                                 INVALID_PRODUCER_EPOCH
    no coordinator, or it is loading                NOT_ENOUGH_REPLICAS: it tries again, without asking for metadata
    CONCURRENT_TRANSACTIONS                         as it is; NOT_ENOUGH_REPLICAS up to v11
    any other, as INVALID_PRODUCER_ID_MAPPING       as it is
"""

from collections.abc import Awaitable, Mapping
from typing import TypeAlias

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.answers import ABOUT_COORDINATORS, respond
from rookery.broker.context import RequestContext
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.replication.replica import Appended
from rookery.storage.producers import Verification

_ABORTABLE_SINCE = 11
_ADDED_SINCE = 12

_NOT_ADDED = "The partition was not added to the transaction."

# What a batch may be appended with, or the outcome of one that may not be.
Verifications: TypeAlias = dict[TopicPartition, Verification | Appended]


def verify(
    context: RequestContext, transactional_id: str, asked: Mapping[TopicPartition, Verification]
) -> Verifications | Awaitable[Verifications]:
    """Ask the coordinator once about all partitions of `asked`, each of which is in the result."""
    version, services = context.api_version, context.services
    adds = version >= _ADDED_SINCE
    if not asked:
        return {}
    if not adds and not services.config().boolean("transaction.partition.verification.enable"):
        return {partition: each._replace(guard=None) for partition, each in asked.items()}
    producers = {(each.producer_id, each.producer_epoch) for each in asked.values()}
    if len(producers) > 1:
        refusal = Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message="The request has more than one producer.")
        return dict.fromkeys(asked, refusal)
    ((producer_id, producer_epoch),) = producers
    question = AddRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=frozenset(asked),
    )
    coordinator = services.transactions
    if adds:
        return respond(coordinator.add_partitions(question), lambda code: _judge(version, asked, code))
    return respond(coordinator.verify_partitions(question), lambda outcome: _judge(version, asked, outcome))


def _judge(
    version: int, asked: Mapping[TopicPartition, Verification], outcome: VerifiedPartitions | ErrorCode
) -> Verifications:
    codes = dict.fromkeys(asked, outcome) if isinstance(outcome, ErrorCode) else dict(outcome)
    return {
        partition: verification if codes[partition] is ErrorCode.NONE else _refuse(version, codes[partition])
        for partition, verification in asked.items()
    }


def _refuse(version: int, code: ErrorCode) -> Appended:
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        known = ErrorCode.INVALID_TXN_STATE if version < _ABORTABLE_SINCE else code
        return Appended(known, message=_NOT_ADDED)
    if code is ErrorCode.PRODUCER_FENCED:
        return Appended(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code in ABOUT_COORDINATORS or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDED_SINCE):
        reason = f"It cannot be known yet whether the partition is part of the transaction: {code.name}."
        return Appended(ErrorCode.NOT_ENOUGH_REPLICAS, message=reason)
    return Appended(code)
