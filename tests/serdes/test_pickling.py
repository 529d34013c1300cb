"""Pickling, as when Spark sends serializers to its executors: copies contain no connections, locks and caches."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from rookery.serdes import (
    AvroDeserializer,
    AvroSerializer,
    JSONSchemaDeserializer,
    JSONSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryClient,
    Schema,
    SerializationContext,
    record_subject_name_strategy,
)
from tests.serdes.customers import NEW_CUSTOMER, NEW_VALUE
from tests.serdes.fake_registry import FakeRegistry
from tests.serdes.messages import Customer, make_customer


def same(value: Any, context: SerializationContext) -> Any:
    return value


BY_RECORD = {"subject.name.strategy": record_subject_name_strategy}


@pytest.mark.parametrize(
    ("make_serializer", "make_deserializer", "value"),
    [
        (
            lambda registry: AvroSerializer(registry, NEW_CUSTOMER, to_dict=same, config=BY_RECORD),
            lambda registry: AvroDeserializer(registry, NEW_CUSTOMER, from_dict=same),
            NEW_VALUE,
        ),
        (lambda registry: JSONSchemaSerializer(registry, "{}"), lambda registry: JSONSchemaDeserializer(registry), [1]),
        (
            lambda registry: ProtobufSerializer(registry, Customer),
            lambda registry: ProtobufDeserializer(registry, Customer),
            make_customer(),
        ),
    ],
    ids=["Avro", "JSON Schema", "Protobuf"],
)
def test_serializers_before_and_after_they_were_used(
    registry: RegistryClient,
    make_serializer: Callable[[RegistryClient], Any],
    make_deserializer: Callable[[RegistryClient], Any],
    value: Any,
) -> None:
    serialize, deserialize = make_serializer(registry), make_deserializer(registry)
    for _ in range(2):
        copied_serialize, copied_deserialize = pickle.loads(pickle.dumps((serialize, deserialize)))
        data = copied_serialize("topic", value)
        assert copied_deserialize("topic", data) == value
        assert deserialize("topic", serialize("topic", value)) == value


def test_a_copied_client_has_an_empty_cache(server: FakeRegistry) -> None:
    url = server.url.replace("//", "//me:secret@")
    with RegistryClient(url, {"max.retries": 0}) as client:
        schema_id = client.register("subject", Schema('"string"'))
        client.get_by_id(schema_id)
        copied: RegistryClient = pickle.loads(pickle.dumps(client))
    server.requests.clear()
    with copied:
        assert copied.get_by_id(schema_id).text == '"string"'
    assert [request.user for request in server.requests] == ["me:secret"]
