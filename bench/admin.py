"""Creates and alters topics for rows that start their own brokers. They are not deleted: the directory is removed."""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.model import Broker
from bench.probe import await_broker, serves_partitions

_TIMEOUT_S = 120.0


def create_topics(broker: Broker, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Create topics, given as names and numbers of partitions; returns when each partition has a leader."""
    admin = _client(broker)
    for name, partitions in topics.items():
        # One at a time: a request with thousands of partitions may be rejected.
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin.create_topics([new], request_timeout=_TIMEOUT_S)[name].result()
    await_broker(broker, serves_partitions(dict(topics)))


def alter_topic(broker: Broker, name: str, config: Mapping[str, str]) -> None:
    """Set these configs and keep the others."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin = _client(broker)
    for future in admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S).values():
        future.result()


def _client(broker: Broker) -> AdminClient:
    # Without log output: the client outlives its broker for a while, and would log that it cannot connect.
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
