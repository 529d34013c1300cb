import subprocess
import sys

import pytest

from rookery.schemas.formats import SCHEMA_TYPES, find_format
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
def test_what_is_no_schema_is_said_in_one_way(schema_type: SchemaType, text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        find_format(schema_type).parse(text)


def test_formats_are_loaded_when_they_are_asked_for() -> None:
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
