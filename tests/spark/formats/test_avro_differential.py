"""Compares the columns with `AvroDeserializer`, row by row: the same values, and errors for the same rows.

`expected` converts the values of the deserializer to those of the Spark type, by the table in docs/spark-formats.md.
"""

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rookery.records.batch_writer import encode_varint
from rookery.records.record import read_varint
from rookery.schemas.avro import parse_registered
from rookery.serdes import AvroDeserializer, Schema
from rookery.serdes.avro_schema import guarded
from rookery.serdes.errors import SerdesError
from rookery.spark.formats.avro.decoder import AvroDecoder
from rookery.spark.formats.avro.encoder import AvroEncoder
from rookery.spark.formats.schema_registration import WriterSchema
from tests.spark.formats.avro_schemas import evolved, python_kind_of, records, schemas, type_of, values
from tests.spark.formats.registry import SETTINGS, MemoryRegistry, framed, memory_registry

BAD = object()


@pytest.fixture(scope="module")
def registry() -> Iterator[MemoryRegistry]:
    with memory_registry() as running:
        yield running


def encode(registry: MemoryRegistry, schema: Any, rows: list[Any]) -> list[bytes]:
    """Encode rows with the checks of the serializers."""
    text = json.dumps(schema)
    schema_id, parsed = registry.add(text), fastavro.parse_schema(guarded(parse_registered(text).raw))
    return [framed(schema_id, encode_row(parsed, each)) for each in rows]


def encode_row(parsed: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    data = out.getvalue()
    return data[read_varint(data, 0)[1] :] if type_of(parsed) == "bytes" else data


def expected(schema: Any, value: Any) -> Any:
    """Return the value of the column for a value of the deserializer: a record in a union is (name, record) there."""
    if isinstance(schema, list):
        return expected_of_union(schema, value)
    kind = type_of(schema)
    if kind == "record":
        record = value[1] if isinstance(value, tuple) else value
        return {each["name"]: expected(each["type"], record[each["name"]]) for each in schema["fields"]}
    if kind == "array":
        return [expected(schema["items"], each) for each in value]
    if kind == "map":
        return [(key, expected(schema["values"], each)) for key, each in value.items()]
    if kind == "bytes" and isinstance(value, str):
        return value.encode()
    return str(value) if isinstance(value, UUID) else value


def expected_of_union(schema: list[Any], value: Any) -> Any:
    branches = [each for each in schema if each != "null"]
    if value is None or not branches:
        return None
    if len(branches) == 1:
        return expected(branches[0], value)
    if {*map(str, branches)} in ({"int", "long"}, {"float", "double"}):
        return value
    chosen = find_branch(branches, value)
    return {f"member{i}": expected(each, value) if each is chosen else None for i, each in enumerate(branches)}


def find_branch(branches: list[Any], value: Any) -> Any:
    looks = {
        bool: "boolean",
        int: "number",
        float: "fraction",
        bytes: "bytes",
        str: "text",
        date: "date",
        datetime: "timestamp",
        Decimal: "decimal",
        UUID: "uuid",
        list: "array",
        dict: "map",
    }
    if isinstance(value, tuple):
        return next(each for each in branches if type_of(each) == "record" and each["name"] == value[0])
    return next(each for each in branches if python_kind_of(each) == looks[type(value)])


def deserialize(read: AvroDeserializer, reader: Any, data: bytes) -> Any:
    try:
        return expected(reader, read("topic", data))
    except SerdesError:
        return BAD


def check(registry: MemoryRegistry, reader: Any, rows: list[bytes]) -> None:
    text = json.dumps(reader)
    read = AvroDeserializer(registry, text, return_record_name=True)
    wanted = [deserialize(read, reader, each) for each in rows]
    made = AvroDecoder(text, None, SETTINGS).decode(pa.array(rows, pa.binary()), "topic")
    made.values.validate(full=True)
    failed = {each.row: each.message for each in made.errors}
    got = [BAD if row in failed else value for row, value in enumerate(made.values.to_pylist())]
    assert [same(left, right) for left, right in zip(got, wanted, strict=True)] == [True] * len(rows), (
        got,
        wanted,
        failed,
    )


def same(left: Any, right: Any) -> bool:
    """Compare values. The column may round floats to 32 bits, and fastavro returns some times without a zone."""
    if isinstance(left, float) and isinstance(right, float | int):
        try:
            narrow = rounded(right)
        except OverflowError:
            narrow = math.inf if right > 0 else -math.inf
        return left in (right, narrow) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, datetime) and isinstance(right, datetime):
        return left.replace(tzinfo=UTC) == right.replace(tzinfo=UTC)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def rounded(number: float) -> float:
    return float(pa.scalar(float(number), pa.float64()).cast(pa.float32(), safe=False).as_py())


@settings(max_examples=50)
@given(st.data())
def test_data_is_read_with_the_writers_schema(registry: MemoryRegistry, data: st.DataObject) -> None:
    schema = data.draw(records() | schemas())
    check(registry, schema, encode(registry, schema, data.draw(st.lists(values(schema), min_size=1, max_size=4))))


@settings(max_examples=50)
@given(st.data())
def test_data_is_read_with_other_schemas(registry: MemoryRegistry, data: st.DataObject) -> None:
    first = data.draw(records())
    second = data.draw(evolved(first))
    rows = []
    for writer in (first, second):
        rows += encode(registry, writer, data.draw(st.lists(values(writer), min_size=1, max_size=3)))
    check(registry, data.draw(evolved(first) | st.just(second)), data.draw(st.permutations(rows)))


@settings(max_examples=50)
@given(st.data())
def test_malformed_rows(registry: MemoryRegistry, data: st.DataObject) -> None:
    """Truncated or overwritten rows do not affect the rows next to them."""
    schema = data.draw(records())
    [good] = encode(registry, schema, [data.draw(values(schema))])
    rows = [good]
    for _ in range(data.draw(st.integers(1, 5))):
        position = data.draw(st.integers(5, len(good)))
        junk = data.draw(st.binary(max_size=4) | st.just(encode_varint(2**62)))
        rows.append(good[:position] + junk + (good[position:] if data.draw(st.booleans()) else b""))
    rows.append(good)
    made = AvroDecoder(json.dumps(schema), None, SETTINGS).decode(pa.array(rows, pa.binary()), "topic")
    made.values.validate(full=True)
    failed = {each.row for each in made.errors}
    assert not failed & {0, len(rows) - 1}
    assert made.values[0] == made.values[len(rows) - 1]
    assert all(not made.values[row].is_valid for row in failed)


@settings(max_examples=50)
@given(st.data())
def test_decoded_columns_are_encoded(registry: MemoryRegistry, data: st.DataObject) -> None:
    """The encoder writes a decoded column with the same schema; the deserializer returns the same values."""
    schema = data.draw(records())
    rows = encode(registry, schema, data.draw(st.lists(values(schema), min_size=1, max_size=4)))
    decoder = AvroDecoder(json.dumps(schema), None, SETTINGS)
    column = decoder.decode(pa.array([*rows, None], pa.binary()), "topic").values
    # In a union, fastavro writes some texts as decimals.
    assume(column.null_count == 1)
    writer = WriterSchema(Schema(json.dumps(schema)), int.from_bytes(rows[0][1:5], "big"), {})
    written = AvroEncoder(writer, decoder.spark_type).encode(column, "topic")
    assert written[len(rows)].as_py() is None
    read = AvroDeserializer(registry, return_record_name=True)
    again = [deserialize(read, schema, each) for each in written.to_pylist()[:-1]]
    assert all(map(same, column.to_pylist(), again)), (column.to_pylist(), again)
