"""Produce with an authorizer: WRITE on the transactional id, if a batch is transactional, and on each topic.

Produce reads its frame itself, so it has no guard that could take topics out of a request. This handler differs from
the one without an authorizer in the class of the appends, which gives an error to denied topics: one look-up of a
cached decision per topic.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from rookery.base.codes import AclOperation, AclResourceType
from rookery.base.errors import ErrorCode
from rookery.broker.context import RequestContext
from rookery.broker.handlers import k00_produce
from rookery.broker.permissions import Client
from rookery.broker.produce.append import Appends
from rookery.net.connection import HandlerResult
from rookery.protocol.produce import ProducePartitionResult, ProduceTopic, decode_produce

_WRITE: Final = AclOperation.WRITE
# The low byte of a batch's attributes, and its bit that marks the batch as part of a transaction.
_ATTRIBUTES_AT: Final = 22
_IS_TRANSACTIONAL: Final = 0x10


class GuardedAppends(Appends):
    """Appends to the topics that the client may write to."""

    __slots__ = ("_client",)

    def __init__(self, context: RequestContext, acks: int, client: Client) -> None:
        super().__init__(context, acks)
        self._client = client

    def check_topic(self, name: str | None) -> ErrorCode | None:
        if name is not None and not self._client.allows(_WRITE, AclResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return super().check_topic(name)

    def refuse_all(self, topics: Sequence[ProduceTopic], code: ErrorCode) -> None:
        """Give an error to all batches."""
        for name, topic_id, partitions in topics:
            results = [ProducePartitionResult(index, code) for index, _ in partitions]
            refused: tuple[str | None, UUID | None, list[ProducePartitionResult]] = (name, topic_id, results)
            self.topics.append(refused)


def handle(context: RequestContext, frame: memoryview, position: int) -> HandlerResult:
    access = context.services.access
    assert access is not None
    client = access.client(context)
    transactional_id, acks, timeout_ms, topics = decode_produce(context.api_version, frame, position)
    appends = GuardedAppends(context, acks, client)
    if _has_transactional(topics) and (
        transactional_id is None or not client.allows(_WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        appends.refuse_all(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return k00_produce.reply(appends, timeout_ms)
    return k00_produce.append(appends, topics, transactional_id, timeout_ms)


def _has_transactional(topics: Sequence[ProduceTopic]) -> bool:
    for _, _, partitions in topics:
        for _, records in partitions:
            if records is not None and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _IS_TRANSACTIONAL:
                return True
    return False
