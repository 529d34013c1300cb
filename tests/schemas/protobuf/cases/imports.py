"""Types imported from references or from well-known files."""

from rookery.schemas.interface import Reference
from tests.schemas.protobuf.cases.case import Case, Imports

CASES = [
    Case(
        "the same version of an import is not compared",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
    ),
    Case(
        "an import with a compatible change",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; string b = 2; }"},
            (Reference("other.proto", "other", 2),),
        ),
        ("FIELD_ADDED #/Other/2",),
    ),
    Case(
        "an import with an incompatible change",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { int32 a = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
        ),
    ),
    Case(
        "what is imported by two fields is found once",
        Imports(
            'import "other.proto"; message M { Other o = 1; Other p = 2; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; Other p = 2; }',
            {"other.proto": "message Other { int32 a = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/2",
        ),
    ),
    Case(
        "an import that is not used does not count",
        Imports(
            'import "other.proto"; message M { }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { }',
            {"other.proto": "message Other { int32 a = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
    ),
    Case(
        "a type may move into an import",
        "message M { Other o = 1; } message Other { string a = 1; }",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        ("MESSAGE_REMOVED #/Other",),
    ),
    Case(
        "a type may come from another subject",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "one", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "two", 1),),
        ),
    ),
    Case(
        "an imported type in a map",
        Imports(
            'import "other.proto"; message M { map<string, Other> o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { map<string, Other> o = 1; }',
            {"other.proto": "message Other { int32 a = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
        ),
    ),
    Case(
        "an imported type in a oneof",
        Imports(
            'import "other.proto"; message M { oneof c { Other o = 1; } }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { oneof c { Other o = 1; } }',
            {"other.proto": "message Other { int32 a = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/c/1",
        ),
    ),
    Case(
        "nested types of an import have their own path",
        Imports(
            'import "other.proto"; message M { n.Other o = 1; n.Other.In i = 2; }',
            {"other.proto": "package n; message Other { message In { string a = 1; } In i = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { n.Other o = 1; n.Other.In i = 2; }',
            {"other.proto": "package n; message Other { message In { int32 a = 1; } In i = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Other/In/1",
            "FIELD_NAMED_TYPE_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/2",
        ),
    ),
    Case(
        "the package of an import may change with the references to it",
        Imports(
            'import "other.proto"; message M { n.Other o = 1; n.Other.In i = 2; }',
            {"other.proto": "package n; message Other { message In { string a = 1; } In i = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { k.Other o = 1; k.Other.In i = 2; }',
            {"other.proto": "package k; message Other { message In { string a = 1; } In i = 1; }"},
            (Reference("other.proto", "other", 2),),
        ),
    ),
    Case(
        "an import of an import with an incompatible change",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {
                "deep.proto": "message Deep { string a = 1; }",
                "other.proto": 'import "deep.proto"; message Other { Deep d = 1; }',
            },
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {
                "deep.proto": "message Deep { int32 a = 1; }",
                "other.proto": 'import "deep.proto"; message Other { Deep d = 1; }',
            },
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Deep/1",
            "FIELD_NAMED_TYPE_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
        ),
    ),
    Case(
        "an import of an import is not compared if the import is the same version",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {
                "deep.proto": "message Deep { string a = 1; }",
                "other.proto": 'import "deep.proto"; message Other { Deep d = 1; }',
            },
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {
                "deep.proto": "message Deep { int32 a = 1; }",
                "other.proto": 'import "deep.proto"; message Other { Deep d = 1; }',
            },
            (Reference("other.proto", "other", 1),),
        ),
    ),
    Case(
        "imported messages may contain each other",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {
                "other.proto": "message Other { Third t = 1; string a = 2; }"
                " message Third { Other o = 1; string b = 2; }"
            },
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { Third t = 1; string a = 2; } message Third { Other o = 1; int32 b = 2; }"},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Third/2",
            "FIELD_NAMED_TYPE_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
        ),
    ),
    Case(
        "a well-known type is the same everywhere",
        'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }',
        'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }',
    ),
    Case(
        "a well-known type must not become another",
        'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }',
        'import "google/protobuf/duration.proto"; message M { google.protobuf.Duration t = 1; }',
        ("FIELD_NAMED_TYPE_CHANGED #/M/1",),
    ),
    Case(
        "a well-known type that contains itself",
        'import "google/protobuf/struct.proto"; message M { google.protobuf.Struct t = 1; }',
        'import "google/protobuf/struct.proto"; message M { google.protobuf.Struct t = 1; }',
    ),
    Case(
        "a well-known enum may become a number",
        'import "google/protobuf/struct.proto"; message M { google.protobuf.NullValue t = 1; }',
        "message M { int32 t = 1; }",
    ),
    Case(
        "a wrapper must not become what it wraps",
        'import "google/protobuf/wrappers.proto"; message M { google.protobuf.StringValue t = 1; }',
        "message M { string t = 1; }",
        ("FIELD_KIND_CHANGED #/M/1",),
    ),
    Case(
        "an imported enum may become another",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "enum Other { Z = 0; A = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "enum Other { Z = 0; }"},
            (Reference("other.proto", "other", 2),),
        ),
    ),
    Case(
        "an imported message must not become an enum",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "message Other { string a = 1; }"},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"other.proto": "enum Other { Z = 0; }"},
            (Reference("other.proto", "other", 2),),
        ),
        ("FIELD_KIND_CHANGED #/M/1",),
    ),
    Case("imports themselves do not count", "message M {}", 'import "google/protobuf/any.proto"; message M {}'),
    Case(
        "a type of a public import of an import",
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"deep.proto": "message Other { string a = 1; }", "other.proto": 'import public "deep.proto";'},
            (Reference("other.proto", "other", 1),),
        ),
        Imports(
            'import "other.proto"; message M { Other o = 1; }',
            {"deep.proto": "message Other { int32 a = 1; }", "other.proto": 'import public "deep.proto";'},
            (Reference("other.proto", "other", 2),),
        ),
        (
            "FIELD_SCALAR_KIND_CHANGED #/Other/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
        ),
    ),
]
