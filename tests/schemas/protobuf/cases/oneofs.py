"""Oneofs: fields that are added, removed and moved."""

from tests.schemas.protobuf.cases.case import Case

CASES = [
    Case(
        "a oneof may be added with new fields",
        "message M { string a = 1; }",
        "message M { string a = 1; oneof o { string b = 2; string c = 3; } }",
        (
            "ONEOF_ADDED #/M/o",
            "ONEOF_FIELD_ADDED #/M/o/2",
            "ONEOF_FIELD_ADDED #/M/o/3",
        ),
    ),
    Case(
        "a oneof may be removed with all its fields",
        "message M { string a = 1; oneof o { string b = 2; string c = 3; } }",
        "message M { string a = 1; }",
        ("ONEOF_REMOVED #/M/o",),
    ),
    Case(
        "a oneof may be renamed",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof p { string a = 1; string b = 2; } }",
        (
            "ONEOF_REMOVED #/M/o",
            "ONEOF_ADDED #/M/p",
        ),
    ),
    Case(
        "a field may be added to a oneof",
        "message M { oneof o { string a = 1; } }",
        "message M { oneof o { string a = 1; string b = 2; } }",
        ("ONEOF_FIELD_ADDED #/M/o/2",),
    ),
    Case(
        "a field must not be removed from a oneof",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof o { string a = 1; } }",
        ("ONEOF_FIELD_REMOVED #/M/o/2",),
    ),
    Case(
        "a field may be renamed in a oneof",
        "message M { oneof o { string a = 1; } }",
        "message M { oneof o { string b = 1; } }",
        ("FIELD_NAME_CHANGED #/M/o/1",),
    ),
    Case(
        "a field's kind must not change in a oneof",
        "message M { oneof o { string a = 1; int32 b = 2; } }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        ("FIELD_SCALAR_KIND_CHANGED #/M/o/1",),
    ),
    Case(
        "a field's type may change within its kind in a oneof",
        "message M { oneof o { int32 a = 1; } }",
        "message M { oneof o { int64 a = 1; } }",
    ),
    Case(
        "one field may move into a new oneof",
        "message M { string a = 1; string b = 2; }",
        "message M { oneof o { string a = 1; } string b = 2; }",
        ("ONEOF_ADDED #/M/o",),
    ),
    Case(
        "one field may move into a new oneof with a new one",
        "message M { string a = 1; }",
        "message M { oneof o { string a = 1; string b = 2; } }",
        (
            "ONEOF_ADDED #/M/o",
            "ONEOF_FIELD_ADDED #/M/o/2",
        ),
    ),
    Case(
        "several fields must not move into a oneof",
        "message M { string a = 1; string b = 2; }",
        "message M { oneof o { string a = 1; string b = 2; } }",
        (
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",
            "ONEOF_ADDED #/M/o",
        ),
    ),
    Case(
        "three fields must not move into a oneof",
        "message M { string a = 1; string b = 2; string c = 3; }",
        "message M { oneof o { string a = 1; string b = 2; string c = 3; } }",
        (
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",
            "ONEOF_ADDED #/M/o",
        ),
    ),
    Case(
        "a field must not move into an existing oneof",
        "message M { string a = 1; oneof o { string b = 2; } }",
        "message M { oneof o { string a = 1; string b = 2; } }",
        ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",),
    ),
    Case(
        "several fields must not move into an existing oneof",
        "message M { string a = 1; string b = 2; oneof o { string c = 3; } }",
        "message M { oneof o { string a = 1; string b = 2; string c = 3; } }",
        ("MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",),
    ),
    Case(
        "two oneofs must not become one",
        "message M { oneof o { string a = 1; } oneof p { string b = 2; } }",
        "message M { oneof o { string a = 1; string b = 2; } }",
        (
            "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",
            "ONEOF_REMOVED #/M/p",
        ),
    ),
    Case(
        "a oneof may be split",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof o { string a = 1; } oneof p { string b = 2; } }",
        ("ONEOF_ADDED #/M/p",),
    ),
    Case(
        "a field may move out of a oneof",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof o { string a = 1; } string b = 2; }",
        ("ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2",),
    ),
    Case(
        "all fields may move out of a oneof",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { string a = 1; string b = 2; }",
        (
            "ONEOF_REMOVED #/M/o",
            "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1",
            "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2",
        ),
    ),
    Case(
        "a field that moves out must keep its kind",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof o { string a = 1; } int32 b = 2; }",
        (
            "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2",
            "FIELD_SCALAR_KIND_CHANGED #/M/2",
        ),
    ),
    Case(
        "a field that moves in must keep its kind",
        "message M { string a = 1; }",
        "message M { oneof o { int32 a = 1; } }",
        (
            "ONEOF_ADDED #/M/o",
            "FIELD_SCALAR_KIND_CHANGED #/M/o/1",
        ),
    ),
    Case(
        "a oneof is removed, but some of its fields stay",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { string a = 1; }",
        (
            "ONEOF_REMOVED #/M/o",
            "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1",
            "ONEOF_FIELD_REMOVED #/M/o/2",
        ),
    ),
    Case(
        "a oneof that is renamed must keep its fields",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof p { string a = 1; } }",
        (
            "ONEOF_REMOVED #/M/o",
            "ONEOF_ADDED #/M/p",
            "ONEOF_FIELD_REMOVED #/M/o/2",
        ),
    ),
    Case(
        "a field may move from a oneof to a new one",
        "message M { oneof o { string a = 1; string b = 2; } }",
        "message M { oneof o { string a = 1; } oneof p { string b = 2; string c = 3; } }",
        (
            "ONEOF_ADDED #/M/p",
            "ONEOF_FIELD_ADDED #/M/p/3",
        ),
    ),
    Case(
        "a field must not move between existing oneofs",
        "message M { oneof o { string a = 1; string b = 2; } oneof p { string c = 3; } }",
        "message M { oneof o { string a = 1; } oneof p { string c = 3; string b = 2; } }",
        ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/p",),
    ),
    Case(
        "oneofs of nested messages have the path of both",
        "message M { message N { oneof o { string a = 1; string b = 2; } } }",
        "message M { message N { oneof o { string a = 1; } } }",
        ("ONEOF_FIELD_REMOVED #/M/N/o/2",),
    ),
    Case(
        "options of oneofs do not count",
        "message M { oneof o { string a = 1; } }",
        "message M { oneof o { option deprecated = true; string a = 1; } }",
    ),
    Case(
        "an optional field of proto3 is in no oneof",
        "message M { optional string a = 1; optional string b = 2; }",
        "message M { string a = 1; string b = 2; }",
    ),
    Case(
        "optional fields of proto3 must not move into one oneof",
        "message M { optional string a = 1; optional string b = 2; }",
        "message M { oneof o { string a = 1; string b = 2; } }",
        (
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",
            "ONEOF_ADDED #/M/o",
        ),
    ),
    Case(
        "messages in a oneof must not change",
        "message M { oneof o { A a = 1; } message A {} message B {} }",
        "message M { oneof o { B a = 1; } message A {} message B {} }",
        ("FIELD_NAMED_TYPE_CHANGED #/M/o/1",),
    ),
    Case(
        "a required field that moves into a oneof",
        'syntax = "proto2"; message M { required string a = 1; }',
        'syntax = "proto2"; message M { oneof o { string a = 1; } }',
        ("ONEOF_ADDED #/M/o",),
    ),
]
