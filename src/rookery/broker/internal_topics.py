"""Creates the topics in which coordinators store their state, when they are first needed.

They have as many replicas as configured, or as there are brokers if these are fewer. `min.insync.replicas` is not
larger than that: otherwise every partition would have too few in-sync replicas for ever. If the creation fails, there
is still no coordinator; the client gets that error and retries.
"""

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rookery.base.config import BrokerLayers
from rookery.base.errors import ErrorCode
from rookery.base.types import TopicName
from rookery.broker.context import Services
from rookery.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from rookery.metadata.requests import NewTopic

logger = structlog.get_logger(__name__)


def is_missing(services: Services, name: TopicName) -> bool:
    return name not in services.image.topics


async def create(services: Services, name: TopicName) -> None:
    """Create the topic and wait until it is served."""
    brokers = sum(not broker.fenced for broker in services.image.brokers.values())
    topic = _TOPICS[name](services.config(), max(brokers, 1))
    (created,) = await services.controller.create_topics([topic])
    if created.outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        logger.warning(
            "cannot create an internal topic",
            topic=name,
            error=created.outcome.code.name,
            message=created.outcome.message,
        )


def _offsets_topic(config: BrokerLayers, brokers: int) -> NewTopic:
    return NewTopic(
        name=OFFSETS_TOPIC,
        partition_count=config.integer("offsets.topic.num.partitions"),
        replication_factor=min(config.integer("offsets.topic.replication.factor"), brokers),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.integer("offsets.topic.segment.bytes"))),
        ),
    )


def _transactions_topic(config: BrokerLayers, brokers: int) -> NewTopic:
    replication_factor = min(config.integer("transaction.state.log.replication.factor"), brokers)
    return NewTopic(
        name=TRANSACTIONS_TOPIC,
        partition_count=config.integer("transaction.state.log.num.partitions"),
        replication_factor=replication_factor,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(min(config.integer("transaction.state.log.min.isr"), replication_factor))),
            ("segment.bytes", str(config.integer("transaction.state.log.segment.bytes"))),
            # A leader that was not in sync could lack the outcome of a transaction that was acknowledged.
            ("unclean.leader.election.enable", "false"),
        ),
    )


_TOPICS: Final[Mapping[TopicName, Callable[[BrokerLayers, int], NewTopic]]] = {
    OFFSETS_TOPIC: _offsets_topic,
    TRANSACTIONS_TOPIC: _transactions_topic,
}
