import pytest

from rookery.schemas.fields import top_level_fields
from rookery.schemas.formats import find_format
from rookery.schemas.interface import SchemaType

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":%s},{"name":"b","type":"int"}]}'
NESTED = RECORD.replace('"R"', '"N"').replace('"a"', '"c"') % '"int"'


@pytest.mark.parametrize(
    ("schema_type", "text", "fields"),
    [
        ("AVRO", RECORD % NESTED, {"a", "b"}),
        ("AVRO", '"string"', set()),
        ("AVRO", '["null","string"]', set()),
        ("AVRO", '{"type":"array","items":"int"}', set()),
        ("JSON", '{"properties":{"a":{"properties":{"c":{}}},"b":true}}', {"a", "b"}),
        ("JSON", '{"type":"string"}', set()),
        ("JSON", "true", set()),
        (
            "PROTOBUF",
            'syntax = "proto3";\nmessage A { int32 a = 1; message N { int32 c = 1; } oneof o { int32 d = 2; } }\n'
            "message B { map<string, int32> b = 1; }\nenum E { X = 0; }",
            {"a", "b"},
        ),
    ],
)
def test_the_outermost_fields(schema_type: SchemaType, text: str, fields: set[str]) -> None:
    assert top_level_fields(find_format(schema_type).parse(text)) == fields
