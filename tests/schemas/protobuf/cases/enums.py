"""Enums and their values."""

from tests.schemas.protobuf.cases.case import Case

CASES = [
    Case("an enum may be added", "message M {}", "message M {} enum E { Z = 0; }", ("ENUM_ADDED #/E",)),
    Case("an enum may be removed", "message M {} enum E { Z = 0; }", "message M {}", ("ENUM_REMOVED #/E",)),
    Case("a nested enum may be added", "message M {  }", "message M { enum E { Z = 0; } }", ("ENUM_ADDED #/M/E",)),
    Case("a nested enum may be removed", "message M { enum E { Z = 0; } }", "message M {  }", ("ENUM_REMOVED #/M/E",)),
    Case(
        "a value of an enum may be added", "enum E { Z = 0; }", "enum E { Z = 0; A = 1; }", ("ENUM_CONST_ADDED #/E/1",)
    ),
    Case(
        "a value of an enum may be removed",
        "enum E { Z = 0; A = 1; }",
        "enum E { Z = 0; }",
        ("ENUM_CONST_REMOVED #/E/1",),
    ),
    Case(
        "a value of an enum may be renamed",
        "enum E { Z = 0; A = 1; }",
        "enum E { Z = 0; B = 1; }",
        ("ENUM_CONST_CHANGED #/E/1",),
    ),
    Case(
        "a value of an enum may get another number",
        "enum E { Z = 0; A = 1; }",
        "enum E { Z = 0; A = 2; }",
        (
            "ENUM_CONST_REMOVED #/E/1",
            "ENUM_CONST_ADDED #/E/2",
        ),
    ),
    Case(
        "values of an enum may change their order", "enum E { Z = 0; A = 1; B = 2; }", "enum E { Z = 0; B = 2; A = 1; }"
    ),
    Case(
        "negative values of an enum", "enum E { Z = 0; A = -1; }", "enum E { Z = 0; }", ("ENUM_CONST_REMOVED #/E/-1",)
    ),
    Case(
        "the last name of an alias counts",
        "enum E { option allow_alias = true; Z = 0; A = 1; B = 1; }",
        "enum E { Z = 0; B = 1; }",
    ),
    Case(
        "an alias may be added in front",
        "enum E { Z = 0; B = 1; }",
        "enum E { option allow_alias = true; Z = 0; A = 1; B = 1; }",
    ),
    Case("options of values do not count", "enum E { Z = 0; }", "enum E { Z = 0 [deprecated = true]; }"),
    Case(
        "an enum may become a number",
        "message M { E e = 1; enum E { Z = 0; } }",
        "message M { int32 e = 1; }",
        ("ENUM_REMOVED #/M/E",),
    ),
    Case(
        "a number may become an enum",
        "message M { int64 e = 1; }",
        "message M { E e = 1; enum E { Z = 0; } }",
        ("ENUM_ADDED #/M/E",),
    ),
    Case(
        "a bool may become an enum",
        "message M { bool e = 1; }",
        "message M { E e = 1; enum E { Z = 0; } }",
        ("ENUM_ADDED #/M/E",),
    ),
    Case(
        "an enum must not become a string",
        "message M { E e = 1; enum E { Z = 0; } }",
        "message M { string e = 1; }",
        (
            "FIELD_SCALAR_KIND_CHANGED #/M/1",
            "ENUM_REMOVED #/M/E",
        ),
    ),
    Case(
        "an enum must not become a signed number",
        "message M { E e = 1; enum E { Z = 0; } }",
        "message M { sint32 e = 1; }",
        (
            "FIELD_SCALAR_KIND_CHANGED #/M/1",
            "ENUM_REMOVED #/M/E",
        ),
    ),
    Case(
        "an enum must not become a message",
        "message M { E e = 1; enum E { Z = 0; } }",
        "message M { E e = 1; message E {} }",
        (
            "FIELD_KIND_CHANGED #/M/1",
            "MESSAGE_ADDED #/M/E",
            "ENUM_REMOVED #/M/E",
        ),
    ),
    Case(
        "an enum may be exchanged for another",
        "message M { E e = 1; enum E { Z = 0; } enum F { Y = 0; } }",
        "message M { F e = 1; enum E { Z = 0; } enum F { Y = 0; } }",
    ),
    Case(
        "an enum may move to the top",
        "message M { E e = 1; enum E { Z = 0; } }",
        "message M { E e = 1; } enum E { Z = 0; }",
        (
            "ENUM_REMOVED #/M/E",
            "ENUM_ADDED #/E",
        ),
    ),
    Case(
        "a nested enum's values may change",
        "message M { enum E { Z = 0; A = 1; } }",
        "message M { enum E { Z = 0; B = 1; C = 2; } }",
        (
            "ENUM_CONST_CHANGED #/M/E/1",
            "ENUM_CONST_ADDED #/M/E/2",
        ),
    ),
]
