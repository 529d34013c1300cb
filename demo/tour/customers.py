"""Customers whose `faxNumber` is replaced by an `email`: old and new programs at the same time, in two libraries."""

from typing import Any

import confluent_kafka
import msgspec
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentAvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from rookery.client.sync import Consumer, Producer, TopicPartition
from rookery.serdes import AvroDeserializer, AvroSerializer, RegistryClient, Schema, errors

_FLUSH_S = 30.0
_POLL_S = 1.0


def _customer(*fields: dict[str, Any]) -> str:
    named = [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}, *fields]
    return msgspec.json.encode({"type": "record", "name": "Customer", "fields": named}).decode()


OLD = _customer({"name": "faxNumber", "type": ["null", "string"], "default": None})
NEW = _customer({"name": "email", "type": ["null", "string"], "default": None})
# A required email, which old records do not have.
WRONG = _customer({"name": "email", "type": "string"})


def write_old(address: str, registry: str, topic: str, count: int) -> None:
    """Write customers with Confluent's serializer, as existing programs do."""
    serialize = ConfluentAvroSerializer(SchemaRegistryClient({"url": registry}), OLD)
    context = SerializationContext(topic, MessageField.VALUE)
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in range(count):
        customer = {"id": number, "name": f"customer {number}", "faxNumber": "555-0100"}
        producer.produce(topic, serialize(customer, context))
    producer.flush(_FLUSH_S)


def write_new(address: str, registry: str, topic: str, count: int) -> None:
    with RegistryClient(registry) as client:
        serializer = AvroSerializer(client, NEW)
        with Producer({"bootstrap.servers": address}, value_serializer=serializer) as producer:
            for number in range(count):
                producer.send(topic, {"id": count + number, "name": f"customer {number}", "email": "a@example.org"})


def read(address: str, registry: str, topic: str, schema: str, count: int) -> list[dict[str, Any]]:
    """Read all customers with this schema."""
    settings = {"bootstrap.servers": address, "auto.offset.reset": "earliest"}
    found: list[dict[str, Any]] = []
    with (
        RegistryClient(registry) as client,
        Consumer(settings, value_deserializer=AvroDeserializer(client, schema)) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += [record.value for record in consumer.poll(_POLL_S) if record.value is not None]
    return found


def refusal(registry: str, topic: str) -> str:
    """Return the registry's error for a schema that does not fit old records."""
    with RegistryClient(registry) as client:
        try:
            client.register(f"{topic}-value", Schema(WRONG))
        except errors.RegistryRequestError as error:
            return error.message
    return ""


def write_without_schema(address: str, topic: str) -> str:
    """Return the broker's error for a record without a schema."""
    errors_seen: list[str] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    producer.produce(
        topic, b"plain text", on_delivery=lambda error, _: errors_seen.append(error.name() if error else "")
    )
    producer.flush(_FLUSH_S)
    return errors_seen[0]
