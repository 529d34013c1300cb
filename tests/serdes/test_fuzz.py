"""Any bytes behind a good prefix: a value, or one of the errors that docs/serdes.md names."""

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
IDS = {"types": 1, "customer": 2, "json": 3, "address": 4, "message": 5}
Read = Callable[[str, bytes], Any]


@pytest.fixture(scope="module")
def client() -> Iterator[RegistryClient]:
    with fake_registry() as server, RegistryClient(server.url) as running:
        running.register("types", Schema(TYPES))
        running.register("customer", Schema(NEW_CUSTOMER))
        running.register("json", Schema('{"type": "object"}', "JSON"))
        ProtobufSerializer(running, Customer)("message", make_customer())
        yield running


@pytest.fixture(scope="module")
def readers(client: RegistryClient) -> list[tuple[int, Read]]:
    return [
        (IDS["types"], AvroDeserializer(client)),
        (IDS["customer"], AvroDeserializer(client, OLD_CUSTOMER)),
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
def test_customers_come_back(client: RegistryClient, number: int, name: str, email: str | None) -> None:
    value = {"id": number, "name": name, "email": email}
    data = AvroSerializer(client, config={"use.schema.id": IDS["customer"]})("topic", value)
    assert data is not None
    assert AvroDeserializer(client)("topic", data) == value
