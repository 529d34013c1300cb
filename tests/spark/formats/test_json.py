"""Columns of JSON: with a Spark schema, and with a JSON Schema in the registry."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from rookery.serdes import JSONSchemaDeserializer, JSONSchemaSerializer, RegistryClient, Schema
from rookery.serdes.errors import SerdesError
from rookery.spark.formats import FormatError, plan_decoder, plan_encoder
from rookery.spark.formats.ddl import parse_type
from tests.spark.formats.registry import SETTINGS, MemoryRegistry, format_options, framed, memory_registry

DDL = """id BIGINT, ok BOOLEAN, price DECIMAL(9,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, data BINARY, f FLOAT,
 tags ARRAY<STRING>, counts MAP<STRING, INT>, `in ner` STRUCT<x: DOUBLE, y: ARRAY<STRUCT<z: SMALLINT>>>"""

WITH_COMMENT = "struct<a:struct<b:map<string,array<decimal(10,0)>>>,c:string>"


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with memory_registry() as running:
        yield running


def binary(*rows: bytes | None) -> Any:
    return pa.array(rows, pa.binary())


def decode(ddl: str, *rows: bytes | None) -> Any:
    decoder = plan_decoder(format_options("json", schema=ddl), topics=[], is_key=False)
    assert plan_decoder(format_options("json", schema=ddl), topics=[], is_key=False).pin() == decoder.pin()
    made = pickle.loads(pickle.dumps(decoder)).decode(binary(*rows), "topic")
    made.values.validate(full=True)
    assert made.values.type == decoder.arrow_type
    return made


def test_all_types_survive_a_round_trip() -> None:
    row = {
        "id": 2**40,
        "ok": True,
        "price": Decimal("12.30"),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 12),
        "data": b"\x00\xff",
        "f": 0.5,
        "tags": ["a", "ä"],
        "counts": [("a", 1), ("b", 2)],
        "in ner": {"x": 1.0, "y": [{"z": 3}, {"z": None}]},
    }
    column = pa.array([row, None], decode(DDL).values.type)
    written = plan_encoder(format_options("json"), parse_type(DDL), topic="t", is_key=False).encode(column, "t")
    assert b'"price":12.30' in written[0].as_py()
    assert decode(DDL, *written.to_pylist()).values.to_pylist() == [row, None]


def test_rows_that_do_not_fit() -> None:
    made = decode(
        "id INT, price DECIMAL(4,2), s STRING",
        b'{"id": 1, "price": 1.5, "other": [1]}',
        b'{"id": "1"}',
        b"{",
        b"null",
        b'{"id": 2147483648}',
        b'{"price": 1.234}',
        b'{"s": "\xff"}',
        b"[" * 100_000,
        b'{"s": "ok"} trailing',
        b"{}",
        None,
        b'{"price": 1e400}',
    )
    assert made.values.to_pylist()[0] == {"id": 1, "price": Decimal("1.50"), "s": None}
    assert [each.row for each in made.errors] == [1, 2, 4, 5, 6, 7, 8, 11]
    assert "$.id" in made.errors[0].message
    assert made.values.to_pylist()[9] == {"id": None, "price": None, "s": None}
    assert made.schema_ids.null_count == len(made.values)


@given(st.lists(st.binary(max_size=30) | st.text(max_size=30).map(lambda each: json.dumps(each).encode()), max_size=5))
def test_any_bytes(rows: list[bytes]) -> None:
    made = decode("s STRING, m MAP<STRING, ARRAY<DECIMAL(5,1)>>", *rows, b'{"s": "x"}')
    assert made.values.to_pylist()[-1] == {"s": "x", "m": None}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a INT", "struct<a:int>"),
        ("array<int>", "array<int>"),
        ("a: struct<b: map<string,array<decimal>>> NOT NULL COMMENT 'it is', c string", WITH_COMMENT),
        ("", "struct<>"),
        ("DECIMAL(5,2)", "decimal(5,2)"),
        ("string STRING, `a ``b` LONG", "struct<string:string,a `b:bigint>"),
        ("x struct<>", "struct<x:struct<>>"),
    ],
)
def test_types_in_ddl(text: str, wanted: str) -> None:
    assert parse_type(text).simpleString() == wanted


@pytest.mark.parametrize("text", ["a", "a WHAT", "a INT,", "a ARRAY<INT", "a DECIMAL(0)", "a INT b", "{}", "a %"])
def test_invalid_ddl(text: str) -> None:
    with pytest.raises(FormatError):
        parse_type(text)


def test_types_in_json() -> None:
    kind = spark.StructType([spark.StructField("a", spark.ArrayType(spark.IntegerType()))])
    assert parse_type(kind.json()) == kind


def test_options_of_json() -> None:
    with pytest.raises(FormatError, match="valueSchema"):
        plan_decoder(format_options("json"), topics=[], is_key=False)
    with pytest.raises(FormatError, match="keys of type int"):
        plan_decoder(format_options("json", schema="m MAP<INT, INT>"), topics=[], is_key=False)
    with pytest.raises(FormatError, match="unknown format xml"):
        plan_decoder(format_options("xml"), topics=[], is_key=False)


ORDER = {
    "type": "object",
    "required": ["id"],
    "definitions": {"tree": {"type": "object", "properties": {"next": {"$ref": "#/definitions/tree"}}}},
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"text": {"type": "string"}}}},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "more": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "kind": {"enum": ["a", "b"]},
        "any": {},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "tree": {"$ref": "#/definitions/tree"},
        "bag": {"type": "object"},
    },
}


def test_types_of_json_schemas(registry: MemoryRegistry) -> None:
    decoder = plan_decoder(format_options("json-schema", schema=json.dumps(ORDER)), topics=[], is_key=False)
    assert decoder.spark_type.simpleString() == (
        "struct<id:bigint,price:double,lines:array<struct<text:string>>,note:string,more:map<string,boolean>,"
        "kind:string,any:string,either:string,tree:struct<next:string>,bag:string>"
    )
    again = plan_decoder(format_options("json-schema"), topics=[], is_key=False, pinned=decoder.pin())
    assert again.spark_type == decoder.spark_type


def test_json_schema_rows(registry: MemoryRegistry) -> None:
    registry.register("orders-value", Schema(json.dumps(ORDER), "JSON"))
    decoder = pickle.loads(pickle.dumps(plan_decoder(format_options("json-schema"), topics=["orders"], is_key=False)))
    row = {"id": 1, "any": [1, {"a": None}], "either": 5, "tree": {"next": {"next": {}}}, "lines": [{"text": "x"}, {}]}
    rows = [framed(1, json.dumps(row).encode()), framed(1, b"{}"), framed(1, b"{"), framed(7, b"{}"), b"x", None]
    made = decoder.decode(binary(*rows), "orders")
    made.values.validate(full=True)
    value = made.values[0].as_py()
    assert json.loads(value["any"]) == [1, {"a": None}]
    assert (value["either"], value["tree"], value["lines"]) == (
        "5",
        {"next": '{"next": {}}'},
        [{"text": "x"}, {"text": None}],
    )
    assert [(each.row, each.error_class) for each in made.errors] == [
        (1, "InvalidDataError"),
        (2, "InvalidDataError"),
        (3, "NotRegisteredError"),
        (4, "WireFormatError"),
    ]
    unchecked = {**SETTINGS, "validate": "false"}
    lax = plan_decoder(format_options("json-schema", registry=unchecked), topics=["orders"], is_key=False)
    assert [each.row for each in lax.decode(binary(*rows), "orders").errors] == [2, 4]


def test_json_schema_columns_are_written(registry: MemoryRegistry) -> None:
    options = format_options("json-schema", schema=json.dumps(ORDER))
    kind = plan_decoder(options, topics=[], is_key=False).spark_type
    encoder = pickle.loads(pickle.dumps(plan_encoder(options, kind, topic="orders", is_key=False)))
    rows = [{"id": 1, "any": "[1]", "more": [("a", True)], "tree": {"next": "{}"}}, None]
    column = pa.array(rows, plan_decoder(options, topics=[], is_key=False).arrow_type)
    written = encoder.encode(column, "orders")
    read = JSONSchemaDeserializer(registry)("orders", written[0].as_py())
    assert read == {"id": 1, "any": [1], "more": {"a": True}, "tree": {"next": {}}}
    assert written[1].as_py() is None
    with pytest.raises(FormatError, match="row 0 does not fit"):
        encoder.encode(pa.array([{"note": "no id"}], column.type), "orders")
    with pytest.raises(FormatError, match="is not JSON"):
        encoder.encode(pa.array([{"id": 1, "any": "["}], column.type), "orders")


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "lines": st.lists(st.fixed_dictionaries({}, optional={"text": st.text(max_size=5)}), max_size=3),
        "note": st.none() | st.text(max_size=5),
        "more": st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2),
    },
)


@given(st.lists(VALUES, max_size=4))
def test_the_same_rows_as_the_deserializer(rows: list[dict[str, Any]]) -> None:
    with memory_registry() as registry:
        registry.register("orders-value", Schema(json.dumps(ORDER), "JSON"))
        read = JSONSchemaDeserializer(registry)
        data = [framed(1, json.dumps(each).encode()) for each in rows]
        made = plan_decoder(format_options("json-schema"), topics=["orders"], is_key=False).decode(
            binary(*data), "orders"
        )
        failed = {each.row for each in made.errors}
        for row, each in enumerate(data):
            try:
                wanted = read("orders", each)
            except SerdesError:
                assert row in failed
                continue
            got = made.values[row].as_py()
            assert row not in failed
            assert got["id"] == wanted["id"]
            assert got["note"] == wanted.get("note")
            assert got["price"] == wanted.get("price")
            assert dict(got["more"] or ()) == wanted.get("more", {})
            assert [each["text"] for each in got["lines"] or ()] == [
                each.get("text") for each in wanted.get("lines", [])
            ]


def test_data_of_a_serializer(registry: RegistryClient) -> None:
    data = JSONSchemaSerializer(registry, json.dumps(ORDER))("orders", {"id": 5, "kind": "a"})
    decoder = plan_decoder(format_options("json-schema"), topics=["orders"], is_key=False)
    assert decoder.decode(binary(data), "orders").values[0].as_py()["kind"] == "a"


def test_unknown_settings(registry: MemoryRegistry) -> None:
    wrong = {**SETTINGS, "valdate": "false"}
    with pytest.raises(FormatError, match=r"did you mean validate\?"):
        plan_decoder(format_options("json-schema", schema="{}", registry=wrong), topics=[], is_key=False)
