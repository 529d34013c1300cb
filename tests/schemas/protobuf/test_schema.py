import base64

import pytest
from google.protobuf import descriptor_pb2, json_format

from rookery.schemas.interface import InvalidSchemaError, Reference
from rookery.schemas.protobuf import ProtobufSchema, parse

CUSTOMER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "address.proto";
message Customer {
  int64 id = 1;
  repeated Contact contacts = 2;
  map<string, shop.common.Address> addresses = 3;
  google.protobuf.Timestamp since = 4;
  message Contact { oneof way { string email = 1; string fax = 2; } message Kind {} }
  message Last {}
}
enum Level { NONE = 0; }
message Order { Customer customer = 1; }
"""
ADDRESS = 'syntax = "proto3"; package shop.common; import "country.proto"; message Address { Country country = 1; }'
COUNTRY = 'syntax = "proto3"; package shop.common; message Country { string code = 1; }'
RESOLVED = {"country.proto": COUNTRY, "address.proto": ADDRESS}
REFERENCES = (Reference("address.proto", "address", 3),)


@pytest.fixture
def customer() -> ProtobufSchema:
    return parse(CUSTOMER, RESOLVED, REFERENCES)


def test_properties(customer: ProtobufSchema) -> None:
    assert (customer.schema_type, customer.name, customer.references) == ("PROTOBUF", "shop.Customer", REFERENCES)
    assert customer.formatted("") == customer.formatted("resolved") == customer.canonical
    assert parse("enum E { A = 1; } ").name == "E"
    assert parse('syntax = "proto3";').name is None


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("shop.Customer", (0,)),
        ("shop.Customer.Contact", (0, 0)),
        ("shop.Customer.Contact.Kind", (0, 0, 0)),
        ("shop.Customer.Last", (0, 1)),
        ("shop.Order", (1,)),
    ],
)
def test_message_indexes(customer: ProtobufSchema, name: str, indexes: tuple[int, ...]) -> None:
    assert customer.find_message_indexes(name) == indexes
    assert customer.find_message_name(indexes) == name


def test_invalid_message_indexes(customer: ProtobufSchema) -> None:
    assert customer.find_message_name(()) == "shop.Customer"
    for indexes in ((2,), (0, 2), (-1,), (0, 0, 0, 0)):
        with pytest.raises(KeyError):
            customer.find_message_name(indexes)
    for name in ("shop.Level", "shop.Missing", "Missing", ""):
        with pytest.raises(KeyError):
            customer.find_message_indexes(name)


def test_map_entries_count_in_a_descriptor_only() -> None:
    text = 'syntax = "proto3"; message M { map<string, string> a = 1; message N {} }'
    assert parse(text).find_message_indexes("M.N") == (0, 0)
    assert parse(parse(text).formatted("serialized")).find_message_indexes("M.N") == (0, 1)


def test_messages_are_read_and_written_without_generated_classes(customer: ProtobufSchema) -> None:
    message_class = customer.message_class("shop.Customer")
    content = {
        "id": "7",
        "contacts": [{"email": "a@b.c"}],
        "addresses": {"home": {"country": {"code": "CZ"}}},
        "since": "2026-01-02T03:04:05Z",
    }
    message = json_format.ParseDict(content, message_class())
    again = message_class.FromString(message.SerializeToString())
    assert json_format.MessageToDict(again) == content
    with pytest.raises(KeyError):
        customer.message_class("shop.Missing")


def test_two_versions_of_a_schema_have_separate_pools(customer: ProtobufSchema) -> None:
    other = parse(CUSTOMER.replace("int64 id", "string id"), RESOLVED, REFERENCES)
    assert other.message_class("shop.Customer")(id="x").SerializeToString() == b"\n\x01x"
    assert customer.message_class("shop.Customer")(id=1).SerializeToString() == b"\x08\x01"


def test_serialized(customer: ProtobufSchema) -> None:
    descriptor = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(customer.formatted("serialized")))
    assert (descriptor.name, descriptor.package) == ("default", "shop")
    assert list(descriptor.dependency) == ["google/protobuf/timestamp.proto", "address.proto"]
    again = parse(customer.formatted("serialized"), RESOLVED, REFERENCES)
    assert again.descriptor == descriptor
    assert again.name == "shop.Customer"
    assert again.normalized().canonical == customer.normalized().canonical


def test_imports_may_be_descriptors(customer: ProtobufSchema) -> None:
    resolved = {"country.proto": parse(COUNTRY).formatted("serialized"), "address.proto": ADDRESS}
    assert parse(CUSTOMER, resolved).descriptors == customer.descriptors


def test_the_error_names_an_invalid_import() -> None:
    with pytest.raises(InvalidSchemaError, match=r'^"address.proto": line 1, column 1: expected'):
        parse(CUSTOMER, {"address.proto": "invalid"})


def test_an_import_that_is_missing() -> None:
    with pytest.raises(InvalidSchemaError, match=r'line 9, column 3: "shop.common.Address" is not defined'):
        parse(CUSTOMER)


def test_public_imports_of_an_import_are_visible() -> None:
    resolved = {
        "a.proto": 'syntax = "proto3"; message A {}',
        "b.proto": 'syntax = "proto3"; import public "a.proto";',
        "c.proto": 'syntax = "proto3"; import "a.proto";',
    }
    assert parse('syntax = "proto3"; import "b.proto"; message M { A a = 1; }', resolved).pool is not None
    with pytest.raises(InvalidSchemaError, match='"A" is not defined'):
        parse('syntax = "proto3"; import "c.proto"; message M { A a = 1; }', resolved)


def test_a_file_with_only_a_public_import_represents_the_imported_file() -> None:
    schema = parse('syntax = "proto3"; import public "country.proto";', RESOLVED)
    assert schema.name == "shop.common.Country"
    assert schema.find_message_indexes("shop.common.Country") == (0,)
    assert schema.message_class("shop.common.Country")(code="x").SerializeToString() == b"\n\x01x"


def test_references_of_the_normal_form_are_sorted() -> None:
    references = (Reference("b", "b", 1), Reference("a", "a", 2), Reference("b", "b", 1))
    assert parse("message M {}", {}, references).normalized().references == (references[1], references[0])


def test_neither_text_nor_descriptor() -> None:
    for text in ("invalid", base64.b64encode(b"invalid").decode(), "{}", '{"type": "string"}'):
        with pytest.raises(InvalidSchemaError, match=r"^line 1, column \d+: "):
            parse(text)
