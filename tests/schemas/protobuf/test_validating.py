import re

import pytest

from rookery.schemas.interface import InvalidSchemaError
from rookery.schemas.protobuf import parse

# What is wrong, a text in which it is wrong (proto3 if it does not say), and what the message says about it.
INVALID = [
    ("a type that is not there", "message M { Other o = 1; }", 'line 1, column 32: "Other" is not defined in "M"'),
    (
        "a well-known type that is not imported",
        "message M { google.protobuf.Timestamp t = 1; }",
        '"google.protobuf.Timestamp" is not defined in "M"; import "google/protobuf/timestamp.proto"',
    ),
    ("a map of a type that is not there", "message M { map<string, Other> o = 1; }", '"Other" is not defined'),
    ("an rpc of a type that is not there", "service S { rpc R (A) returns (A); }", '"A" is not defined in "S"'),
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
    ("an enum's number twice", "enum E { Z = 0; A = 1; B = 1; }", '"E.B": 1 is there already; allow_alias'),
    ("an enum without values", "enum E {}", 'the enum "E" has no values'),
    ("an enum of proto3 that does not start with 0", "enum E { A = 1; }", "the first value has to be 0"),
    ("an enum's number that is too large", "enum E { Z = 0; A = 2147483648; }", "does not fit into 32 bits"),
    ("an enum's reserved number", "enum E { Z = 0; A = 5; reserved 4 to 6; }", '"E.A": the name or the number is'),
    ("an enum's reserved name", 'enum E { Z = 0; A = 5; reserved "A"; }', '"E.A": the name or the number is reserved'),
    ("an enum's ranges that overlap", "enum E { Z = 0; reserved 4 to 6, 6; }", "6 to 6 overlaps with another range"),
    ("an enum's range backwards", "enum E { Z = 0; reserved 6 to 4; }", "6 to 4 is not a range"),
    ("a oneof without fields", "message M { oneof o {} }", 'the oneof "M.o" has no fields'),
    ("a map in a oneof", "message M { oneof o { map<string, string> a = 1; } }", '"M.a": a map cannot be in a oneof'),
    ("a label in a oneof", "message M { oneof o { repeated string a = 1; } }", '"repeated" is not allowed in a oneof'),
    ("a tag of 0", "message M { string a = 0; }", "tag 0 is not between 1 and 536870911"),
    ("a tag that is too large", "message M { string a = 536870912; }", "tag 536870912 is not between 1"),
    ("a tag that is protobuf's own", "message M { string a = 19500; }", "tags 19000 to 19999 belong to protobuf"),
    ("a reserved tag", "message M { reserved 2 to 4; string a = 3; }", '"M.a": tag 3 is reserved'),
    ("a reserved name", 'message M { reserved "a"; string a = 3; }', '"M.a": the name is reserved'),
    ("ranges that overlap", "message M { reserved 2 to 4, 4 to 6; }", "4 to 6 overlaps with another range"),
    ("a range backwards", "message M { reserved 4 to 2; }", "4 to 2 is not a range of tags"),
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
        "a default value that is no number",
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
        "a default value that is no bool",
        'syntax = "proto2"; message M { optional bool a = 1 [default = 1]; }',
        "type bool",
    ),
    (
        "a default value that is not in the enum",
        'syntax = "proto2"; message M { optional E a = 1 [default = B]; enum E { A = 1; } }',
        "not of the type E",
    ),
    ("a map with keys of double", "message M { map<double, string> a = 1; }", "whole numbers, bool or string as keys"),
    ("a map with keys of a message", "message M { map<M, string> a = 1; }", "whole numbers, bool or string as keys"),
    ("an option with a value that does not fit", "message M { string a = 1 [deprecated = 5]; }", "deprecated"),
    ("an edition that is not there", 'syntax = "proto3"; edition = "2023"; message M {}', "expected"),
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
    """Some of these, protoc refuses; Confluent's registry does not."""
    schema = parse(text)
    assert parse(schema.canonical).canonical == schema.canonical
    assert schema.pool is not None


def test_descriptors_are_checked_too() -> None:
    good = parse('syntax = "proto3"; message M { string a = 1; string b = 2; }')
    good.descriptor.message_type[0].field[1].number = 1
    with pytest.raises(InvalidSchemaError, match="tag 1 belongs"):
        parse(good.formatted("serialized"))
    good.descriptor.message_type[0].field[1].number = 2
    good.descriptor.message_type[0].field[1].name = "no name; at all"
    with pytest.raises(InvalidSchemaError, match="the descriptor cannot be written as text"):
        parse(good.formatted("serialized"))
