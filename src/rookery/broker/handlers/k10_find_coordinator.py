"""FindCoordinator (10): which broker coordinates a group.

The first request creates `__consumer_offsets` (`offsets.topic.num.partitions` and so on) and is answered when it is
served. Its replicas are as many as configured, or as there are brokers if these are fewer. Coordinators of transactions
are COORDINATOR_NOT_AVAILABLE, since there are none yet; other kinds of keys are INVALID_REQUEST.

Versions: v1 key types, throttle time and an error message. v3 flexible. v4 several keys in one request. v5 and v6
concern transactions and share groups.
"""

from collections.abc import Awaitable
from enum import IntEnum

import structlog

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.broker.context import RequestContext, Services
from rookery.controller.topics import NewTopic
from rookery.coordinators.group.service import OFFSETS_TOPIC
from rookery.protocol.message import Message

logger = structlog.get_logger(__name__)

_KEYS_SINCE = 4


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def handle(context: RequestContext, request: Message) -> Message | Awaitable[Message]:
    key_type = request.get("key_type", KeyType.GROUP)
    if key_type == KeyType.GROUP and OFFSETS_TOPIC not in context.services.image.topics:
        return _create_and_respond(context, request)
    return _respond(context, request)


async def _create_and_respond(context: RequestContext, request: Message) -> Message:
    await create_offsets_topic(context.services)
    return _respond(context, request)


async def create_offsets_topic(services: Services) -> None:
    """If it fails there is still no coordinator, which is what the client is told; it tries again."""
    config = services.config()
    brokers = sum(not broker.fenced for broker in services.image.brokers.values())
    (created,) = await services.controller.create_topics(
        [
            NewTopic(
                name=OFFSETS_TOPIC,
                partition_count=config.integer("offsets.topic.num.partitions"),
                replication_factor=min(config.integer("offsets.topic.replication.factor"), max(brokers, 1)),
                configs=(
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.integer("offsets.topic.segment.bytes"))),
                ),
            )
        ]
    )
    if created.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        logger.warning(
            "cannot create the offsets topic", error=created.outcome.code.name, message=created.outcome.message
        )


def _respond(context: RequestContext, request: Message) -> Message:
    key_type = request.get("key_type", KeyType.GROUP)
    if context.api_version >= _KEYS_SINCE:
        coordinators = [_find(context, key_type, key) for key in request.coordinator_keys]
        return Message(throttle_time_ms=0, coordinators=coordinators)
    found = _find(context, key_type, request.key)
    return Message(throttle_time_ms=0, **vars(found))


def _find(context: RequestContext, key_type: int, key: str) -> Message:
    if key_type == KeyType.TRANSACTION:
        return _missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are no transactions here yet.")
    if key_type != KeyType.GROUP:
        return _missing(key, ErrorCode.INVALID_REQUEST, f"Coordinators of key type {key_type} are not known.")
    services = context.services
    runtime = services.groups.runtime
    if not runtime.partition_count:
        return _missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    leader, _ = services.current_leader(TopicPartition(OFFSETS_TOPIC, runtime.partition_of(key)))
    endpoints = services.endpoints([leader], context.listener)
    if not endpoints:
        return _missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    node = endpoints[0]
    return Message(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=ErrorCode.NONE, error_message=""
    )


def _missing(key: str, code: ErrorCode, message: str | None) -> Message:
    return Message(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
