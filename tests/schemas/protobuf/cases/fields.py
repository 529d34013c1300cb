"""Fields: tags, names and labels."""

from tests.schemas.protobuf.cases.case import Case

CASES = [
    Case(
        "a field may be added",
        "message M { string a = 1; }",
        "message M { string a = 1; string b = 2; }",
        ("FIELD_ADDED #/M/2",),
    ),
    Case(
        "a field may be removed",
        "message M { string a = 1; string b = 2; }",
        "message M { string a = 1; }",
        ("FIELD_REMOVED #/M/2",),
    ),
    Case(
        "a field may be renamed",
        "message M { string a = 1; }",
        "message M { string b = 1; }",
        ("FIELD_NAME_CHANGED #/M/1",),
    ),
    Case(
        "a field with another tag is another field",
        "message M { string a = 1; }",
        "message M { string a = 2; }",
        (
            "FIELD_REMOVED #/M/1",
            "FIELD_ADDED #/M/2",
        ),
    ),
    Case(
        "fields may change their order in the text",
        "message M { string a = 1; int32 b = 2; }",
        "message M { int32 b = 2; string a = 1; }",
    ),
    Case(
        "fields that exchange their tags exchange their types",
        "message M { string a = 1; int32 b = 2; }",
        "message M { string a = 2; int32 b = 1; }",
        (
            "FIELD_NAME_CHANGED #/M/1",
            "FIELD_SCALAR_KIND_CHANGED #/M/1",
            "FIELD_NAME_CHANGED #/M/2",
            "FIELD_SCALAR_KIND_CHANGED #/M/2",
        ),
    ),
    Case(
        "a required field must not be added",
        'syntax = "proto2"; message M { optional string a = 1; }',
        'syntax = "proto2"; message M { optional string a = 1; required string b = 2; }',
        ("REQUIRED_FIELD_ADDED #/M/2",),
    ),
    Case(
        "a required field must not be removed",
        'syntax = "proto2"; message M { optional string a = 1; required string b = 2; }',
        'syntax = "proto2"; message M { optional string a = 1; }',
        ("REQUIRED_FIELD_REMOVED #/M/2",),
    ),
    Case(
        "a required message must not be added",
        'syntax = "proto2"; message M {  }',
        'syntax = "proto2"; message M { required M b = 2; }',
        ("REQUIRED_FIELD_ADDED #/M/2",),
    ),
    Case(
        "a required field may be renamed",
        'syntax = "proto2"; message M { required string a = 1; }',
        'syntax = "proto2"; message M { required string b = 1; }',
        ("FIELD_NAME_CHANGED #/M/1",),
    ),
    Case(
        "a required string may become optional",
        'syntax = "proto2"; message M { required string a = 1; }',
        'syntax = "proto2"; message M { optional string a = 1; }',
        ("FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "an optional string may become required",
        'syntax = "proto2"; message M { optional string a = 1; }',
        'syntax = "proto2"; message M { required string a = 1; }',
        ("FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "an optional string may become repeated",
        'syntax = "proto2"; message M { optional string a = 1; }',
        'syntax = "proto2"; message M { repeated string a = 1; }',
        ("FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "repeated bytes may become optional",
        'syntax = "proto2"; message M { repeated bytes a = 1; }',
        'syntax = "proto2"; message M { optional bytes a = 1; }',
        ("FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a required number must not become optional",
        'syntax = "proto2"; message M { required int32 a = 1; }',
        'syntax = "proto2"; message M { optional int32 a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "an optional number must not become required",
        'syntax = "proto2"; message M { optional int32 a = 1; }',
        'syntax = "proto2"; message M { required int32 a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "an optional number must not become repeated",
        'syntax = "proto2"; message M { optional int32 a = 1; }',
        'syntax = "proto2"; message M { repeated int32 a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated signed number must not become optional",
        'syntax = "proto2"; message M { repeated sint64 a = 1; }',
        'syntax = "proto2"; message M { optional sint64 a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated float must not become optional",
        'syntax = "proto2"; message M { repeated float a = 1; }',
        'syntax = "proto2"; message M { optional float a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated double must not become optional",
        'syntax = "proto2"; message M { repeated double a = 1; }',
        'syntax = "proto2"; message M { optional double a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated fixed32 must not become optional",
        'syntax = "proto2"; message M { repeated fixed32 a = 1; }',
        'syntax = "proto2"; message M { optional fixed32 a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated fixed64 must not become optional",
        'syntax = "proto2"; message M { repeated sfixed64 a = 1; }',
        'syntax = "proto2"; message M { optional fixed64 a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated enum must not become optional",
        'syntax = "proto2"; message M { repeated E a = 1; enum E { Z = 0; } }',
        'syntax = "proto2"; message M { optional E a = 1; enum E { Z = 0; } }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated bool must not become optional",
        'syntax = "proto2"; message M { repeated bool a = 1; }',
        'syntax = "proto2"; message M { optional bool a = 1; }',
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a repeated message may become optional",
        'syntax = "proto2"; message M { repeated M a = 1; }',
        'syntax = "proto2"; message M { optional M a = 1; }',
    ),
    Case(
        "the implied label of proto3 is not compared",
        "message M { int32 a = 1; }",
        "message M { repeated int32 a = 1; }",
    ),
    Case(
        "a repeated number of proto3 may lose its label",
        "message M { repeated int32 a = 1; }",
        "message M { int32 a = 1; }",
    ),
    Case("a field of proto3 may become optional", "message M { int32 a = 1; }", "message M { optional int32 a = 1; }"),
    Case(
        "an optional field of proto3 may become implied",
        "message M { optional int32 a = 1; }",
        "message M { int32 a = 1; }",
    ),
    Case(
        "an optional number of proto3 must not become repeated",
        "message M { optional int32 a = 1; }",
        "message M { repeated int32 a = 1; }",
        ("FIELD_NUMERIC_LABEL_CHANGED #/M/1",),
    ),
    Case(
        "a label and a kind that change together count as the kind",
        'syntax = "proto2"; message M { optional int32 a = 1; }',
        'syntax = "proto2"; message M { repeated string a = 1; }',
        ("FIELD_SCALAR_KIND_CHANGED #/M/1",),
    ),
    Case(
        "options of a field do not count",
        "message M { string a = 1; }",
        "message M { string a = 1 [deprecated = true]; }",
    ),
    Case(
        "the JSON name does not count", "message M { string a = 1; }", 'message M { string a = 1 [json_name = "b"]; }'
    ),
    Case(
        "packing does not count",
        "message M { repeated int32 a = 1; }",
        "message M { repeated int32 a = 1 [packed = false]; }",
    ),
    Case(
        "default values do not count",
        'syntax = "proto2"; message M { optional int32 a = 1 [default = 1]; }',
        'syntax = "proto2"; message M { optional int32 a = 1 [default = 2]; }',
    ),
    Case(
        "a field in a nested message has the path of both",
        "message M { message N { string a = 7; } }",
        "message M { message N { int32 a = 7; } }",
        ("FIELD_SCALAR_KIND_CHANGED #/M/N/7",),
    ),
    Case(
        "several differences are all found",
        "message M { string a = 1; int32 b = 2; string c = 3; }",
        "message M { int32 a = 1; string b = 2; string d = 3; }",
        (
            "FIELD_SCALAR_KIND_CHANGED #/M/1",
            "FIELD_SCALAR_KIND_CHANGED #/M/2",
            "FIELD_NAME_CHANGED #/M/3",
        ),
    ),
    Case(
        "large tags",
        "message M { string a = 536870911; }",
        "message M { int32 a = 536870911; }",
        ("FIELD_SCALAR_KIND_CHANGED #/M/536870911",),
    ),
]
