"""Rookery's serializers and confluent-kafka's in all combinations: each reads what the other writes; equal bytes.

The records pass through a topic and the registry of an embedded broker, with the clients of each library.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference as ConfluentReference
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import record_subject_name_strategy as confluent_record_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer as ConfluentAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as ConfluentJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as ConfluentJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as ConfluentProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentProtobufSerializer
from confluent_kafka.serialization import MessageField
from confluent_kafka.serialization import SerializationContext as ConfluentContext
from google.protobuf.json_format import MessageToDict

from rookery.client.sync import Consumer, Producer
from rookery.serdes import (
    AvroDeserializer,
    AvroSerializer,
    JSONSchemaDeserializer,
    JSONSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    RegistryClient,
    Schema,
)
from rookery.serdes.errors import RegistryRequestError
from rookery.testing import EmbeddedBroker
from tests.serdes.customers import NEW_CUSTOMER, OLD_CUSTOMER, OLD_VALUE, SCHEMAS, SEEN, VALUES
from tests.serdes.messages import Address, Customer, First, Last, Note, make_customer

TIMEOUT_S = 30.0
LIBRARIES = ["ours", "confluent"]
ORDER = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["id"],
    }
)
MESSAGES = [First(), make_customer(), Note(text="a"), Last(text="b"), Address(street="c")]
Write = Callable[[str, Any], bytes | None]
Read = Callable[[str, bytes], Any]


class Platform(NamedTuple):
    """A broker with a registry, and the registry clients of both libraries."""

    broker: EmbeddedBroker
    ours: RegistryClient
    theirs: SchemaRegistryClient


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with EmbeddedBroker(schema_registry=True) as broker, RegistryClient(broker.schema_registry_url) as ours:
        yield Platform(broker, ours, SchemaRegistryClient({"url": broker.schema_registry_url}))


@pytest.fixture
def topic() -> str:
    return f"serdes-{uuid4().hex[:8]}"


def confluent_writer(serializer: Any) -> Write:
    return lambda topic, value: serializer(value, ConfluentContext(topic, MessageField.VALUE))


def confluent_reader(deserializer: Any) -> Read:
    return lambda topic, data: deserializer(data, ConfluentContext(topic, MessageField.VALUE))


def avro_writer(platform: Platform, library: str, schema: str) -> Write:
    if library == "ours":
        return AvroSerializer(platform.ours, schema)
    return confluent_writer(ConfluentAvroSerializer(platform.theirs, schema))


def avro_reader(platform: Platform, library: str, schema: str | None) -> Read:
    if library == "ours":
        return AvroDeserializer(platform.ours, schema)
    return confluent_reader(ConfluentAvroDeserializer(platform.theirs, schema))


def through_topic(platform: Platform, topic: str, write: Write, read: Read, value: Any) -> Any:
    """Pass a value through a topic. Serializers run inside Rookery's clients, and before or after confluent-kafka's."""
    bootstrap = {"bootstrap.servers": platform.broker.bootstrap_servers}
    platform.broker.create_topic(topic)
    with Producer[Any, Any](bootstrap, value_serializer=write) as producer:
        producer.send(topic, value).result(TIMEOUT_S)
    theirs = ConfluentProducer(bootstrap)
    data = write(topic, value)
    assert data is not None
    theirs.produce(topic, data)
    assert theirs.flush(TIMEOUT_S) == 0
    settings = {**bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer[Any, Any](settings, value_deserializer=read) as consumer:
        consumer.subscribe([topic])
        seen = []
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                break
    foreign = ConfluentConsumer({**settings, "group.id": f"{topic}-foreign"})
    foreign.subscribe([topic])
    message = foreign.poll(TIMEOUT_S)
    foreign.close()
    assert message is not None
    received = message.value()
    assert received is not None
    seen.append(read(topic, received))
    assert seen[0] == seen[1] == seen[2]
    return seen[0]


@pytest.mark.parametrize("reading", LIBRARIES)
@pytest.mark.parametrize("writing", LIBRARIES)
@pytest.mark.parametrize(("writer", "reader"), list(SEEN))
def test_customers_old_and_new(
    platform: Platform, topic: str, writing: str, reading: str, writer: str, reader: str
) -> None:
    """The fax number was replaced by an email address: neither side breaks, whichever is updated first."""
    for schema in (OLD_CUSTOMER, NEW_CUSTOMER):
        platform.ours.register(f"{topic}-value", Schema(schema))
    write = avro_writer(platform, writing, SCHEMAS[writer])
    read = avro_reader(platform, reading, SCHEMAS[reader])
    assert through_topic(platform, topic, write, read, VALUES[writer]) == SEEN[writer, reader]


def test_an_incompatible_customer_fails_when_it_is_published(platform: Platform, topic: str) -> None:
    AvroSerializer(platform.ours, OLD_CUSTOMER)(topic, OLD_VALUE)
    schema = json.loads(NEW_CUSTOMER)
    del schema["fields"][2]["default"]
    with pytest.raises(RegistryRequestError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as caught:
        AvroSerializer(platform.ours, json.dumps(schema))(topic, VALUES["new"])
    assert (caught.value.status, caught.value.code) == (409, 409)


@pytest.mark.parametrize("reading", LIBRARIES)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"string"', "text"),
        ('"bytes"', b"\0\1\2"),
        ('"long"', -5),
        ('["null", "double"]', 0.5),
        ('{"type": "array", "items": "int"}', [1, 2, 3]),
        ('{"type": "map", "values": ["null", "string"]}', {"a": None, "b": "c"}),
    ],
)
def test_other_avro_types_have_the_same_bytes(
    platform: Platform, topic: str, reading: str, schema: str, value: Any
) -> None:
    ours, theirs = (avro_writer(platform, library, schema)(topic, value) for library in LIBRARIES)
    assert ours == theirs
    assert ours is not None
    assert avro_reader(platform, reading, None)(topic, ours) == value


def test_avro_with_references(platform: Platform, topic: str) -> None:
    namespace = topic.replace("-", ".")
    fields = [{"name": "street", "type": "string"}]
    address = {"type": "record", "name": "Address", "namespace": namespace, "fields": fields}
    name = f"{namespace}.Address"
    customer = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": name}]})
    platform.ours.register(f"{topic}-address", Schema(json.dumps(address)))
    own = Schema(customer, references=(Reference(name, f"{topic}-address", 1),))
    foreign = ConfluentSchema(customer, "AVRO", [ConfluentReference(name, f"{topic}-address", 1)])
    value = {"home": {"street": "Storgata"}}
    data = AvroSerializer(platform.ours, own)(topic, value)
    assert data == confluent_writer(ConfluentAvroSerializer(platform.theirs, foreign))(topic, value)
    assert data is not None
    for library in LIBRARIES:
        assert avro_reader(platform, library, None)(topic, data) == value


def test_a_record_has_one_subject_in_all_topics(platform: Platform, topic: str) -> None:
    ours = AvroSerializer(platform.ours, OLD_CUSTOMER, config={"subject.name.strategy": "RecordNameStrategy"})
    config = {"subject.name.strategy": confluent_record_strategy}
    theirs = confluent_writer(ConfluentAvroSerializer(platform.theirs, OLD_CUSTOMER, conf=config))
    assert ours(topic, OLD_VALUE) == theirs(f"{topic}-2", OLD_VALUE)
    assert "customerManagement.avro.Customer" in platform.ours.list_subjects()
    assert platform.ours.list_subjects(prefix=topic) == []


@pytest.mark.parametrize("reading", LIBRARIES)
@pytest.mark.parametrize("writing", LIBRARIES)
def test_json(platform: Platform, topic: str, writing: str, reading: str) -> None:
    writers: dict[str, Write] = {
        "ours": JSONSchemaSerializer(platform.ours, ORDER),
        "confluent": confluent_writer(ConfluentJSONSerializer(ORDER, platform.theirs)),
    }
    readers: dict[str, Read] = {
        "ours": JSONSchemaDeserializer(platform.ours),
        "confluent": confluent_reader(ConfluentJSONDeserializer(None, schema_registry_client=platform.theirs)),
    }
    value = {"id": 7, "note": "smørrebrød"}
    assert through_topic(platform, topic, writers[writing], readers[reading], value) == value


@pytest.mark.parametrize("reading", ["ours", "without a class", "confluent"])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message.DESCRIPTOR.name))
def test_protobuf(platform: Platform, topic: str, reading: str, message: Any) -> None:
    kind = type(message)
    readers: dict[str, Read] = {
        "ours": ProtobufDeserializer(platform.ours, kind),
        "without a class": ProtobufDeserializer(platform.ours),
        "confluent": confluent_reader(ConfluentProtobufDeserializer(kind, {}, platform.theirs)),
    }
    ours = ProtobufSerializer(platform.ours, kind)(topic, message)
    theirs = confluent_writer(ConfluentProtobufSerializer(kind, platform.theirs))(topic, message)
    assert ours == theirs
    assert ours is not None
    read = readers[reading](topic, ours)
    assert read.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
    assert MessageToDict(read) == MessageToDict(message)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message.DESCRIPTOR.name))
def test_protobuf_in_its_normal_form(platform: Platform, topic: str, message: Any) -> None:
    """In the normal form the entries of maps are not messages, so that the messages after them have other indexes."""
    data = ProtobufSerializer(platform.ours, type(message), config={"normalize.schemas": True})(topic, message)
    read = ProtobufDeserializer(platform.ours)(topic, data)
    assert read.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
    assert MessageToDict(read) == MessageToDict(message)


def test_protobuf_through_a_topic(platform: Platform, topic: str) -> None:
    write = confluent_writer(ConfluentProtobufSerializer(Customer, platform.theirs))
    read = ProtobufDeserializer(platform.ours)
    seen = through_topic(platform, topic, write, lambda topic, data: MessageToDict(read(topic, data)), make_customer())
    assert seen == MessageToDict(make_customer())


@dataclasses.dataclass
class Person:
    id: int
    name: str
    email: str | None


def test_keys_and_values_of_objects(platform: Platform, topic: str) -> None:
    """Use as in programs: key and value each with its own serializer, inside Rookery's clients."""
    bootstrap = {"bootstrap.servers": platform.broker.bootstrap_servers}
    platform.broker.create_topic(topic)
    person = Person(2, "Grace", None)
    with Producer[int, Person](
        bootstrap,
        key_serializer=AvroSerializer(platform.ours, '"int"', is_key=True),
        value_serializer=AvroSerializer(
            platform.ours, NEW_CUSTOMER, to_dict=lambda value, context: dataclasses.asdict(value)
        ),
    ) as producer:
        producer.send(topic, person, key=2).result(TIMEOUT_S)
        producer.send(topic, None, key=2).result(TIMEOUT_S)
    with Consumer[int, Person](
        {**bootstrap, "group.id": topic, "auto.offset.reset": "earliest"},
        key_deserializer=AvroDeserializer(platform.ours, is_key=True),
        value_deserializer=AvroDeserializer(platform.ours, from_dict=lambda value, context: Person(**value)),
    ) as consumer:
        consumer.subscribe([topic])
        first, second = (record for _, record in zip(range(2), consumer, strict=False))
    assert (first.key, first.value) == (2, person)
    assert (second.key, second.value) == (2, None)
    assert platform.ours.list_subjects(prefix=topic) == [f"{topic}-key", f"{topic}-value"]
