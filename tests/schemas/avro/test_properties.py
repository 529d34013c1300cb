"""Properties of any schema. The reader of fastavro is the oracle for the compatibility check."""

from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.schemas.avro import AvroSchema, check, parse
from tests.schemas.avro.shapes import parse_shape
from tests.schemas.avro.strategies import Values, mutations, schemas


@given(schemas())
def test_the_canonical_text_is_a_fixed_point(shape: Any) -> None:
    schema = parse_shape(shape)
    assert parse(schema.canonical).canonical == schema.canonical


@given(schemas())
def test_the_normal_form_is_a_fixed_point(shape: Any) -> None:
    normal = parse_shape(shape).normalized()
    assert normal.normalized().canonical == normal.canonical
    assert parse(normal.canonical).normalized().canonical == normal.canonical


@given(schemas())
def test_a_schema_reads_itself_and_its_normal_form(shape: Any) -> None:
    schema = parse_shape(shape)
    normal = schema.normalized()
    assert check(schema, schema) == check(schema, parse_shape(shape)) == []
    assert check(schema, normal) == check(normal, schema) == []


@given(schemas())
def test_fastavro_parses_the_raw_schema(shape: Any) -> None:
    fastavro.parse_schema(parse_shape(shape).raw)


@given(st.data())
def test_a_compatible_reader_can_read_the_data(data: st.DataObject) -> None:
    shape = data.draw(schemas())
    reader_shape, writer_shape = data.draw(st.permutations([shape, data.draw(mutations(shape))]))
    reader, writer = parse_shape(reader_shape), parse_shape(writer_shape)
    if not check(reader, writer):
        _transfer(reader, writer, Values(data.draw, writer_shape).draw())


@given(st.data())
def test_a_field_without_value_cannot_be_read(data: st.DataObject) -> None:
    shape = data.draw(schemas())
    reader, writer = parse_shape(data.draw(mutations(shape))), parse_shape(shape)
    is_missing = any(
        each.kind.startswith("READER_FIELD") and each.path.count("/") == 2 for each in check(reader, writer)
    )
    if is_missing:
        with pytest.raises(fastavro.read.SchemaResolutionError):
            _transfer(reader, writer, Values(data.draw, shape).draw())


def _transfer(reader: AvroSchema, writer: AvroSchema, value: Any) -> None:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer.raw), value)
    stream.seek(0)
    fastavro.schemaless_reader(stream, fastavro.parse_schema(writer.raw), fastavro.parse_schema(reader.raw))
