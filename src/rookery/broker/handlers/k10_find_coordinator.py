"""FindCoordinator (10): which broker coordinates a group, or the transactions of a transactional id.

The first request of each kind creates the topic in which its coordinators store their state, `__consumer_offsets` or
`__transaction_state`; the response is sent when the topic is served. COORDINATOR_NOT_AVAILABLE if that fails, or if the
coordinator's partition has no leader, or one without an address on the listener of the request. Other kinds of keys are
INVALID_REQUEST.

Versions: v1 key types (a v0 key is a group's), throttle time and an error message, which is "NONE" on success. v3
flexible. v4 several keys in one request; the message is empty on success. v5 may return TRANSACTION_ABORTABLE, which
never happens. v6 is for share groups.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from rookery.base.codes import KeyType
from rookery.base.errors import ErrorCode
from rookery.base.types import TopicName, TopicPartition
from rookery.broker import internal_topics
from rookery.broker.context import RequestContext, Services
from rookery.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from rookery.protocol.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEYS_SINCE = 4


_TOPICS: Final[Mapping[int, TopicName]] = {KeyType.GROUP: OFFSETS_TOPIC, KeyType.TRANSACTION: TRANSACTIONS_TOPIC}


def handle(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    topic = _TOPICS.get(request.get("key_type", KeyType.GROUP))
    if topic is not None and internal_topics.is_missing(context.services, topic):
        return _create_and_respond(context, request, topic)
    return _respond(context, request, topic)


async def _create_and_respond(
    context: RequestContext, request: FindCoordinatorRequest, topic: TopicName
) -> FindCoordinatorResponse:
    reason = await internal_topics.create(context.services, topic)
    return _respond(context, request, topic, reason)


def _respond(
    context: RequestContext, request: FindCoordinatorRequest, topic: TopicName | None, reason: str | None = None
) -> FindCoordinatorResponse:
    """Return the coordinators, or the errors of those that are missing; `reason` says why the topic is missing."""
    if context.api_version >= KEYS_SINCE:
        coordinators = [_find(context, topic, key, reason) for key in request.get("coordinator_keys", ())]
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(context, topic, request.get("key", ""), reason)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=ErrorCode.NONE.name if found.error_code == ErrorCode.NONE else found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: RequestContext, topic: TopicName | None, key: str, reason: str | None) -> Coordinator:
    if topic is None:
        return _missing(key, ErrorCode.INVALID_REQUEST, "Coordinators of this key type are not known.")
    services = context.services
    index = _partition_of(services, topic, key)
    leader = -1 if index is None else services.current_leader(TopicPartition(topic, index))[0]
    endpoints = services.endpoints([leader], context.listener)
    if not endpoints:
        return _missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    node = endpoints[0]
    return Coordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=ErrorCode.NONE, error_message=""
    )


def _partition_of(services: Services, topic: TopicName, key: str) -> int | None:
    """Return the partition whose leader coordinates `key`; None as long as the topic does not exist."""
    runtime = services.groups.runtime if topic == OFFSETS_TOPIC else services.transactions.runtime
    return runtime.partition_of(key) if runtime.partition_count else None


def _missing(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
