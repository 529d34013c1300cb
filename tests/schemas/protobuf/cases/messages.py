"""Messages, packages, and elements that are not compared."""

from tests.schemas.protobuf.cases.case import Case

CASES = [
    Case("the same schema has no differences", "message M { string a = 1; }", "message M { string a = 1; }"),
    Case(
        "layout and comments do not count",
        "message M { string a = 1; }",
        "\n// hello\nmessage M {\n  string a /* name */ = 1;\n}\n",
    ),
    Case("a message may be added", "message A {}", "message A {} message B {}", ("MESSAGE_ADDED #/B",)),
    Case("a message must not be removed", "message A {} message B {}", "message A {}", ("MESSAGE_REMOVED #/B",)),
    Case(
        "a message that is renamed is removed and added",
        "message A {}",
        "message B {}",
        (
            "MESSAGE_REMOVED #/A",
            "MESSAGE_ADDED #/B",
        ),
    ),
    Case(
        "messages may change their order",
        "message A {} message B {}",
        "message B {} message A {}",
        (
            "MESSAGE_MOVED #/A",
            "MESSAGE_MOVED #/B",
        ),
    ),
    Case(
        "a message in front moves the others",
        "message A {}",
        "message B {} message A {}",
        (
            "MESSAGE_MOVED #/A",
            "MESSAGE_ADDED #/B",
        ),
    ),
    Case("a nested message may be added", "message M {  }", "message M { message N {} }", ("MESSAGE_ADDED #/M/N",)),
    Case(
        "a nested message must not be removed",
        "message M { message N {} }",
        "message M {  }",
        ("MESSAGE_REMOVED #/M/N",),
    ),
    Case(
        "a nested message must not move to the top",
        "message M { message N {} N n = 1; }",
        "message M { N n = 1; } message N {}",
        (
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
            "MESSAGE_REMOVED #/M/N",
            "MESSAGE_ADDED #/N",
        ),
    ),
    Case(
        "a message must not move into another",
        "message M { N n = 1; } message N {}",
        "message M { message N {} N n = 1; }",
        (
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
            "MESSAGE_ADDED #/M/N",
            "MESSAGE_REMOVED #/N",
        ),
    ),
    Case(
        "nested messages may change places",
        "message M { message A {} message B {} }",
        "message M { message B {} message A {} }",
        (
            "MESSAGE_MOVED #/M/A",
            "MESSAGE_MOVED #/M/B",
        ),
    ),
    Case(
        "deeply nested messages are compared",
        "message M { message A { message B { string c = 1; } } }",
        "message M { message A { message B { int32 c = 1; } } }",
        ("FIELD_SCALAR_KIND_CHANGED #/M/A/B/1",),
    ),
    Case(
        "deeply nested messages must not be removed",
        "message M { message A { message B {} } }",
        "message M { message A { } }",
        ("MESSAGE_REMOVED #/M/A/B",),
    ),
    Case("the package must not change", "package a; message M {}", "package b; message M {}", ("PACKAGE_CHANGED #/",)),
    Case("a package must not be added", "message M {}", "package b; message M {}", ("PACKAGE_CHANGED #/",)),
    Case("the package must not be removed", "package a; message M {}", "message M {}", ("PACKAGE_CHANGED #/",)),
    Case(
        "types of a changed package are compared by their local names",
        "package a; message M { M m = 1; }",
        "package b; message M { M m = 1; }",
        ("PACKAGE_CHANGED #/",),
    ),
    Case(
        "proto2 may become proto3",
        'syntax = "proto2"; message M { repeated string a = 1; }',
        "message M { repeated string a = 1; }",
    ),
    Case("options of a message do not count", "message M {  }", "message M { option deprecated = true; }"),
    Case("options of the file do not count", "message M {}", 'option java_package = "a"; message M {}'),
    Case(
        "reserved tags and names do not count",
        "message M { string a = 1; }",
        'message M { string a = 1; reserved 2, 5 to 9; reserved "b"; }',
    ),
    Case("services do not count", "message M {}", "message M {} service S { rpc R (M) returns (M); }"),
    Case(
        "extensions do not count",
        'syntax = "proto2"; message M { extensions 100 to 200; }',
        'syntax = "proto2"; message M { extensions 100 to 200; } extend M { optional string a = 100; }',
    ),
    Case(
        "extension ranges do not count",
        'syntax = "proto2"; message M { extensions 100 to 200; }',
        'syntax = "proto2"; message M { }',
    ),
    Case(
        "an explicit map entry does not count as a message",
        "message M { map<string, int32> a = 1; }",
        "message M { repeated AEntry a = 1;"
        " message AEntry { option map_entry = true; string key = 1; int32 value = 2; } }",
    ),
    Case(
        "a map's entry that was written out may become a map",
        "message M { repeated AEntry a = 1;"
        " message AEntry { option map_entry = true; string key = 1; int32 value = 2; } }",
        "message M { map<string, int32> a = 1; }",
    ),
    Case(
        "groups do not count",
        'syntax = "proto2"; message M { optional group G = 1 { optional string a = 1; } }',
        'syntax = "proto2"; message M { optional group G = 1 { optional int32 a = 1; } }',
    ),
    Case(
        "a message and an enum of the same name",
        "message A {} message M {}",
        "enum A { Z = 0; } message M {}",
        (
            "MESSAGE_REMOVED #/A",
            "MESSAGE_MOVED #/M",
            "ENUM_ADDED #/A",
        ),
    ),
]
