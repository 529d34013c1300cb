"""How a serializer gets the id of its schema. It is the same for all formats; the tests use Avro."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from rookery.base.errors import ConfigError
from rookery.serdes import (
    AvroDeserializer,
    AvroSerializer,
    RegistryClient,
    Schema,
    record_subject_name_strategy,
)
from rookery.serdes.errors import NotRegisteredError, RegistryRequestError, RegistryUnavailableError
from tests.serdes.customers import NEW_CUSTOMER, NEW_VALUE, OLD_CUSTOMER, OLD_VALUE
from tests.serdes.fake_registry import FakeRegistry, Response, error


def test_a_schema_is_registered_with_the_first_record_only(server: FakeRegistry, registry: RegistryClient) -> None:
    serialize = AvroSerializer(registry, OLD_CUSTOMER)
    assert server.requests == []
    for _ in range(3):
        serialize("customers", OLD_VALUE)
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", "/subjects/customers-value/versions")
    ]


def test_a_schema_is_fetched_with_the_first_record_only(server: FakeRegistry, registry: RegistryClient) -> None:
    data = AvroSerializer(registry, OLD_CUSTOMER)("customers", OLD_VALUE)
    assert data is not None
    server.requests.clear()
    with RegistryClient(server.url) as reader:
        deserialize = AvroDeserializer(reader)
        for _ in range(3):
            assert deserialize("customers", data) == OLD_VALUE
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/schemas/ids/1")]


def test_threads_register_once(server: FakeRegistry, registry: RegistryClient) -> None:
    serialize = AvroSerializer(registry, OLD_CUSTOMER)
    with ThreadPoolExecutor(8) as threads:
        written = set(threads.map(serialize, ["customers"] * 50, [OLD_VALUE] * 50))
    assert len(written) == 1
    assert len(server.requests) == 1


def test_every_topic_has_its_subject(server: FakeRegistry, registry: RegistryClient) -> None:
    serialize = AvroSerializer(registry, OLD_CUSTOMER)
    serialize_key = AvroSerializer(registry, '"string"', is_key=True)
    for topic in ("a", "b", "a"):
        serialize(topic, OLD_VALUE)
        serialize_key(topic, "key")
    paths = [request.path.split("/")[2] for request in server.requests]
    assert paths == ["a-value", "a-key", "b-value", "b-key"]


@pytest.mark.parametrize(
    "strategy", ["RecordNameStrategy", record_subject_name_strategy, lambda context, name: f"{name}"]
)
def test_topics_share_the_subject_of_a_record(server: FakeRegistry, registry: RegistryClient, strategy: object) -> None:
    serialize = AvroSerializer(registry, OLD_CUSTOMER, config={"subject.name.strategy": strategy})
    for topic in ("a", "b"):
        serialize(topic, OLD_VALUE)
    assert [request.path for request in server.requests] == ["/subjects/customerManagement.avro.Customer/versions"]


def test_normalization_is_requested(server: FakeRegistry, registry: RegistryClient) -> None:
    AvroSerializer(registry, OLD_CUSTOMER, config={"normalize.schemas": True})("customers", OLD_VALUE)
    assert server.requests[0].query == {"normalize": "true"}


def test_without_registering_the_schema_must_be_there(server: FakeRegistry, registry: RegistryClient) -> None:
    serialize = AvroSerializer(registry, OLD_CUSTOMER, config={"auto.register.schemas": False})
    with pytest.raises(NotRegisteredError, match=r"customers-value; register it, or set auto\.register\.schemas"):
        serialize("customers", OLD_VALUE)
    registry.register("other", Schema('"string"'))
    registry.register("customers-value", Schema(OLD_CUSTOMER))
    assert serialize("customers", OLD_VALUE) == serialize("customers", OLD_VALUE)
    looked_up = [request.path for request in server.requests if not request.path.endswith("versions")]
    assert looked_up == ["/subjects/customers-value"] * 2


def test_the_latest_schema_is_used_as_it_was_at_the_start(server: FakeRegistry, registry: RegistryClient) -> None:
    registry.register("customers-value", Schema(OLD_CUSTOMER))
    registry.register("customers-value", Schema(NEW_CUSTOMER))
    serialize = AvroSerializer(registry, OLD_CUSTOMER, config={"use.latest.version": True})
    data = serialize("customers", NEW_VALUE)
    registry.register("customers-value", Schema('"string"'))
    assert data is not None
    assert serialize("customers", NEW_VALUE) == data
    assert AvroDeserializer(registry)("customers", data) == NEW_VALUE


def test_the_latest_schema_of_a_subject_that_has_none(registry: RegistryClient) -> None:
    serialize = AvroSerializer(registry, config={"use.latest.version": True})
    with pytest.raises(NotRegisteredError, match="customers-value has no schema"):
        serialize("customers", NEW_VALUE)


def test_a_given_id_is_used(server: FakeRegistry, registry: RegistryClient) -> None:
    registry.register("anything", Schema('"string"'))
    registry.register("anything", Schema(NEW_CUSTOMER))
    data = AvroSerializer(registry, config={"use.schema.id": 2})("customers", NEW_VALUE)
    assert data is not None
    assert data[:5] == b"\0\0\0\0\2"
    assert AvroDeserializer(registry)("customers", data) == NEW_VALUE


@pytest.mark.parametrize("schema_id", [0, 5])
def test_an_unknown_id(registry: RegistryClient, schema_id: int) -> None:
    serialize = AvroSerializer(registry, config={"use.schema.id": schema_id})
    with pytest.raises(NotRegisteredError, match=f"id {schema_id} in the registry at http://"):
        serialize("customers", NEW_VALUE)
    with pytest.raises(NotRegisteredError, match="written with another registry"):
        AvroDeserializer(registry)("customers", b"\0\0\0\0\5abc")


def test_an_unknown_schema_is_recognized_by_the_status(server: FakeRegistry, registry: RegistryClient) -> None:
    """Other registries, and gateways in front of them, send other error codes."""
    server.planned.append(error(404, 404, "HTTP 404 Not Found"))
    with pytest.raises(NotRegisteredError, match="no schema with the id 5"):
        AvroDeserializer(registry)("customers", b"\0\0\0\0\5abc")
    server.planned.append(Response(404, b"<html>nothing here</html>"))
    with pytest.raises(RegistryRequestError, match="is that the url of a schema registry"):
        AvroDeserializer(registry)("customers", b"\0\0\0\0\5abc")


def test_an_incompatible_schema_raises(server: FakeRegistry, registry: RegistryClient) -> None:
    serialize = AvroSerializer(registry, OLD_CUSTOMER)
    server.planned.append(error(409, 409, "Schema being registered is incompatible with an earlier schema"))
    with pytest.raises(RegistryRequestError, match="incompatible"):
        serialize("customers", OLD_VALUE)
    assert serialize("customers", OLD_VALUE) is not None


def test_a_registry_that_is_down_is_named() -> None:
    with RegistryClient("http://127.0.0.1:1", {"max.retries": 0}) as registry:
        serialize = AvroSerializer(registry, OLD_CUSTOMER)
        with pytest.raises(RegistryUnavailableError, match=r"http://127\.0\.0\.1:1: .*refused"):
            serialize("customers", OLD_VALUE)


@pytest.mark.parametrize(
    ("schema", "config", "message"),
    [
        (None, {}, r"give a schema, or set use\.latest\.version or use\.schema\.id"),
        (OLD_CUSTOMER, {"auto.register": True}, r"unknown configuration 'auto\.register'"),
        (OLD_CUSTOMER, {"use.schema.id": "one"}, r"use\.schema\.id"),
        (OLD_CUSTOMER, {"use.schema.id": 1, "use.latest.version": True}, "exclude each other"),
        (OLD_CUSTOMER, {"use.latest.version": True, "auto.register.schemas": True}, "exclude each other"),
        (OLD_CUSTOMER, {"subject.name.strategy": "Topic"}, r"subject\.name\.strategy"),
        (Schema("{}", "JSON"), {}, "is JSON, but this is for AVRO"),
    ],
)
def test_wrong_settings(
    registry: RegistryClient, schema: str | Schema | None, config: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        AvroSerializer(registry, schema, config=config)
