from rookery.schemas.protobuf import parse

ORDER = """
syntax = 'proto3';
import public "google/protobuf/any.proto";
import "google/protobuf/descriptor.proto";
package shop;
enum Kind { option allow_alias = true; NONE = 0; reserved 5, 7 to max; NOTHING = 0 [deprecated = true]; }
service Shop { rpc Buy(Order) returns(stream Order) { option deprecated = true; } rpc Look (Order) returns (Order) {} }
extend google.protobuf.FieldOptions { optional Note note = 50000; }
message Order {
  enum Inner { A = 0; }
  oneof payment { option (weight) = 1; string card = 4; bool cash = 5; }
  message Line { string item = 1; message Deep { int32 x = 1; oneof y { int32 z = 2; } } }
  string id = 1 [deprecated = true, json_name = "identity",
    (note) = { text: "it's", tags: ["a", "b"], deep { x: -1.50 } }];
  map < string , Line > lines = 2;
  repeated int64 numbers=3[packed=false];
  reserved 10 to 12, 14; reserved "old", 'older';
  option deprecated = false;
}
message Note { string text = 1; }
option java_package = "org.\\"shop\\"";
"""

CANONICAL = r"""syntax = "proto3";
package shop;

import "google/protobuf/descriptor.proto";
import public "google/protobuf/any.proto";

option java_package = "org.\"shop\"";

message Order {
  reserved 10 to 12, 14;
  reserved "old", "older";

  option deprecated = false;

  string id = 1 [
    deprecated = true,
    (note) = {
      text: "it\'s",
      tags: [
        "a",
        "b"
      ],
      deep: {
        x: -1.50
      }
    },
    json_name = "identity"
  ];
  map<string, Line> lines = 2;
  repeated int64 numbers = 3 [packed = false];

  oneof payment {
    option (weight) = 1;
~~
    string card = 4;
    bool cash = 5;
  }

  message Line {
    string item = 1;
~~
    message Deep {
      int32 x = 1;
~~~~
      oneof y {
        int32 z = 2;
      }
    }
  }
  enum Inner {
    A = 0;
  }
}
message Note {
  string text = 1;
}
enum Kind {
  reserved 5, 7 to max;
  option allow_alias = true;
  NONE = 0;
  NOTHING = 0 [deprecated = true];
}

extend google.protobuf.FieldOptions {
  optional Note note = 50000;
}

service Shop {
  rpc Buy (Order) returns (stream Order) {
    option deprecated = true;
  };
  rpc Look (Order) returns (Order);
}
"""

NORMALIZED = r"""syntax = "proto3";
package shop;

import "google/protobuf/descriptor.proto";
import public "google/protobuf/any.proto";

option java_package = "org.\"shop\"";

message Order {
  reserved 10 to 12;
  reserved 14;
  reserved "old";
  reserved "older";

  option deprecated = false;

  string id = 1 [
    deprecated = true,
    json_name = "identity",
    (shop.note) = {
      deep: {
        x: -1.5
      },
      tags: [
        "a",
        "b"
      ],
      text: "it\'s"
    }
  ];
  map<string, .shop.Order.Line> lines = 2;
  repeated int64 numbers = 3 [packed = false];

  oneof payment {
    option (weight) = 1;
~~
    string card = 4;
    bool cash = 5;
  }

  message Line {
    string item = 1;
~~
    message Deep {
      int32 x = 1;
~~~~
      oneof y {
        int32 z = 2;
      }
    }
  }
  enum Inner {
    A = 0;
  }
}
message Note {
  string text = 1;
}
enum Kind {
  reserved 5;
  reserved 7 to max;
  option allow_alias = true;
  NONE = 0;
  NOTHING = 0 [deprecated = true];
}

extend .google.protobuf.FieldOptions {
  optional .shop.Note note = 50000;
}

service Shop {
  rpc Buy (.shop.Order) returns (stream .shop.Order) {
    option deprecated = true;
  };
  rpc Look (.shop.Order) returns (.shop.Order);
}
"""


def test_the_layout() -> None:
    """Empty lines of inner levels contain spaces (~)."""
    assert parse(ORDER).canonical == CANONICAL.replace("~", " ")


def test_the_layout_of_the_normal_form() -> None:
    assert parse(ORDER).normalized().canonical == NORMALIZED.replace("~", " ")


def test_a_file_without_syntax_and_package_begins_with_an_empty_line() -> None:
    assert parse("message M {}").canonical == "\nmessage M {}\n"


def test_proto2() -> None:
    text = """syntax = "proto2";

message M {
  optional bytes b = 1 [default = "\\001\\377 x"];
  optional float f = 2 [
    deprecated = true,
    default = -inf
  ];

  repeated group Part = 3 [deprecated = true] {
    optional int32 a = 1;
  }

  extensions 100 to 199, 500 to max;

  extend M {
    optional string inner = 100;
  }
}
"""
    assert parse(text).canonical == text


def test_an_edition() -> None:
    text = 'edition = "2023";\n\noption features.field_presence = IMPLICIT;\n\nmessage M {\n  reserved "a";\n}\n'
    assert parse(text.replace('"a"', "a")).canonical == text


def test_a_descriptor() -> None:
    """Map entries are messages, types have full names, options are in the registry's order."""
    text = """syntax = "proto3";
package p;
option go_package = "g";
option optimize_for = SPEED;
option java_multiple_files = true;
message M {
  map<string, M> by_name = 1; oneof o { int32 a = 2 [jstype = JS_NORMAL, packed = false]; } optional M m = 3; }
"""
    expected = """syntax = "proto3";
package p;

option java_multiple_files = true;
option optimize_for = SPEED;
option go_package = "g";

message M {
  repeated .p.M.ByNameEntry by_name = 1;
  optional .p.M m = 3;

  oneof o {
    int32 a = 2 [
      packed = false,
      jstype = JS_NORMAL
    ];
  }

  message ByNameEntry {
    option map_entry = true;
~~
    string key = 1;
    .p.M value = 2;
  }
}
"""
    assert parse(parse(text).formatted("serialized")).canonical == expected.replace("~", " ")
