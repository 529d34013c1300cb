from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from rookery.base.errors import ConfigError
from rookery.serdes import ProtobufDeserializer, ProtobufSerializer, RegistryClient, Schema
from rookery.serdes.errors import InvalidDataError, InvalidValueError, NotRegisteredError, WireFormatError
from tests.serdes.fake_registry import FakeRegistry, Response
from tests.serdes.messages import Address, Customer, First, Last, Note, Strict, make_customer

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string text = 1; }
message Order {
  map<string, int32> counts = 1;
  message Line { string item = 1; }
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
}
"""


def written(registry: RegistryClient, message: Message, **config: object) -> bytes:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    data = ProtobufSerializer(registry, type(message), config=settings)("topic", message)
    assert data is not None
    return data


@pytest.mark.parametrize(
    ("message", "indexes"),
    [
        (First(), b"\0"),
        (Customer(id=7), b"\2\2"),
        (Note(text="a"), b"\4\2\0"),
        (Last(text="a"), b"\4\2\4"),
        (Address(street="a"), b"\0"),
    ],
)
def test_the_bytes_before_a_message(registry: RegistryClient, message: Message, indexes: bytes) -> None:
    data = written(registry, message)
    assert data[5:] == indexes + message.SerializeToString()


@pytest.mark.parametrize("message", [First(), make_customer(), Note(text="a"), Last(text="b"), Address(street="c")])
def test_messages_survive_a_round_trip_with_and_without_a_class(registry: RegistryClient, message: Message) -> None:
    data = written(registry, message)
    assert ProtobufDeserializer(registry, type(message))("topic", data) == message
    read = ProtobufDeserializer(registry)("topic", data)
    assert read.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
    assert MessageToDict(read) == MessageToDict(message)


def test_imports_are_registered_first_and_become_references(server: FakeRegistry, registry: RegistryClient) -> None:
    serialize = ProtobufSerializer(registry, Customer)
    serialize("topic", make_customer())
    posts = [(each.path, each.body) for each in server.requests if each.method == "POST"]
    address = {"schema": encoded(Address), "schemaType": "PROTOBUF"}
    references = [{"name": "shop/address.proto", "subject": "shop/address.proto", "version": 1}]
    assert posts == [
        ("/subjects/shop%2Faddress.proto/versions", address),
        ("/subjects/shop%2Faddress.proto", address),
        (
            "/subjects/topic-value/versions",
            {"schema": encoded(Customer), "schemaType": "PROTOBUF", "references": references},
        ),
    ]
    server.requests.clear()
    serialize("topic", make_customer())
    assert server.requests == []


def encoded(message_type: Any) -> str:
    return b64encode(message_type.DESCRIPTOR.file.serialized_pb).decode()


def test_well_known_imports_can_be_registered_too(server: FakeRegistry, registry: RegistryClient) -> None:
    data = written(registry, make_customer(), skip_known_types=False)
    assert "/subjects/google%2Fprotobuf%2Ftimestamp.proto/versions" in [each.path for each in server.requests]
    assert ProtobufDeserializer(registry)("topic", data).since.seconds == 5


def test_without_registering_the_files_must_be_there(registry: RegistryClient) -> None:
    config = {"auto.register.schemas": False}
    with pytest.raises(NotRegisteredError, match=r"subject shop/address\.proto; register it"):
        ProtobufSerializer(registry, Customer, config=config)("topic", make_customer())
    data = ProtobufSerializer(registry, Customer)("topic", make_customer())
    assert ProtobufSerializer(registry, Customer, config=config)("topic", make_customer()) == data


def test_with_a_class_the_registry_is_not_asked(server: FakeRegistry, registry: RegistryClient) -> None:
    data = written(registry, make_customer())
    server.requests.clear()
    assert ProtobufDeserializer(registry, Customer)("topic", data) == make_customer()
    assert server.requests == []


def test_without_a_class_the_schema_is_fetched_once(server: FakeRegistry, registry: RegistryClient) -> None:
    data = written(registry, make_customer())
    with RegistryClient(server.url) as reader:
        deserialize = ProtobufDeserializer(reader)
        deserialize("topic", data)
        server.requests.clear()
        assert type(deserialize("topic", data)) is type(deserialize("topic", data))
    assert server.requests == []


def test_a_class_reads_what_a_later_one_wrote(registry: RegistryClient) -> None:
    read = ProtobufDeserializer(registry, First)("topic", written(registry, make_customer()))
    assert Customer.FromString(read.SerializeToString()) == make_customer()


def test_the_indexes_are_those_of_the_registered_file(registry: RegistryClient) -> None:
    """The registered file has the messages in another order than the file of the class."""
    text = 'syntax = "proto3"; package shop.messages; message New {} message Address { string street = 1; }'
    registry.register("topic-value", Schema(text, "PROTOBUF"))
    data = written(registry, Address(street="a"), use_latest_version=True)
    assert data[5:7] == b"\2\2"
    assert ProtobufDeserializer(registry)("topic", data).street == "a"
    with pytest.raises(InvalidValueError, match=r"schema with the id 1 has no message shop\.messages\.First"):
        written(registry, First(), use_schema_id=1)


def test_the_indexes_are_those_of_the_normal_form(server: FakeRegistry, registry: RegistryClient) -> None:
    written(registry, Last(text="a"), normalize_schemas=True)
    assert all(request.query == {"normalize": "true"} for request in server.requests if request.method == "POST")
    assert ("GET", "/schemas/ids/2") in [(request.method, request.path) for request in server.requests]


def test_a_file_of_another_serializer(registry: RegistryClient) -> None:
    """Map entries are not messages in the text of a file, and do not count in its indexes."""
    registry.register("topic-value", Schema(ORDER, "PROTOBUF"))
    deserialize = ProtobufDeserializer(registry)
    line = deserialize("topic", b"\0\0\0\0\1\4\2\0" + b"\x0a\3pen")
    assert (line.DESCRIPTOR.full_name, line.item) == ("shop.Order.Line", "pen")
    order_type = type(deserialize("topic", b"\0\0\0\0\1\2\2"))
    order = order_type(counts={"a": 1}, lines=[{"item": "pen"}], at={"seconds": 9})
    read = deserialize("topic", b"\0\0\0\0\1\2\2" + order.SerializeToString())
    assert MessageToDict(read) == {"counts": {"a": 1}, "lines": [{"item": "pen"}], "at": "1970-01-01T00:00:09Z"}


def test_values_that_do_not_match(registry: RegistryClient) -> None:
    assert ProtobufSerializer(registry, Customer)("topic", None) is None
    assert ProtobufDeserializer(registry)("topic", None) is None
    with pytest.raises(InvalidValueError, match=r"expected a message shop\.messages\.Customer, not First"):
        ProtobufSerializer(registry, Customer)("topic", First())
    with pytest.raises(InvalidValueError, match="missing: name"):
        written(registry, Strict())


@pytest.mark.parametrize(
    ("rest", "error", "message"),
    [
        (b"", WireFormatError, "message indexes cannot be read"),
        (b"\2\x12", InvalidDataError, r"no message at \[9\]"),
        (b"\4\0\0", InvalidDataError, r"no message at \[0, 0\]"),
        (b"\2\2\xff", InvalidDataError, r"data of the schema 2 is not a valid message shop\.messages\.Customer"),
    ],
)
def test_invalid_data(registry: RegistryClient, rest: bytes, error: type[Exception], message: str) -> None:
    data = written(registry, make_customer())
    with pytest.raises(error, match=message):
        ProtobufDeserializer(registry)("topic", data[:5] + rest)


def test_data_of_another_format(registry: RegistryClient) -> None:
    registry.register("topic-value", Schema("{}", "JSON"))
    with pytest.raises(InvalidDataError, match="is JSON, not PROTOBUF"):
        ProtobufDeserializer(registry)("topic", b"\0\0\0\0\1\0")


def test_settings_of_a_deserializer(registry: RegistryClient) -> None:
    data = written(registry, make_customer())
    deserialize = ProtobufDeserializer(registry, Customer, is_key=False, config={"use.latest.version": False})
    assert deserialize("topic", memoryview(data)) == make_customer()
    with pytest.raises(ConfigError, match="unknown configuration"):
        ProtobufDeserializer(registry, Customer, config={"use.latest": True})


def test_a_schema_that_cannot_be_used_makes_the_data_unreadable(server: FakeRegistry, registry: RegistryClient) -> None:
    server.planned.append(Response(200, {"schema": "message", "schemaType": "PROTOBUF"}))
    with pytest.raises(InvalidDataError, match="with the id 1 cannot be used"):
        ProtobufDeserializer(registry)("topic", b"\0\0\0\0\1\0")
