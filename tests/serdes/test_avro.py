import dataclasses
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rookery.schemas.interface import InvalidSchemaError
from rookery.serdes import (
    AvroDeserializer,
    AvroSerializer,
    Reference,
    RegistryClient,
    Schema,
    SerializationContext,
)
from rookery.serdes.errors import InvalidDataError, InvalidValueError, WireFormatError
from tests.serdes.customers import NEW_CUSTOMER, OLD_AS_NEW, OLD_CUSTOMER, OLD_VALUE, SCHEMAS, SEEN, VALUES
from tests.serdes.fake_registry import FakeRegistry


def written(registry: RegistryClient, schema: str | Schema, value: Any) -> bytes:
    data = AvroSerializer(registry, schema)("topic", value)
    assert data is not None
    return data


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def test_the_bytes_of_a_record(registry: RegistryClient) -> None:
    schema = record("Point", field("x", "int"), field("name", "string"))
    assert written(registry, schema, {"x": -1, "name": "ab"}) == b"\0\0\0\0\1" + b"\1" + b"\4ab"


def test_nothing_stays_nothing(server: FakeRegistry, registry: RegistryClient) -> None:
    assert AvroSerializer(registry, '"string"')("topic", None) is None
    assert AvroDeserializer(registry)("topic", None) is None
    assert server.requests == []


@pytest.mark.parametrize(("writer", "reader"), list(SEEN))
def test_old_and_new_readers_and_writers(registry: RegistryClient, writer: str, reader: str) -> None:
    data = written(registry, SCHEMAS[writer], VALUES[writer])
    deserialize = AvroDeserializer(registry, SCHEMAS[reader])
    assert deserialize("topic", data) == SEEN[writer, reader]


def test_without_a_readers_schema_the_writers_counts(registry: RegistryClient) -> None:
    deserialize = AvroDeserializer(registry)
    for version in ("old", "new"):
        assert deserialize("topic", written(registry, SCHEMAS[version], VALUES[version])) == VALUES[version]


@pytest.mark.parametrize("strategy", ["TopicNameStrategy", "RecordNameStrategy"])
def test_the_latest_schema_reads(server: FakeRegistry, registry: RegistryClient, strategy: str) -> None:
    config = {"subject.name.strategy": strategy}
    data = AvroSerializer(registry, OLD_CUSTOMER, config=config)("topic", OLD_VALUE)
    assert data is not None
    subject = server.requests[0].path.split("/")[2]
    registry.register(subject, Schema(NEW_CUSTOMER))
    deserialize = AvroDeserializer(registry, config={**config, "use.latest.version": True})
    assert deserialize("topic", data) == OLD_AS_NEW
    server.requests.clear()
    assert deserialize("topic", data) == OLD_AS_NEW
    assert server.requests == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("string", "text"),
        ('"string"', "text"),
        ('{"type": "long"}', 2**60),
        ('["null", "string", "long"]', 5),
        ('{"type": "array", "items": ["int", "string"]}', [1, "two"]),
        ('{"type": "map", "values": "double"}', {"a": 0.5}),
        ('{"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}', "SPADES"),
        ('{"type": "int", "logicalType": "date"}', date(2026, 2, 3)),
        ('{"type": "long", "logicalType": "timestamp-millis"}', datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ('{"type": "string", "logicalType": "uuid"}', UUID(int=7)),
        ('"bytes"', b"\0\1"),
        ('"bytes"', b""),
        ('{"type": "bytes"}', b"abc"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}', Decimal("-12.34")),
        ('{"type": "fixed", "name": "F", "size": 3}', b"abc"),
    ],
)
def test_types(registry: RegistryClient, schema: str, value: Any) -> None:
    assert AvroDeserializer(registry)("topic", written(registry, schema, value)) == value


def test_bytes_alone_have_no_length(registry: RegistryClient) -> None:
    assert written(registry, '"bytes"', b"abc") == b"\0\0\0\0\1abc"


def test_a_branch_of_a_union_can_be_named(registry: RegistryClient) -> None:
    branches = [json.loads(record(name, field("size", "int"))) for name in ("Cat", "Dog")]
    schema = record("Owner", field("pet", branches))
    data = written(registry, schema, {"pet": ("shop.Dog", {"size": 5})})
    assert AvroDeserializer(registry)("topic", data) == {"pet": {"size": 5}}
    named = AvroDeserializer(registry, return_record_name=True)
    assert named("topic", data) == {"pet": ("shop.Dog", {"size": 5})}


def test_records_that_refer_to_others(registry: RegistryClient) -> None:
    city = record("City", field("name", "string"))
    address = record("Address", field("city", "City"), field("street", "string"))
    customer = record("Customer", field("home", "shop.Address"), field("birth", "City"))
    registry.register("city", Schema(city))
    registry.register("address", Schema(address, references=(Reference("shop.City", "city", 1),)))
    references = (Reference("shop.Address", "address", 1), Reference("shop.City", "city", 1))
    value = {"home": {"city": {"name": "Oslo"}, "street": "Storgata"}, "birth": {"name": "Rome"}}
    data = written(registry, Schema(customer, references=references), value)
    assert AvroDeserializer(registry)("topic", data) == value
    assert AvroDeserializer(registry, Schema(customer, references=references))("topic", data) == value


@dataclasses.dataclass
class Customer:
    id: int
    name: str
    email: str | None


def test_objects_are_made_into_dictionaries_and_back(registry: RegistryClient) -> None:
    seen: list[SerializationContext] = []

    def to_dict(customer: Customer, context: SerializationContext) -> dict[str, Any]:
        seen.append(context)
        return dataclasses.asdict(customer)

    def from_dict(value: dict[str, Any], context: SerializationContext) -> Customer:
        seen.append(context)
        return Customer(**value)

    customer = Customer(2, "Grace", None)
    data = AvroSerializer(registry, NEW_CUSTOMER, to_dict=to_dict, is_key=True)("topic", customer)
    assert data is not None
    assert AvroDeserializer(registry, from_dict=from_dict, is_key=True)("topic", data) == customer
    assert seen == [SerializationContext("topic", "key")] * 2


@pytest.mark.parametrize(
    ("value", "path", "told"),
    [
        ({"id": 1}, "customerManagement.avro.Customer.name", "expected string, not None"),
        ({"id": "1", "name": "Ada"}, "customerManagement.avro.Customer.id", "expected int, not '1'"),
        (
            {"id": 1, "name": "Ada", "email": 5},
            "customerManagement.avro.Customer.email",
            "expected null or string, not 5",
        ),
        ("Ada", "", "expected customerManagement.avro.Customer, not 'Ada'"),
        (object(), "", "expected customerManagement.avro.Customer, not <object"),
        ({"id": 2**40, "name": "Ada"}, "customerManagement.avro.Customer.id", "expected int, not 1099511627776"),
    ],
)
def test_a_value_that_does_not_fit(registry: RegistryClient, value: Any, path: str, told: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        written(registry, NEW_CUSTOMER, value)
    assert caught.value.path == path
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("validate.strict", {"id": 1, "name": "Ada"}),
        ("validate.strict.allow.default", {"id": 1, "name": "Ada", "fax": ""}),
    ],
)
def test_strict_writers(registry: RegistryClient, config: str, value: Any) -> None:
    AvroSerializer(registry, NEW_CUSTOMER)("topic", value)
    with pytest.raises(InvalidValueError):
        AvroSerializer(registry, NEW_CUSTOMER, config={config: True})("topic", value)


@pytest.mark.parametrize(
    "text",
    ["{", "nothing", "5", '{"type": "record"}', '{"type": "record", "name": "A", "fields": [{"name": "x"}]}', ""],
)
def test_a_text_that_is_no_schema(registry: RegistryClient, text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="not a schema of Avro"):
        AvroSerializer(registry, text)


def test_data_that_is_cut_off(registry: RegistryClient) -> None:
    data = written(registry, NEW_CUSTOMER, {"id": 1, "name": "Ada", "email": "a@b"})
    for reader in (AvroDeserializer(registry), AvroDeserializer(registry, OLD_CUSTOMER)):
        for size in range(5):
            with pytest.raises(WireFormatError):
                reader("topic", data[:size])
        for size in range(5, len(data)):
            with pytest.raises(InvalidDataError, match="data of the schema 1 cannot be read"):
                reader("topic", data[:size])


def test_a_reader_that_cannot_understand_the_writer(registry: RegistryClient) -> None:
    data = written(registry, OLD_CUSTOMER, OLD_VALUE)
    reader = record("Customer", field("id", "string"))
    with pytest.raises(InvalidDataError, match="with the reader's schema"):
        AvroDeserializer(registry, reader)("topic", data)


NODE = field("next", ["null", "Node"])


@pytest.mark.parametrize(
    "schema",
    [
        record("Node", NODE),
        record("Node", field("next", ["null", json.loads(record("Inner", NODE))])),
        record("Tree", field("nodes", {"type": "array", "items": json.loads(record("Node", NODE))})),
    ],
)
@pytest.mark.parametrize("with_reader", [False, True])
def test_records_in_records_without_end(registry: RegistryClient, schema: str, with_reader: bool) -> None:
    """Which would overflow the stack, and take the process along."""
    registry.register("topic-value", Schema(schema))
    deserialize = AvroDeserializer(registry, schema if with_reader else None)
    with pytest.raises(InvalidDataError, match="recursion"):
        deserialize("topic", b"\0\0\0\0\1" + b"\2" * 100_000)


def test_records_in_records(registry: RegistryClient) -> None:
    value: dict[str, Any] = {"next": None}
    for _ in range(150):
        value = {"next": value}
    data = written(registry, record("Node", NODE), value)
    assert AvroDeserializer(registry)("topic", data) == value


def test_data_of_another_format(registry: RegistryClient) -> None:
    registry.register("topic-value", Schema("{}", "JSON"))
    with pytest.raises(InvalidDataError, match="with the id 1 is JSON, not AVRO"):
        AvroDeserializer(registry)("topic", b"\0\0\0\0\1{}")
    with pytest.raises(InvalidDataError, match="with the id 1 is JSON, not AVRO"):
        AvroSerializer(registry, config={"use.schema.id": 1})("topic", {})
    with pytest.raises(InvalidDataError, match="the latest of topic-value is JSON, not AVRO"):
        AvroSerializer(registry, config={"use.latest.version": True})("topic", {})
