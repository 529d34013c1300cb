"""Produce requests with a transactional id: their batches are verified by the transaction's coordinator, then appended.

A batch that begins its producer's transaction on a partition has to be verified (`broker.verification`); one call of
the coordinator verifies all batches of a request. If its result is available immediately, the request is appended like
any other. If not, the whole request is copied out of the frame, and later requests with the same transactional id are
appended after it, in order.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.produce.append import Appends
from rookery.broker.verification import Verifications, verify
from rookery.protocol.produce import ProduceTopic
from rookery.records.batch import HEADER_SIZE, MAGIC_V2
from rookery.storage.producers import Verification

# The magic byte and the low byte of a batch's attributes, and its bit that marks the batch as part of a transaction.
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
_IS_TRANSACTIONAL: Final = 0x10


def append_transactional(
    appends: Appends, topics: Sequence[ProduceTopic], transactional_id: str
) -> "asyncio.Task[None] | None":
    """Append all batches. Returns None if they are appended, else the task that will append them."""
    queues = appends.context.services.produce_queues
    verifications: Verifications | Awaitable[Verifications] | None = None
    if queues.is_free(transactional_id):
        verifications = _verify(appends, topics, transactional_id)
        if isinstance(verifications, dict):
            appends.append_all(topics, verifications)
            return None
    kept = _copy(topics)
    return queues.run(transactional_id, lambda: _append_later(appends, kept, transactional_id, verifications))


def has_transactional(topics: Sequence[ProduceTopic]) -> bool:
    """Return whether a batch is part of a transaction. Malformed batches do not count: their append rejects them."""
    for _, _, partitions in topics:
        for _, records in partitions:
            if records is None or len(records) < HEADER_SIZE:
                continue
            if records[_ATTRIBUTES_AT] & _IS_TRANSACTIONAL and records[_MAGIC_AT] == MAGIC_V2:
                return True
    return False


def _copy(topics: Sequence[ProduceTopic]) -> list[ProduceTopic]:
    """Copy the batches: the frame, of which they are views, is reused when the handler returns."""
    return [
        (
            name,
            topic_id,
            [(index, None if records is None else memoryview(bytearray(records))) for index, records in partitions],
        )
        for name, topic_id, partitions in topics
    ]


async def _append_later(
    appends: Appends,
    topics: Sequence[ProduceTopic],
    transactional_id: str,
    verifications: Verifications | Awaitable[Verifications] | None,
) -> None:
    """Append all batches when their verifications are there.

    `verifications` is None for a request that had to wait for earlier ones: only after their appends is it known which
    of its batches begin a transaction.
    """
    if verifications is None:
        verifications = _verify(appends, topics, transactional_id)
    appends.append_all(topics, await verifications if isinstance(verifications, Awaitable) else verifications)


def _verify(
    appends: Appends, topics: Sequence[ProduceTopic], transactional_id: str
) -> Verifications | Awaitable[Verifications]:
    return verify(appends.context, transactional_id, _find_unverified(appends, topics))


def _find_unverified(appends: Appends, topics: Sequence[ProduceTopic]) -> dict[TopicPartition, Verification]:
    replicas = appends.context.services.replicas
    found: dict[TopicPartition, Verification] = {}
    for name, topic_id, partitions in topics:
        if topic_id is not None:
            name = replicas.topic_name(topic_id)
        if name is None or appends.check_topic(name) is not None:
            continue
        for index, records in partitions:
            replica = replicas.find(TopicPartition(name, index))
            if isinstance(replica, ErrorCode) or not replica.state.is_leader or records is None:
                continue
            verification = replica.needed_verification(records)
            if verification is not None:
                found[TopicPartition(name, index)] = verification
    return found
