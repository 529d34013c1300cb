"""Topics with known records and plans to read them, shared by the tests of the source."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from rookery.client.admin import NewTopic
from rookery.client.sync import Admin, Producer
from rookery.spark.formats.columns import arrow_schema_of
from rookery.spark.options import parse_read_options
from rookery.spark.source.schema import Decoders, source_schema
from rookery.spark.source.task_reader import ReadPlan
from rookery.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        yield admin


@contextmanager
def producer(broker: EmbeddedBroker, **config: str) -> Iterator[Producer[bytes, bytes]]:
    with Producer({"bootstrap.servers": broker.bootstrap_servers, **config}) as made:
        yield made


def make_topic(broker: EmbeddedBroker, admin: Admin, topic: str, *, partitions: int = 2, records: int = 10) -> None:
    """Create a topic with `records` records in each partition, with the times 1000, 1001, ..."""
    admin.create_topics([NewTopic(topic, partitions, configs={"retention.ms": "-1"})])
    with producer(broker) as sender:
        for index in range(records):
            for partition in range(partitions):
                sender.send(topic, f"v{index}".encode(), partition=partition, timestamp_ms=1000 + index)


def plan_for(broker: EmbeddedBroker, options: Mapping[str, str], *, streaming: bool = False) -> ReadPlan:
    parsed = parse_read_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **options}, streaming=streaming)
    schema = arrow_schema_of(source_schema(parsed, Decoders()))
    return ReadPlan(parsed, Decoders(), schema)
