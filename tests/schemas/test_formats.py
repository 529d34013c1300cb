import subprocess
import sys

import pytest

from rookery.schemas.formats import SCHEMA_TYPES, find_format, top_level_fields
from rookery.schemas.interface import InvalidSchemaError, SchemaType

TEXTS: dict[SchemaType, str] = {
    "AVRO": '{"type":"record","name":"R","fields":[]}',
    "JSON": '{"type":"object"}',
    "PROTOBUF": 'syntax = "proto3"; message R {}',
}


def test_the_types_are_those_of_the_registry() -> None:
    assert SCHEMA_TYPES == ("AVRO", "JSON", "PROTOBUF")


@pytest.mark.parametrize("schema_type", SCHEMA_TYPES)
def test_each_type_has_its_format(schema_type: SchemaType) -> None:
    format_ = find_format(schema_type)
    schema = format_.parse(TEXTS[schema_type])
    assert schema.schema_type == schema_type
    assert format_.parse(schema.canonical).canonical == schema.canonical
    assert format_.check(schema, schema.normalized()) == []
    assert schema.formatted("") == schema.canonical


@pytest.mark.parametrize("schema_type", SCHEMA_TYPES)
@pytest.mark.parametrize("text", ["{", "message {", '"no such type"x'])
def test_all_formats_raise_the_same_error(schema_type: SchemaType, text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        find_format(schema_type).parse(text)


def test_formats_are_loaded_on_first_use() -> None:
    program = """if True:
        import sys
        from rookery.schemas.formats import find_format
        from rookery.schemas.levels import check_compatibility
        loaded = lambda: {name.split(".")[2] for name in sys.modules if name.startswith("rookery.schemas.")}
        assert not loaded() & {"avro", "json_schema", "protobuf"}, loaded()
        find_format("AVRO")
        assert not loaded() & {"json_schema", "protobuf"}, loaded()
    """
    subprocess.run([sys.executable, "-c", program], check=True)


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
