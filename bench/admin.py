"""Topics for rows that start brokers of their own: made, altered, and never cleaned up, because the directory goes."""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.model import Broker
from bench.probe import await_broker, serves_partitions

_TIMEOUT_S = 120.0


def create_topics(broker: Broker, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Names and their numbers of partitions; returns when each partition has a leader."""
    admin = _client(broker)
    for name, partitions in topics.items():
        # One at a time: a request with thousands of partitions may be refused.
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin.create_topics([new], request_timeout=_TIMEOUT_S)[name].result()
    await_broker(broker, serves_partitions(dict(topics)))


def alter_topic(broker: Broker, name: str, config: Mapping[str, str]) -> None:
    """Set these configs and leave the others."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin = _client(broker)
    for future in admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S).values():
        future.result()


def _client(broker: Broker) -> AdminClient:
    # Quiet: the client outlives its broker for a while, and would tell how it cannot reach it.
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
