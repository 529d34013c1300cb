"""Arbitrary bytes after a valid prefix give a value, or one of the errors that docs/serdes.md names."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.serdes import (
    AvroDeserializer,
    AvroSerializer,
    JSONSchemaDeserializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryClient,
    Schema,
)
from rookery.serdes.errors import SerdesError
from tests.serdes.customers import NEW_CUSTOMER, OLD_CUSTOMER
from tests.serdes.fake_registry import fake_registry
from tests.serdes.messages import Customer, make_customer

TYPES = json.dumps(
    {
        "type": "record",
        "name": "Types",
        "fields": [
            {"name": "text", "type": ["null", "string"]},
            {"name": "list", "type": {"type": "array", "items": "long"}},
            {"name": "map", "type": {"type": "map", "values": "bytes"}},
            {"name": "choice", "type": {"type": "enum", "name": "Choice", "symbols": ["A", "B"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
)
RISKY = json.dumps(
    {
        "type": "record",
        "name": "Risky",
        "fields": [
            {"name": "nulls", "type": {"type": "array", "items": "null"}},
            {"name": "map", "type": {"type": "map", "values": ["null", "Risky", "double"]}},
            {"name": "list", "type": {"type": "array", "items": ["Risky", "boolean", "string"]}},
            {"name": "bits", "type": {"type": "fixed", "name": "Bits", "size": 2}},
        ],
    }
)
IDS = {"types": 1, "customer": 2, "json": 3, "address": 4, "message": 5, "risky": 6}
Read = Callable[[str, bytes], Any]


@pytest.fixture(scope="module")
def client() -> Iterator[RegistryClient]:
    with fake_registry() as server, RegistryClient(server.url) as running:
        running.register("types", Schema(TYPES))
        running.register("customer", Schema(NEW_CUSTOMER))
        running.register("json", Schema('{"type": "object"}', "JSON"))
        ProtobufSerializer(running, Customer)("message", make_customer())
        running.register("risky", Schema(RISKY))
        yield running


@pytest.fixture(scope="module")
def readers(client: RegistryClient) -> list[tuple[int, Read]]:
    return [
        (IDS["types"], AvroDeserializer(client)),
        (IDS["customer"], AvroDeserializer(client, OLD_CUSTOMER)),
        (IDS["risky"], AvroDeserializer(client)),
        (IDS["json"], JSONSchemaDeserializer(client)),
        (IDS["message"], ProtobufDeserializer(client)),
        (IDS["message"], ProtobufDeserializer(client, Customer)),
    ]


@given(st.binary(max_size=60))
def test_any_payload(readers: list[tuple[int, Read]], payload: bytes) -> None:
    for schema_id, read in readers:
        with suppress(SerdesError):
            read("topic", schema_id.to_bytes(5, "big") + payload)


@given(st.integers(-(2**31), 2**31 - 1), st.text(), st.none() | st.text())
def test_customers_survive_a_round_trip(client: RegistryClient, number: int, name: str, email: str | None) -> None:
    value = {"id": number, "name": name, "email": email}
    data = AvroSerializer(client, config={"use.schema.id": IDS["customer"]})("topic", value)
    assert data is not None
    assert AvroDeserializer(client)("topic", data) == value


def risky(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "nulls": st.lists(st.none(), max_size=9),
            "map": st.dictionaries(st.text(max_size=3), inner | st.none() | st.just(0.5), max_size=2),
            "list": st.lists(inner | st.booleans() | st.text(max_size=3), max_size=2),
            "bits": st.binary(min_size=2, max_size=2),
        }
    )


@given(st.recursive(risky(st.nothing()), risky, max_leaves=5))
def test_written_values_are_within_the_bounds(client: RegistryClient, value: Any) -> None:
    data = AvroSerializer(client, config={"use.schema.id": IDS["risky"]})("topic", value)
    assert data is not None
    assert AvroDeserializer(client)("topic", data) == value
