"""Columns with schemas from a registry through the whole source, called as by Spark: schema, plan, tasks, letters."""

import pickle

import pytest
from pyspark.sql.types import StructType

from rookery.client.admin import NewTopic
from rookery.client.sync import Admin, Consumer
from rookery.dead_letters.standard import read_failure
from rookery.serdes import AvroSerializer, RegistryClient
from rookery.spark.datasource import DefaultSource
from rookery.spark.failures import SourceError
from rookery.spark.formats import RegistryDownError
from rookery.spark.source.schema import PIN_KEY
from rookery.testing.embedded import EmbeddedBroker
from tests.spark.source.sources import admin, make_topic, producer

__all__ = ["admin"]

PERSON = '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}'
OLDER = (
    '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}, '
    '{"name": "age", "type": "int", "default": 0}]}'
)


def source_of(broker: EmbeddedBroker, topic: str, **options: str) -> DefaultSource:
    base = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "valueFormat": "avro",
        "schema.registry.url": broker.schema_registry_url,
    }
    return DefaultSource({**base, **options})


def values_of(source: DefaultSource, schema: StructType) -> list[object]:
    """Read as Spark does: the schema is converted to JSON and back, the reader is pickled."""
    reader = pickle.loads(pickle.dumps(source)).reader(schema=StructType.fromJson(schema.jsonValue()))
    tasks = pickle.loads(pickle.dumps((reader, reader.partitions())))
    return [value for task in tasks[1] for batch in tasks[0].read(task) for value in batch.column("value").to_pylist()]


def test_avro_columns_with_a_pinned_schema_and_dead_letters(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=0)
    with RegistryClient(broker.schema_registry_url) as registry, producer(broker) as sender:
        sender.send(topic, AvroSerializer(registry, PERSON)(topic, {"name": "Ada"}))
        sender.send(topic, b"no Avro", key=b"k")
        sender.flush()
        source = source_of(broker, topic, onError="dead-letter", pipelineName="people")
        schema = source.schema()
        assert schema["value"].dataType.simpleString() == "struct<name:string>"
        assert PIN_KEY in schema["value"].metadata
        # A new writer's schema has no effect on a running query.
        sender.send(topic, AvroSerializer(registry, OLDER)(topic, {"name": "Bob", "age": 7}))
    assert values_of(source, schema) == [{"name": "Ada"}, {"name": "Bob"}]
    assert source.schema()["value"].dataType.simpleString() == "struct<name:string,age:int>"
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}) as reader:
        letters = reader.read_arrow(f"{topic}.dlq").to_pylist()
    (letter,) = letters
    assert (letter["key"], letter["value"]) == (b"k", b"no Avro")
    failure = read_failure([(header["key"], header["value"]) for header in letter["headers"]])
    assert failure is not None
    assert failure.origin is not None
    assert failure.origin[:3] == (topic, 0, 1)
    assert (failure.stage, failure.pipeline) == ("VALUE_CONVERTER", "people")


def test_a_registry_that_is_down(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    make_topic(broker, admin, topic, partitions=1, records=1)
    quick = {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.max.retries": "0"}
    with pytest.raises(RegistryDownError, match=r"schema\.registry\.url"):
        source_of(broker, topic, **quick).schema()


def test_a_dead_letter_may_exceed_the_default_request_size(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    """A dead letter of a record of the maximum size still gets the headers with its error."""
    admin.create_topics([NewTopic(topic, 1)])
    admin.create_topics([NewTopic(f"{topic}.dlq", 1, configs={"max.message.bytes": "4000000"})])
    with RegistryClient(broker.schema_registry_url) as registry, producer(broker) as sender:
        sender.send(topic, AvroSerializer(registry, PERSON)(topic, {"name": "Ada"}))
        sender.send(topic, b"\1" * 1_048_400)
    source = source_of(broker, topic, onError="dead-letter")
    assert values_of(source, source.schema()) == [{"name": "Ada"}]
    admin.create_topics([NewTopic(f"{topic}.small", 1)])
    small = source_of(broker, topic, onError="dead-letter", deadLetterTopic=f"{topic}.small")
    message = rf"kafka\.max\.request\.size .* and max\.message\.bytes of the topic {topic}\.small"
    with pytest.raises(SourceError, match=message):
        values_of(small, small.schema())
    compressed = source_of(
        broker,
        topic,
        onError="dead-letter",
        deadLetterTopic=f"{topic}.small",
        **{"kafka.compression.type": "zstd"},
    )
    assert values_of(compressed, compressed.schema()) == [{"name": "Ada"}]
