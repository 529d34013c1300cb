import re

import pytest

from rookery.schemas.protobuf import parse

# An insignificant difference, and two texts that differ only in it (proto3 if they have no syntax).
SAME = [
    ("the order of fields", "message M { string a = 1; int32 b = 2; }", "message M { int32 b = 2; string a = 1; }"),
    (
        "the order of a oneof's fields",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        "message M { oneof o { int32 b = 2; int32 a = 1; } }",
    ),
    (
        "the order of oneofs",
        "message M { oneof o { int32 a = 1; } oneof p { int32 b = 2; } }",
        "message M { oneof p { int32 b = 2; } oneof o { int32 a = 1; } }",
    ),
    (
        "the order of an enum's values",
        "enum E { Z = 0; A = 1; B = 2; C = -1; }",
        "enum E { Z = 0; C = -1; B = 2; A = 1; }",
    ),
    (
        "the order of imports",
        'import "google/protobuf/any.proto"; import "google/protobuf/api.proto"; message M {}',
        'import "google/protobuf/api.proto"; import "google/protobuf/any.proto"; message M {}',
    ),
    (
        "an import given twice",
        'import "google/protobuf/any.proto"; import "google/protobuf/any.proto"; message M {}',
        'import "google/protobuf/any.proto"; message M {}',
    ),
    (
        "the order of options",
        'option java_package = "a"; option go_package = "b"; message M {}',
        'option go_package = "b"; option java_package = "a"; message M {}',
    ),
    (
        "the order of a field's options",
        "message M { repeated int32 a = 1 [packed = true, deprecated = true]; }",
        "message M { repeated int32 a = 1 [deprecated = true, packed = true]; }",
    ),
    (
        "the position of the JSON name",
        'message M { int32 a = 1 [json_name = "b", deprecated = true]; }',
        'message M { int32 a = 1 [deprecated = true, json_name = "b"]; }',
    ),
    (
        "how types are written",
        "package p; message M { M m = 1; p.M n = 2; }",
        "package p; message M { .p.M m = 1; M n = 2; }",
    ),
    (
        "how reserved tags are grouped",
        "message M { reserved 1, 5 to 7, 3; }",
        "message M { reserved 5 to 7; reserved 3 to 3, 1; }",
    ),
    ("how reserved names are grouped", 'message M { reserved "b", "a"; }', 'message M { reserved "a"; reserved "b"; }'),
    (
        "how extension ranges are grouped",
        'syntax = "proto2"; message M { extensions 100, 110 to 120; }',
        'syntax = "proto2"; message M { extensions 110 to 120; extensions 100; }',
    ),
    (
        "how extensions are grouped",
        'syntax = "proto2"; message M { extensions 1 to 9; } extend M { optional int32 a = 1; optional int32 b = 2; }',
        'syntax = "proto2"; message M { extensions 1 to 9; } extend M { optional int32 b = 2; } extend'
        " .M { optional int32 a = 1; }",
    ),
    (
        "an implied proto2",
        'syntax = "proto2"; message M { optional int32 a = 1; }',
        "syntax_none message M { optional int32 a = 1; }",
    ),
    (
        "how numbers are written",
        'syntax = "proto2"; message M { optional int32 a = 1 [default = 0x10]; optional double b = 2'
        " [default = 1.50]; }",
        'syntax = "proto2"; message M { optional int32 a = 1 [default = 16]; optional double b = 2'
        " [default = 15e-1]; }",
    ),
    (
        "how strings are written",
        'option java_package = "a" "b"; message M {}',
        "option java_package = '\\x61\\142'; message M {}",
    ),
    (
        "how a map is written",
        "message M { map<string, M> a = 1; }",
        "message M { repeated AEntry a = 1; message AEntry { option map_entry = true; string key = 1; M value = 2; } }",
    ),
    (
        "how an option is put together",
        'import "confluent/meta.proto"; message M { string a = 1 [(confluent.field_meta) = { doc: "d",'
        ' tags: ["t"] }]; }',
        'import "confluent/meta.proto"; message M { string a = 1 [(confluent.field_meta).tags = "t",'
        ' (.confluent.field_meta).doc = "d"]; }',
    ),
    (
        "how features are put together",
        'edition = "2023"; message M { string a = 1 [features.field_presence = EXPLICIT,'
        " features.utf8_validation = NONE]; }",
        'edition = "2023"; message M { string a = 1 [features = { utf8_validation: NONE,'
        " field_presence: EXPLICIT }]; }",
    ),
]

DIFFERENT = [
    ("the order of messages", "message A {} message B {}", "message B {} message A {}"),
    ("names", "message M { string a = 1; }", "message M { string b = 1; }"),
    ("tags", "message M { string a = 1; }", "message M { string a = 2; }"),
    ("types", "message M { string a = 1; }", "message M { bytes a = 1; }"),
    ("labels", "message M { int32 a = 1; }", "message M { optional int32 a = 1; }"),
    ("options", "message M { int32 a = 1; }", "message M { int32 a = 1 [deprecated = true]; }"),
    ("the syntax", "message M { repeated M a = 1; }", 'syntax = "proto2"; message M { repeated M a = 1; }'),
    ("the package", "message M {}", "package p; message M {}"),
]


def _normal(text: str) -> str:
    if text.startswith("syntax_none"):
        return parse(text.removeprefix("syntax_none")).normalized().canonical
    return (
        parse(text if text.startswith(("syntax", "edition")) else f'syntax = "proto3"; {text}').normalized().canonical
    )


@pytest.mark.parametrize(("one", "other"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_makes_no_difference(one: str, other: str) -> None:
    assert _normal(one) == _normal(other)


@pytest.mark.parametrize(("one", "other"), [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT])
def test_makes_a_difference(one: str, other: str) -> None:
    assert _normal(one) != _normal(other)


@pytest.mark.parametrize("type_name", ["float", "double"])
@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("1.50", "1.5"),
        ("15e-1f", "1.5"),
        ("1e20", "1" + "0" * 20),
        ("1e-7", "0.0000001"),
        ("010", "8"),
        ("0x10", "16"),
        ("1e400", "inf"),
        ("9" * 400, "inf"),
        ("9" * 5_000, "inf"),
        ("-1e99999999999", "-inf"),
        ("infinity", "inf"),
        ("-infinity", "-inf"),
        ("nan", "nan"),
        ("-nan", "nan"),
        ("0.0", "0"),
        ("-0", "-0"),
        ("-0.0", "-0"),
    ],
)
def test_default_values_of_floating_point(type_name: str, text: str, normal: str) -> None:
    schema = parse(f"message M {{ optional {type_name} a = 1 [default = {text}]; }}")
    normalized = schema.normalized().canonical
    assert f"[default = {normal}]" in normalized
    assert parse(normalized).normalized().canonical == normalized
    assert parse(schema.formatted("serialized")).normalized().canonical == normalized
    assert parse(normalized).descriptor == schema.descriptor


@pytest.mark.parametrize("text", ["-0", "-0x0", "00"])
def test_default_values_of_integers(text: str) -> None:
    schema = parse(f"message M {{ optional int32 a = 1 [default = {text}]; }}")
    assert "[default = 0]" in schema.normalized().canonical
    assert parse(schema.formatted("serialized")).normalized().canonical == schema.normalized().canonical


def test_numbers_of_options_that_are_too_long_stay() -> None:
    number = "0x" + "f" * 5_000
    assert number in _normal(f"option (a) = {number};")


def test_many_values_of_an_option() -> None:
    """A loop over all earlier values for each value would take quadratic time."""
    tags = [f'"t{each}"' for each in range(10_000)]
    option = "option (confluent.file_meta).tags"
    text = f'import "confluent/meta.proto"; {option} = [{",".join(tags)}]; {option} = [{",".join(reversed(tags))}];'
    assert re.findall(r'"t\d+"', _normal(text)) == tags
