"""Creates the topics in which coordinators store their state, when they are first needed.

They have as many replicas as configured. Until as many brokers are live, they are not created, and there is no
coordinator: with fewer replicas, groups and transactions would be lost with a broker whose loss the configuration is
meant to survive. A node alone, with no other broker or voter, is the exception: the topics have one replica, and
`min.insync.replicas` is 1.

If the creation fails, there is still no coordinator; the client gets that error and retries.
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

_FACTORS: Final[Mapping[TopicName, str]] = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}


def is_missing(services: Services, name: TopicName) -> bool:
    return name not in services.image.topics


async def create(services: Services, name: TopicName) -> str | None:
    """Create the topic and wait until it is served. Returns the reason if it was not created, else None."""
    config, brokers = services.config(), services.image.brokers.values()
    factor = config.integer(_FACTORS[name])
    if _is_alone(services):
        factor = min(factor, 1)
    live = sum(not broker.fenced and not broker.in_controlled_shutdown for broker in brokers)
    if live < factor:
        reason = f"{name} needs {factor} live brokers ({_FACTORS[name]}), and there are {live}."
        logger.warning("cannot create an internal topic", topic=name, reason=reason)
        return reason
    (created,) = await services.broker_requests.create_topics([_TOPICS[name](config, factor)])
    if created.outcome.code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return None
    code, message = created.outcome
    logger.warning("cannot create an internal topic", topic=name, error=code.name, message=message)
    return f"{name} cannot be created: {message or code.name}"


def _is_alone(services: Services) -> bool:
    """Return whether the cluster has no other node.

    A broker that is registered and not live counts: it restarts. A voter counts, too: while a new cluster starts, the
    first of its brokers is for a moment the only one, and a client may already be there.
    """
    voters = (voter.key.node_id for voter in services.quorum.voters)
    return {*services.image.brokers, *voters} <= {services.node_id}


def _offsets_topic(config: BrokerLayers, replication_factor: int) -> NewTopic:
    return NewTopic(
        name=OFFSETS_TOPIC,
        partition_count=config.integer("offsets.topic.num.partitions"),
        replication_factor=replication_factor,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.integer("offsets.topic.segment.bytes"))),
        ),
    )


def _transactions_topic(config: BrokerLayers, replication_factor: int) -> NewTopic:
    return NewTopic(
        name=TRANSACTIONS_TOPIC,
        partition_count=config.integer("transaction.state.log.num.partitions"),
        replication_factor=replication_factor,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            # Not more than the replicas: otherwise every partition would have too few in-sync replicas for ever.
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
