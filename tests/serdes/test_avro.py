import dataclasses
import json
from collections import deque
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rookery.serdes import (
    AvroDeserializer,
    AvroSerializer,
    Reference,
    RegistryClient,
    Schema,
    SerializationContext,
)
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError, InvalidValueError, WireFormatError
from tests.serdes.customers import NEW_CUSTOMER, OLD_AS_NEW, OLD_CUSTOMER, OLD_VALUE, SCHEMAS, SEEN, VALUES
from tests.serdes.fake_registry import FakeRegistry, Response


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


def test_none_stays_none(server: FakeRegistry, registry: RegistryClient) -> None:
    assert AvroSerializer(registry, '"string"')("topic", None) is None
    assert AvroDeserializer(registry)("topic", None) is None
    assert server.requests == []


@pytest.mark.parametrize(("writer", "reader"), list(SEEN))
def test_old_and_new_readers_and_writers(registry: RegistryClient, writer: str, reader: str) -> None:
    data = written(registry, SCHEMAS[writer], VALUES[writer])
    deserialize = AvroDeserializer(registry, SCHEMAS[reader])
    assert deserialize("topic", data) == SEEN[writer, reader]


def test_without_a_readers_schema_the_writers_is_used(registry: RegistryClient) -> None:
    deserialize = AvroDeserializer(registry)
    for version in ("old", "new"):
        assert deserialize("topic", written(registry, SCHEMAS[version], VALUES[version])) == VALUES[version]


@pytest.mark.parametrize("strategy", ["TopicNameStrategy", "RecordNameStrategy"])
def test_the_latest_schema_is_the_readers(server: FakeRegistry, registry: RegistryClient, strategy: str) -> None:
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
    ("value", "path", "message"),
    [
        ({"id": 1}, "$.name", "expected string, not None"),
        ({"id": "1", "name": "Ada"}, "$.id", "expected int, not '1'"),
        (
            {"id": 1, "name": "Ada", "email": 5},
            "$.email",
            "expected null or string, not 5",
        ),
        ("Ada", "$", "expected customerManagement.avro.Customer, not 'Ada'"),
        (object(), "$", "expected customerManagement.avro.Customer, not <object"),
        ({"id": 2**40, "name": "Ada"}, "$.id", "expected int, not 1099511627776"),
    ],
)
def test_a_value_that_does_not_match(registry: RegistryClient, value: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        written(registry, NEW_CUSTOMER, value)
    assert caught.value.path == path
    assert message in str(caught.value)


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
def test_an_invalid_schema(registry: RegistryClient, text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="not a schema of Avro"):
        AvroSerializer(registry, text)


def test_truncated_data(registry: RegistryClient) -> None:
    data = written(registry, NEW_CUSTOMER, {"id": 1, "name": "Ada", "email": "a@b"})
    for reader in (AvroDeserializer(registry), AvroDeserializer(registry, OLD_CUSTOMER)):
        for size in range(5):
            with pytest.raises(WireFormatError):
                reader("topic", data[:size])
        for size in range(5, len(data)):
            with pytest.raises(InvalidDataError, match="data of the schema 1 cannot be read"):
                reader("topic", data[:size])


def test_an_incompatible_readers_schema(registry: RegistryClient) -> None:
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
def test_endlessly_nested_records(registry: RegistryClient, schema: str, with_reader: bool) -> None:
    """Without the limit they would overflow the stack and end the process."""
    registry.register("topic-value", Schema(schema))
    deserialize = AvroDeserializer(registry, schema if with_reader else None)
    with pytest.raises(InvalidDataError, match="more than 500 levels deep"):
        deserialize("topic", b"\0\0\0\0\1" + b"\2" * 100_000)


def test_nested_records(registry: RegistryClient) -> None:
    value = nested(490)
    data = written(registry, record("Node", NODE), value)
    assert AvroDeserializer(registry)("topic", data) == value


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"next": None}
    for _ in range(depth):
        value = {"next": value}
    return value


def test_values_that_are_too_deep_or_contain_themselves(registry: RegistryClient) -> None:
    """Without the limit they would overflow the stack and end the process."""
    endless: dict[str, Any] = {}
    endless["next"] = endless
    tree = json.dumps({"type": "record", "name": "T", "fields": [field("t", {"type": "array", "items": "T"})]})
    own: dict[str, Any] = {"t": deque()}
    own["t"].append(own)
    for schema, value in ((record("Node", NODE), endless), (record("Node", NODE), nested(50_000)), (tree, own)):
        with pytest.raises(InvalidValueError, match="more than 500 levels deep, or contains itself"):
            written(registry, schema, value)
    with pytest.raises(InvalidValueError, match="expected null or int"):
        written(registry, record("Flat", field("next", ["null", "int"])), endless)


ENDLESS = record("Endless", field("self", "Endless"))
EMPTY = {"type": "record", "name": "Empty", "fields": []}
# A block of 2**31 - 1 items, and the end of the blocks.
HUGE_COUNT = b"\xfe\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    "items",
    [
        "null",
        EMPTY,
        {"type": "fixed", "name": "None", "size": 0},
        {"type": "record", "name": "Nulls", "fields": [field("a", "null"), field("b", EMPTY)]},
    ],
    ids=["null", "no fields", "no size", "null fields"],
)
@pytest.mark.parametrize("reader", [None, record("Other", field("other", "int", default=1))])
def test_a_huge_count_of_empty_items_is_rejected(registry: RegistryClient, items: Any, reader: str | None) -> None:
    schema = record("Other", field("list", {"type": "array", "items": items}))
    registry.register("topic-value", Schema(schema))
    deserialize = AvroDeserializer(registry, reader)
    for data in (HUGE_COUNT + b"\0", b"\xfd" + HUGE_COUNT[1:] + b"\2\0", b"\x80\xfa\1" * 10 + b"\0"):
        with pytest.raises(InvalidDataError, match="more items than it has bytes"):
            deserialize("topic", b"\0\0\0\0\1" + data)


def test_arrays_of_empty_items(registry: RegistryClient) -> None:
    schema = record(
        "Lists",
        field("nulls", {"type": "array", "items": "null"}),
        field("map", {"type": "map", "values": EMPTY}),
        field("rest", ["null", "boolean", {"type": "fixed", "name": "F", "size": 2}]),
        field("numbers", {"type": "array", "items": ["int", "double", "string"]}),
    )
    value = {"nulls": [None] * 5000, "map": {"a": {}, "b": {}}, "rest": b"xy", "numbers": [1, 0.5, "x"]}
    assert AvroDeserializer(registry)("topic", written(registry, schema, value)) == value


def test_an_endless_record(registry: RegistryClient) -> None:
    registry.register("topic-value", Schema(ENDLESS))
    with pytest.raises(InvalidDataError, match="more than 500 levels deep"):
        AvroDeserializer(registry)("topic", b"\0\0\0\0\1")


def test_the_readers_defaults_are_values(registry: RegistryClient) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    inner = {"type": "record", "name": "I", "fields": [field("n", "int", default=7), field("b", "bytes", default="ÿ")]}
    fields = [
        field("bytes", "bytes", default="\u00ff"),
        field("price", decimal, default="\u0001"),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}, default=0),
        field("day", {"type": "int", "logicalType": "date"}, default=1),
        field("inner", inner, default={}),
        field("choice", ["bytes", "null"], default="a"),
        field("rate", "double", default="NaN"),
        field("inners", {"type": "map", "values": "I"}, default={"x": {"n": 1}}),
    ]
    data = written(registry, record("R", field("id", "int")), {"id": 1})
    found = AvroDeserializer(registry, record("R", field("id", "int"), *fields))("topic", data)
    assert str(found.pop("rate")) == "nan"
    assert found == {
        "id": 1,
        "bytes": b"\xff",
        "price": Decimal("0.01"),
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "day": date(1970, 1, 2),
        "inner": {"n": 7, "b": b"\xff"},
        "choice": b"a",
        "inners": {"x": {"n": 1, "b": b"\xff"}},
    }


def test_a_changed_default_does_not_affect_other_records(registry: RegistryClient) -> None:
    data = written(registry, record("R", field("id", "int")), {"id": 1})
    lists = {"type": "map", "values": {"type": "array", "items": "int"}}
    deserialize = AvroDeserializer(registry, record("R", field("id", "int"), field("lists", lists, default={"a": [1]})))
    deserialize("topic", data)["lists"]["a"].append(2)
    assert deserialize("topic", data) == {"id": 1, "lists": {"a": [1]}}


def test_missing_fields_are_written_with_their_defaults(registry: RegistryClient) -> None:
    items = json.loads(record("R", field("b", "bytes", default="\u00ff"), field("l", "long", default=5)))
    schema = json.dumps({"type": "array", "items": items})
    assert AvroDeserializer(registry)("topic", written(registry, schema, [{}])) == [{"b": b"\xff", "l": 5}]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ({"type": "array", "items": "int"}, [], [1]),
        ({"type": "map", "values": "int"}, {}, {"a": 1}),
        ({"type": "record", "name": "I", "fields": [field("n", "int", default=7)]}, {}, {"n": 1}),
    ],
    ids=["array", "map", "record"],
)
def test_fields_with_defaults_of_many_parts_are_written(
    registry: RegistryClient, kind: Any, default: Any, value: Any
) -> None:
    """fastavro's writer accepts only plain dictionaries as fields, no subclasses."""
    serialize = AvroSerializer(registry, record("R", field("id", "int"), field("parts", kind, default=default)))
    deserialize = AvroDeserializer(registry)
    assert deserialize("t", serialize("t", {"id": 1, "parts": value})) == {"id": 1, "parts": value}
    filled = {"n": 7} if kind["type"] == "record" else default
    assert deserialize("t", serialize("t", {"id": 1})) == {"id": 1, "parts": filled}


@pytest.mark.parametrize("default", ["x", 2**40, None, {}], ids=str)
def test_defaults_of_the_wrong_type_are_ignored(registry: RegistryClient, default: Any) -> None:
    """Old versions of registries accepted such schemas, and data was written with them."""
    schema = record("R", field("id", "int", default=default))
    data = written(registry, schema, {"id": 1})
    assert AvroDeserializer(registry)("topic", data) == {"id": 1}
    assert AvroDeserializer(registry, schema)("topic", data) == {"id": 1}
    other = written(registry, record("R"), {})
    with pytest.raises(InvalidDataError, match="No default value for field id"):
        AvroDeserializer(registry, schema)("topic", other)


def test_endless_defaults_are_ignored(registry: RegistryClient) -> None:
    doubling: Any = "null"
    for level in range(15):
        fields = [field(name, doubling if name == "a" else f"R{level - 1}", default={}) for name in "ab"]
        doubling = {"type": "record", "name": f"R{level}", "fields": fields if level else []}
    for endless in (json.loads(record("E", field("e", "E", default={}))), doubling):
        schema = record("Top", field("id", "int"), field("more", endless, default={}))
        data = written(registry, record("Top", field("id", "int")), {"id": 1})
        with pytest.raises(InvalidDataError, match="No default value for field more"):
            AvroDeserializer(registry, schema)("topic", data)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5),
        ("int", "1"),
        ("long", 1.5),
        ("long", 2**63),
        ("boolean", "false"),
        ("boolean", 1),
        ({"type": "int", "logicalType": "date"}, 2**31),
        ({"type": "int", "logicalType": "time-millis"}, 2**31),
        ({"type": "int", "logicalType": "of-ours"}, -(2**31) - 1),
        ({"type": "long", "logicalType": "timestamp-millis"}, 0.5),
        ({"type": "string", "logicalType": "uuid"}, "nope"),
        (["null", {"type": "string", "logicalType": "uuid"}], "nope"),
        (["null", "int"], 0.5),
    ],
    ids=str,
)
def test_values_that_fastavro_would_change_are_rejected(registry: RegistryClient, kind: Any, value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        written(registry, record("R", field("x", kind)), {"x": value})
    assert caught.value.path == "$.x"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["int", "double"], 1.5),
        (["boolean", "string"], "x"),
        ([{"type": "string", "logicalType": "uuid"}, "int"], 5),
        ("boolean", False),
    ],
)
def test_values_that_match_another_branch(registry: RegistryClient, kind: Any, value: Any) -> None:
    data = written(registry, record("R", field("x", kind)), {"x": value})
    assert AvroDeserializer(registry)("topic", data) == {"x": value}


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"lines": [{"price": 1.5}, {"price": "x"}]}, "$.lines[1].price", "expected double, not 'x'"),
        ({"lines": [], "more": {"a": {"price": None}}}, "$.more.a.price", "expected double, not None"),
        ({"lines": ["x" * 100_000]}, "$.lines[0]", "expected shop.Line, not 'xxx"),
        ({"lines": [], "more": {"a": ("shop.Line", {"price": ""})}}, "$.more.a.price", "expected double, not ''"),
        ({"lines": [], "more": {"a": ("None", {})}}, "$.more.a", "expected null or shop.Line"),
    ],
)
def test_the_path_names_the_deepest_mismatch(registry: RegistryClient, value: Any, path: str, message: str) -> None:
    line = json.loads(record("Line", field("price", "double")))
    more = {"type": "map", "values": ["null", "Line"]}
    schema = record("Order", field("lines", {"type": "array", "items": line}), field("more", more, default={}))
    with pytest.raises(InvalidValueError) as caught:
        written(registry, schema, value)
    assert caught.value.path == path
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_mismatch_in_a_large_value_is_not_explained(registry: RegistryClient) -> None:
    """With two branches at each level, the search for the reason takes exponential time."""
    inner = {"type": "record", "name": "B", "fields": [field("next", ["null", "A", "B"])]}
    schema = json.dumps({"type": "record", "name": "A", "fields": [field("next", ["null", "A", inner])]})
    value = nested(14)
    with pytest.raises(InvalidValueError, match="do not match") as caught:
        written(registry, schema.replace('"null"', '"string"'), value)
    assert caught.value.path == ""
    assert len(str(caught.value)) < 500


def test_a_schema_that_cannot_be_used_makes_the_data_unreadable(server: FakeRegistry, registry: RegistryClient) -> None:
    server.planned.append(Response(200, {"schema": '{"type": "' + "x" * 10_000}))
    with pytest.raises(
        InvalidDataError, match="the schema with the id 1 cannot be used: not a schema of Avro"
    ) as caught:
        AvroDeserializer(registry)("topic", b"\0\0\0\0\1")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_data_may_be_any_buffer(registry: RegistryClient, kind: Any) -> None:
    data = kind(written(registry, record("R", field("id", "int")), {"id": 1}))
    assert AvroDeserializer(registry)("topic", data) == {"id": 1}


def test_conversions_that_fail(registry: RegistryClient) -> None:
    def fail(value: Any, context: SerializationContext) -> Any:
        raise KeyError("name")

    with pytest.raises(InvalidValueError, match="to_dict failed: 'name'") as caught:
        AvroSerializer(registry, '"string"', to_dict=fail)("topic", "x")
    assert isinstance(caught.value.__cause__, KeyError)
    data = written(registry, '"string"', "x")
    with pytest.raises(InvalidDataError, match="from_dict failed: 'name'") as unread:
        AvroDeserializer(registry, from_dict=fail)("topic", data)
    assert isinstance(unread.value.__cause__, KeyError)


def test_data_of_another_format(registry: RegistryClient) -> None:
    registry.register("topic-value", Schema("{}", "JSON"))
    with pytest.raises(InvalidDataError, match="with the id 1 is JSON, not AVRO"):
        AvroDeserializer(registry)("topic", b"\0\0\0\0\1{}")
    with pytest.raises(InvalidDataError, match="with the id 1 is JSON, not AVRO"):
        AvroSerializer(registry, config={"use.schema.id": 1})("topic", {})
    with pytest.raises(InvalidDataError, match="the latest of topic-value is JSON, not AVRO"):
        AvroSerializer(registry, config={"use.latest.version": True})("topic", {})
