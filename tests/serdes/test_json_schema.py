import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from rookery.serdes import (
    JSONSchemaDeserializer,
    JSONSchemaSerializer,
    Reference,
    RegistryClient,
    Schema,
    SerializationContext,
)
from rookery.serdes.errors import InvalidDataError, InvalidSchemaError, InvalidValueError, WireFormatError
from tests.serdes.fake_registry import FakeRegistry, Response

ORDER = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
            "day": {"type": "string"},
        },
        "required": ["id"],
    }
)
VALUE = {"id": 1, "lines": [{"price": 2.5}]}


def written(registry: RegistryClient, schema: str | Schema, value: Any, config: Mapping[str, object] = {}) -> bytes:
    data = JSONSchemaSerializer(registry, schema, config=config)("topic", value)
    assert data is not None
    return data


def test_the_bytes(server: FakeRegistry, registry: RegistryClient) -> None:
    assert written(registry, ORDER, VALUE) == b'\0\0\0\0\1{"id":1,"lines":[{"price":2.5}]}'
    assert server.requests[0].body == {"schema": ORDER, "schemaType": "JSON"}


def test_values_survive_a_round_trip_without_further_requests(server: FakeRegistry, registry: RegistryClient) -> None:
    data = written(registry, ORDER, VALUE)
    deserialize = JSONSchemaDeserializer(registry)
    assert deserialize("topic", data) == VALUE
    server.requests.clear()
    assert deserialize("topic", data) == VALUE
    assert server.requests == []


@dataclasses.dataclass
class Line:
    price: float


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have(registry: RegistryClient, number: float, validate: bool) -> None:
    for schema in (ORDER, "{}"):
        with pytest.raises(InvalidValueError, match="JSON cannot represent this number") as caught:
            written(registry, schema, {"id": 1, "lines": [None, Line(number)]}, {"validate": validate})
        assert caught.value.path == "$.lines[1].price"


def test_none_stays_none(registry: RegistryClient) -> None:
    assert JSONSchemaSerializer(registry, ORDER)("topic", None) is None
    assert JSONSchemaDeserializer(registry)("topic", None) is None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"lines": []}, "$"),
        ({"id": "1"}, "$.id"),
        ({"id": 1, "lines": [{"price": 1}, {"price": "2"}]}, "$.lines[1].price"),
        ([], "$"),
    ],
)
def test_a_value_that_does_not_match(registry: RegistryClient, value: Any, path: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        written(registry, ORDER, value)
    assert caught.value.path == path
    unchecked = written(registry, ORDER, value, {"validate": False})
    with pytest.raises(InvalidDataError, match="data of the schema 1 does not match"):
        JSONSchemaDeserializer(registry)("topic", unchecked)
    JSONSchemaDeserializer(registry, config={"validate": False})("topic", unchecked)


def test_values_that_cannot_be_json(registry: RegistryClient) -> None:
    with pytest.raises(InvalidValueError, match="give to_dict"):
        written(registry, ORDER, object())


@dataclasses.dataclass
class Order:
    id: int
    day: date


def test_dataclasses_and_dates_are_json_already(registry: RegistryClient) -> None:
    data = written(registry, ORDER, Order(1, date(2026, 2, 3)))
    assert JSONSchemaDeserializer(registry)("topic", data) == {"id": 1, "day": "2026-02-03"}


def test_other_objects_are_made_into_dictionaries_and_back(registry: RegistryClient) -> None:
    def to_dict(value: complex, context: SerializationContext) -> dict[str, Any]:
        assert context == SerializationContext("topic", "key")
        return {"id": int(value.real)}

    def from_dict(value: dict[str, Any], context: SerializationContext) -> complex:
        assert context == SerializationContext("topic", "key")
        return complex(value["id"])

    data = JSONSchemaSerializer(registry, ORDER, to_dict=to_dict, is_key=True)("topic", 5 + 0j)
    assert data is not None
    assert JSONSchemaDeserializer(registry, from_dict=from_dict, is_key=True)("topic", data) == 5 + 0j


def test_values_are_validated_with_the_readers_schema(server: FakeRegistry, registry: RegistryClient) -> None:
    data = written(registry, ORDER, VALUE)
    strict = json.dumps({"type": "object", "required": ["email"]})
    with pytest.raises(InvalidDataError, match="email"):
        JSONSchemaDeserializer(registry, strict)("topic", data)
    registry.register("topic-value", Schema(strict, "JSON"))
    with pytest.raises(InvalidDataError, match="email"):
        JSONSchemaDeserializer(registry, config={"use.latest.version": True})("topic", data)


@pytest.mark.parametrize("own", [None, "https://shop.example/schemas/order.json"])
@pytest.mark.parametrize("name", ["line.json", "https://shop.example/schemas/line.json"])
def test_schemas_that_refer_to_others(registry: RegistryClient, own: str | None, name: str) -> None:
    registry.register("price", Schema('{"type": "number"}', "JSON"))
    line = Schema('{"properties": {"price": {"$ref": "price.json"}}}', "JSON", (Reference("price.json", "price", 1),))
    if name.startswith("https:") or own is not None:
        line = Schema(
            '{"properties": {"price": {"$ref": "https://shop.example/price"}}}',
            "JSON",
            (Reference("https://shop.example/price", "price", 1),),
        )
    registry.register("line", line)
    text = {"type": "array", "items": {"$ref": name}} | ({"$id": own} if own else {})
    schema = Schema(json.dumps(text), "JSON", (Reference(name, "line", 1),))
    data = written(registry, schema, [{"price": 1}])
    assert JSONSchemaDeserializer(registry)("topic", data) == [{"price": 1}]
    with pytest.raises(InvalidValueError, match=r"\$\[0\]\.price"):
        written(registry, schema, [{"price": "1"}])


def test_nothing_is_fetched_from_elsewhere(server: FakeRegistry, registry: RegistryClient) -> None:
    with pytest.raises(InvalidSchemaError, match=r"unresolved \$ref"):
        JSONSchemaSerializer(registry, json.dumps({"$ref": f"{server.url}/schemas/ids/1"}))
    assert server.requests == []


def test_schemas_are_of_draft_7_unless_they_say_so(registry: RegistryClient) -> None:
    newer = {"prefixItems": [{"type": "integer"}]}
    written(registry, json.dumps(newer), ["text"])
    with pytest.raises(InvalidValueError):
        written(registry, json.dumps(newer | {"$schema": "https://json-schema.org/draft/2020-12/schema"}), ["text"])


@pytest.mark.parametrize("text", ["", "{", '{"type": "thing"}', '{"$ref": "#/definitions/none"}', "5"])
def test_an_invalid_schema(registry: RegistryClient, text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="not a JSON Schema"):
        JSONSchemaSerializer(registry, text)


def test_a_schema_of_true_allows_everything(registry: RegistryClient) -> None:
    assert JSONSchemaDeserializer(registry)("topic", written(registry, "true", [1])) == [1]


def test_invalid_data(registry: RegistryClient) -> None:
    written(registry, ORDER, VALUE)
    deserialize = JSONSchemaDeserializer(registry)
    with pytest.raises(WireFormatError):
        deserialize("topic", b'{"id":1}')
    with pytest.raises(InvalidDataError, match="not JSON"):
        deserialize("topic", b"\0\0\0\0\1\xff")
    with pytest.raises(InvalidDataError, match="not JSON"):
        deserialize("topic", b"\0\0\0\0\1" + b"[" * 100_000)


def test_formats_are_not_validated(registry: RegistryClient) -> None:
    schema = '{"type": "string", "format": "date", "$schema": "http://json-schema.org/draft-07/schema#"}'
    assert JSONSchemaDeserializer(registry)("topic", written(registry, schema, "someday")) == "someday"


def test_a_schema_that_cannot_be_used_makes_the_data_unreadable(server: FakeRegistry, registry: RegistryClient) -> None:
    server.planned.append(Response(200, {"schema": '{"type": "nothing"}', "schemaType": "JSON"}))
    with pytest.raises(InvalidDataError, match="with the id 1 cannot be used: not a JSON Schema"):
        JSONSchemaDeserializer(registry)("topic", b"\0\0\0\0\1{}")
