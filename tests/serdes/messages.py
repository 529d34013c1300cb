"""Classes as protoc would generate them from these two files.

// shop/address.proto                     // shop/customer.proto
message Address {                         import "google/protobuf/timestamp.proto";
  string street = 1;                      import "shop/address.proto";
}                                         message First { }
                                          message Customer {
                                            message Note { string text = 1; }
                                            int32 id = 1;
                                            string name = 2;
                                            map<string, string> labels = 3;
                                            message Last { string text = 1; }
                                            Address home = 4;
                                            google.protobuf.Timestamp since = 5;
                                            Note note = 6;
                                          }
"""

from typing import Any

from google.protobuf import descriptor_pool, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "shop.messages"
STRING = FieldDescriptorProto.TYPE_STRING
INT32 = FieldDescriptorProto.TYPE_INT32
MESSAGE = FieldDescriptorProto.TYPE_MESSAGE
OPTIONAL = FieldDescriptorProto.LABEL_OPTIONAL
REPEATED = FieldDescriptorProto.LABEL_REPEATED
REQUIRED = FieldDescriptorProto.LABEL_REQUIRED


def field(
    name: str,
    number: int,
    kind: "FieldDescriptorProto.Type.ValueType" = STRING,
    *,
    of: str = "",
    label: "FieldDescriptorProto.Label.ValueType" = OPTIONAL,
) -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, type=kind, type_name=of or None, label=label)


def text_message(name: str) -> DescriptorProto:
    return DescriptorProto(name=name, field=[field("text", 1)])


def map_entry(name: str) -> DescriptorProto:
    entry = DescriptorProto(name=name, field=[field("key", 1), field("value", 2)])
    entry.options.map_entry = True
    return entry


ADDRESS_FILE = FileDescriptorProto(
    name="shop/address.proto",
    package=PACKAGE,
    syntax="proto3",
    message_type=[DescriptorProto(name="Address", field=[field("street", 1)])],
)
CUSTOMER_FILE = FileDescriptorProto(
    name="shop/customer.proto",
    package=PACKAGE,
    syntax="proto3",
    dependency=["google/protobuf/timestamp.proto", "shop/address.proto"],
    message_type=[
        DescriptorProto(name="First"),
        DescriptorProto(
            name="Customer",
            field=[
                field("id", 1, INT32),
                field("name", 2),
                field("labels", 3, MESSAGE, of=f".{PACKAGE}.Customer.LabelsEntry", label=REPEATED),
                field("home", 4, MESSAGE, of=f".{PACKAGE}.Address"),
                field("since", 5, MESSAGE, of=".google.protobuf.Timestamp"),
                field("note", 6, MESSAGE, of=f".{PACKAGE}.Customer.Note"),
            ],
            nested_type=[text_message("Note"), map_entry("LabelsEntry"), text_message("Last")],
        ),
    ],
)
STRICT_FILE = FileDescriptorProto(
    name="shop/strict.proto",
    package=PACKAGE,
    syntax="proto2",
    message_type=[DescriptorProto(name="Strict", field=[field("name", 1, label=REQUIRED)])],
)

for file in (ADDRESS_FILE, CUSTOMER_FILE, STRICT_FILE):
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())


def message_class(name: str) -> Any:
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.{name}"))


First = message_class("First")
Customer = message_class("Customer")
Note = message_class("Customer.Note")
Last = message_class("Customer.Last")
Address = message_class("Address")
Strict = message_class("Strict")


def make_customer() -> Any:
    return Customer(
        id=7,
        name="Ada",
        labels={"tier": "gold"},
        home=Address(street="Storgata"),
        since=timestamp_pb2.Timestamp(seconds=5),
        note=Note(text="pays in cash"),
    )
