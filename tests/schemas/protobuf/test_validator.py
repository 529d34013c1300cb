import base64
import re

import pytest

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf import check, parse, parse_registered

# The problem, a text that has it (proto3 if it has no syntax), and a part of the message.
INVALID = [
    ("an undefined type", "message M { Other o = 1; }", 'line 1, column 32: "Other" is not defined in "M"'),
    (
        "a well-known type that is not imported",
        "message M { google.protobuf.Timestamp t = 1; }",
        '"google.protobuf.Timestamp" is not defined in "M"; import "google/protobuf/timestamp.proto"',
    ),
    ("a map of an undefined type", "message M { map<string, Other> o = 1; }", '"Other" is not defined'),
    ("an rpc of an undefined type", "service S { rpc R (A) returns (A); }", '"A" is not defined in "S"'),
    ("an rpc of an enum", "enum A { Z = 0; } service S { rpc R (A) returns (A); }", '"A" is not a message'),
    ("an extension of nothing", 'syntax = "proto2"; extend A { optional int32 a = 1; }', '"A" is not defined'),
    ("a tag twice", "message M { string a = 1; string b = 1; }", 'column 46: "M.b": tag 1 belongs to "a" already'),
    ("a tag twice, in a oneof", "message M { string a = 1; oneof o { string b = 1; } }", "tag 1 belongs"),
    (
        "a tag twice, in a group",
        'syntax = "proto2"; message M { optional int32 a = 1; optional group G = 1 {} }',
        "tag 1",
    ),
    ("a name twice", "message M { string a = 1; string a = 2; }", '"M.a" is defined already'),
    ("a name twice, in a oneof", "message M { string a = 1; oneof o { string a = 2; } }", '"M.a" is defined already'),
    ("a oneof named like a field", "message M { string a = 1; oneof a { string b = 2; } }", '"M.a" is defined'),
    ("a message named like a field", "message M { string a = 1; message a {} }", '"M.a" is defined'),
    ("a map's message", "message M { map<string, M> a_b = 1; message ABEntry {} }", '"M.ABEntry" is defined already'),
    ("a message twice", "package p; message M {} message M {}", '"p.M" is defined already'),
    ("an enum named like a message", "message M {} enum M { Z = 0; }", '"M" is defined already'),
    ("a service named like a message", "message M {} service M {}", '"M" is defined already'),
    ("an rpc twice", "message M {} service S { rpc R (M) returns (M); rpc R (M) returns (M); }", '"S.R" is'),
    ("an enum's value twice", "enum E { Z = 0; A = 1; A = 2; }", '"A" is defined already'),
    ("an enum's value in two enums", "enum E { Z = 0; } enum F { Z = 0; }", '"Z" is defined already'),
    ("an enum's number twice", "enum E { Z = 0; A = 1; B = 1; }", '"E.B": 1 is used already; set allow_alias'),
    ("an enum without values", "enum E {}", 'the enum "E" has no values'),
    ("an enum of proto3 that does not start with 0", "enum E { A = 1; }", "the first value has to be 0"),
    ("an enum's number that is too large", "enum E { Z = 0; A = 2147483648; }", "does not fit into 32 bits"),
    ("an enum's reserved number", "enum E { Z = 0; A = 5; reserved 4 to 6; }", '"E.A": the name or the number is'),
    ("an enum's reserved name", 'enum E { Z = 0; A = 5; reserved "A"; }', '"E.A": the name or the number is reserved'),
    ("an enum's ranges that overlap", "enum E { Z = 0; reserved 4 to 6, 6; }", "6 to 6 overlaps with another range"),
    ("an enum's reversed range", "enum E { Z = 0; reserved 6 to 4; }", "6 to 4 is not a range"),
    ("a oneof without fields", "message M { oneof o {} }", 'the oneof "M.o" has no fields'),
    ("a map in a oneof", "message M { oneof o { map<string, string> a = 1; } }", '"M.a": a map cannot be in a oneof'),
    ("a label in a oneof", "message M { oneof o { repeated string a = 1; } }", '"repeated" is not allowed in a oneof'),
    ("a tag of 0", "message M { string a = 0; }", "tag 0 is not between 1 and 536870911"),
    ("a tag that is too large", "message M { string a = 536870912; }", "tag 536870912 is not between 1"),
    ("a tag that is protobuf's own", "message M { string a = 19500; }", "tags 19000 to 19999 belong to protobuf"),
    ("a reserved tag", "message M { reserved 2 to 4; string a = 3; }", '"M.a": tag 3 is reserved'),
    ("a reserved name", 'message M { reserved "a"; string a = 3; }', '"M.a": the name is reserved'),
    ("ranges that overlap", "message M { reserved 2 to 4, 4 to 6; }", "4 to 6 overlaps with another range"),
    ("a reversed range", "message M { reserved 4 to 2; }", "4 to 2 is not a range of tags"),
    (
        "a tag for extensions",
        'syntax = "proto2"; message M { extensions 5 to 9; optional int32 a = 7; }',
        "tag 7 is for extensions",
    ),
    (
        "an extension outside of the ranges",
        'syntax = "proto2"; message M { extensions 5 to 9; } extend M { optional int32 a = 10; }',
        '"a": M has no extension range with tag 10',
    ),
    ("extension ranges in proto3", "message M { extensions 5 to 9; }", "proto3 has no extension ranges"),
    ("extensions in proto3", "message M {} extend M { int32 a = 10; }", "proto3 can extend options only"),
    ("required in proto3", "message M { required string a = 1; }", '"M.a": "required" is not allowed in proto3'),
    ("a group in proto3", "message M { optional group G = 1 {} }", "groups are allowed in proto2 only"),
    ("a default value in proto3", "message M { int32 a = 1 [default = 2]; }", "a default value is not allowed here"),
    (
        "a default value of a message",
        'syntax = "proto2"; message M { optional M a = 1 [default = 2]; }',
        "a default value is not allowed here",
    ),
    (
        "a default value that repeats",
        'syntax = "proto2"; message M { repeated int32 a = 1 [default = 2]; }',
        "not allowed",
    ),
    (
        "a default value that is not a number",
        'syntax = "proto2"; message M { optional int32 a = 1 [default = "x"]; }',
        "type",
    ),
    (
        "a default value with a point",
        'syntax = "proto2"; message M { optional int32 a = 1 [default = 1.5]; }',
        "1.5 is no",
    ),
    (
        "a default value that is too large",
        'syntax = "proto2"; message M { optional int32 a = 1 [default = 2147483648]; }',
        "does not fit into 32 bits",
    ),
    (
        "a default value below 0",
        'syntax = "proto2"; message M { optional uint64 a = 1 [default = -1]; }',
        "does not fit into 64 bits",
    ),
    (
        "a default value that is not a bool",
        'syntax = "proto2"; message M { optional bool a = 1 [default = 1]; }',
        "type bool",
    ),
    (
        "a default value that is not in the enum",
        'syntax = "proto2"; message M { optional E a = 1 [default = B]; enum E { A = 1; } }',
        "not of the type E",
    ),
    ("a map with keys of double", "message M { map<double, string> a = 1; }", "integers, bool or string as keys"),
    ("a map with keys of a message", "message M { map<M, string> a = 1; }", "integers, bool or string as keys"),
    (
        "a map's entry with other fields",
        "message M { repeated E a = 1; message E { option map_entry = true; string key = 1; string other = 2; } }",
        '"M.E": the entry of a map has the fields "key" and "value" with the tags 1 and 2',
    ),
    (
        "a map's entry that does not repeat",
        "message M { E a = 1; message E { option map_entry = true; string key = 1; string value = 2; } }",
        '"M.a": the entry of a map can only be repeated',
    ),
    ("an option with an invalid value", "message M { string a = 1 [deprecated = 5]; }", "deprecated"),
    (
        "a default value that is not UTF-8",
        'syntax = "proto2"; message M { optional string a = 1 [default = "\\377"]; }',
        "the default value is not UTF-8",
    ),
    ("syntax and edition", 'syntax = "proto3"; edition = "2023"; message M {}', "expected"),
    ("optional in an edition", 'edition = "2023"; message M { optional string a = 1; }', "not allowed in 2023"),
    ("an unknown edition", 'edition = "1999"; message M {}', 'unknown edition "1999"'),
    (
        "a type of an import of an import",
        'import "google/protobuf/api.proto"; message M { google.protobuf.Option o = 1; }',
        "not",
    ),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
def test_invalid(text: str, message: str) -> None:
    full = text if text.startswith(("syntax", "edition")) else f'syntax = "proto3"; {text}'
    with pytest.raises(InvalidSchemaError, match=re.escape(message)):
        parse(full)


@pytest.mark.parametrize(
    "text",
    [
        "message M { string a = 1; }",
        'syntax = "proto3"; import "unknown.proto"; message M { string a = 1; }',
        'syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/any.proto"; message M {}',
        'syntax = "proto3"; message M { string a = 1 [(unknown.option).it = { any: "thing" }]; }',
        'syntax = "proto3"; option not_known_yet = 5; message M {}',
        'syntax = "proto3"; enum E { option allow_alias = true; Z = 0; A = 0; }',
        'syntax = "proto3"; message M { reserved 1 to 5, 7 to max; string a = 6; }',
        'syntax = "proto3";',
        "",
    ],
)
def test_valid(text: str) -> None:
    """protoc rejects some of these; Confluent's registry accepts them."""
    schema = parse(text)
    assert parse(schema.canonical).canonical == schema.canonical
    assert schema.pool is not None


# Schemas that protobuf's own library rejects.
UNUSABLE = [
    ("JSON names that clash", 'syntax = "proto3"; message M { int32 foo_bar = 1; int32 fooBar = 2; }', "fooBar"),
    (
        "a JSON name given twice",
        'syntax = "proto3"; message M { int32 a = 1 [json_name = "b"]; int32 b = 2; }',
        r"\(b\)",
    ),
    (
        "an extension's tag twice",
        "message M { extensions 5 to 9; } extend M { optional int32 a = 5; optional int32 b = 5; }",
        "extension",
    ),
    (
        "too many fields",
        'syntax = "proto3"; message M {' + "".join(f"int64 f{tag} = {tag};" for tag in range(1, 8_500)) + "}",
        "exceeded maximum size",
    ),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in UNUSABLE], ids=[row[0] for row in UNUSABLE])
def test_an_unusable_schema_is_rejected_unless_it_is_registered_already(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        parse(text)
    registered = parse_registered(text)
    assert check(registered, registered) == []
    assert registered.normalized().name == "M"


def test_many_ranges_and_fields() -> None:
    """A loop over all ranges for each field and range would take a minute."""
    count = 7_500
    ranges = ", ".join(str(2 * each + 1) for each in reversed(range(count)))
    fields = " ".join(f"int32 f{each} = {2 * each + 2};" for each in range(count))
    values = " ".join(f"V{each} = {2 * each};" for each in range(count))
    schema = parse(
        f'syntax = "proto3"; message M {{ reserved {ranges}; {fields} }} enum E {{ reserved {ranges}; {values} }}'
    )
    assert len(schema.raw.messages[0].fields) == count


def test_many_extensions_of_many_ranges() -> None:
    count = 3_000
    ranges = ", ".join(str(2 * each + 1) for each in range(count))
    fields = " ".join(f"optional int32 f{each} = {2 * each + 1};" for each in range(count))
    schema = parse(f"message M {{ extensions {ranges}; }} extend M {{ {fields} }}")
    assert len(schema.descriptor.extension) == count


def test_many_default_values_of_an_enum() -> None:
    """A search through all values of the enum for each field would take a minute."""
    count = 5_000
    values = " ".join(f"V{each} = {each};" for each in range(count))
    fields = " ".join(f"optional E f{each} = {each + 1} [default = V{each}];" for each in range(count))
    assert len(parse(f"enum E {{ {values} }} message M {{ {fields} }}").raw.messages[0].fields) == count


def test_the_error_names_the_later_of_overlapping_ranges() -> None:
    text = 'syntax = "proto3"; message M { reserved 20 to 30; reserved 1, 5 to 25; }'
    with pytest.raises(InvalidSchemaError, match=r'column 60: "M": 5 to 25 overlaps'):
        parse(text)


def test_descriptors_are_checked_too() -> None:
    good = parse('syntax = "proto3"; message M { string a = 1; string b = 2; }')
    good.descriptor.message_type[0].field[1].number = 1
    with pytest.raises(InvalidSchemaError, match="tag 1 belongs"):
        parse(good.formatted("serialized"))
    good.descriptor.message_type[0].field[1].number = 2
    good.descriptor.message_type[0].field[1].name = "no name; at all"
    with pytest.raises(InvalidSchemaError, match="the descriptor cannot be written as text"):
        parse(good.formatted("serialized"))


def test_an_invalid_default_value_of_a_descriptor() -> None:
    good = parse('message M { optional bytes a = 1 [default = "x"]; }')
    good.descriptor.message_type[0].field[0].default_value = "\\q"
    with pytest.raises(InvalidSchemaError, match=r'"a": .*\\q is not a valid escape sequence'):
        parse(good.formatted("serialized"))


def test_a_descriptor_with_a_map_among_the_options() -> None:
    good = parse(
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; option (a) = { b: { key: "k" value: "v" } };'
        " message A { map<string, string> b = 1; } extend google.protobuf.FileOptions { A a = 50000; }"
    )
    good.descriptor.message_type[0].nested_type[0].field[1].name = "other"
    with pytest.raises(InvalidSchemaError, match="the entry of a map"):
        parse(good.formatted("serialized"))


def test_a_descriptors_options_that_do_not_match_their_definitions() -> None:
    good = parse(
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; option (a) = { b: "x" };'
        " message A { string b = 1; } extend google.protobuf.FileOptions { A a = 50000; }"
    )
    data = good.descriptor.SerializeToString().replace(b"\n\x01x", b"\n\x01\xff")
    with pytest.raises(InvalidSchemaError, match="the descriptor's options cannot be read"):
        parse(base64.b64encode(data).decode())
