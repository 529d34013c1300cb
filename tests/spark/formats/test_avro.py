"""Columns of Avro: frames, ids, pins, types, and hostile rows. test_avro_differential.py has the decoding of values."""

import json
import os
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from rookery.base.clock import ManualClock
from rookery.records.batch_writer import encode_varint
from rookery.schemas.interface import Reference
from rookery.serdes import Schema
from rookery.serdes.errors import RegistryRequestError
from rookery.spark.formats import FormatError, RegistryDownError, plan_decoder, registries
from rookery.spark.formats.avro import arrays
from rookery.spark.formats.avro.decoder import AvroDecoder, parse_root
from rookery.spark.formats.avro.shapes import Shapes
from rookery.spark.formats.registries import WriterSchemas, registry_of
from tests.spark.formats.registry import SETTINGS, MemoryRegistry, format_options, framed, memory_registry

ITEM = json.dumps({"type": "record", "name": "Item", "fields": [{"name": "id", "type": "long"}]})
NEW_ITEM = json.dumps(
    {
        "type": "record",
        "name": "Item",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}],
    }
)


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with memory_registry() as running:
        yield running


def binary(*rows: bytes | None) -> Any:
    return pa.array(rows, pa.binary())


def record(*types: Any) -> str:
    fields = [{"name": f"f{index}", "type": each} for index, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "Record", "fields": fields})


def test_nulls_and_frames(registry: MemoryRegistry) -> None:
    schema_id = registry.add(ITEM)
    rows = binary(None, b"", b"\0\0\0", b"\1\0\0\0\1\2", framed(schema_id, b"\x0e"), b"\0\xff\0\0\0\2")
    made = AvroDecoder(ITEM, None, SETTINGS).decode(rows, "topic")
    assert made.values.to_pylist() == [None, None, None, None, {"id": 7}, None]
    assert [(each.row, each.error_class) for each in made.errors] == [(row, "WireFormatError") for row in (1, 2, 3, 5)]
    assert made.schema_ids.to_pylist() == [None, None, None, None, schema_id, None]


@pytest.mark.parametrize("rows", [[], [None], [None, None]])
def test_nothing_to_decode(registry: MemoryRegistry, rows: list[None]) -> None:
    made = AvroDecoder(ITEM, None, SETTINGS).decode(binary(*rows), "topic")
    assert made.values.to_pylist() == rows
    assert made.values.type == pa.struct([("id", pa.int64())])
    assert not made.errors


def test_slices_and_large_columns(registry: MemoryRegistry) -> None:
    schema_id = registry.add(ITEM)
    rows = [framed(schema_id, encode_varint(number)) for number in range(10)]
    decoder = AvroDecoder(ITEM, None, SETTINGS)
    wanted = [{"id": number} for number in range(3, 8)]
    assert decoder.decode(binary(*rows)[3:8], "topic").values.to_pylist() == wanted
    assert decoder.decode(pa.array(rows, pa.large_binary())[3:8], "topic").values.to_pylist() == wanted


def test_each_id_is_requested_once(registry: MemoryRegistry) -> None:
    """A new id is requested when it appears; an unknown one is an error of its rows."""
    old = registry.add(ITEM)
    decoder = AvroDecoder(NEW_ITEM, None, SETTINGS)
    assert decoder.decode(binary(framed(old, b"\2"), framed(old, b"\4")), "topic").errors == []
    new = registry.add(NEW_ITEM)
    rows = binary(framed(old, b"\2"), framed(new, b"\4\4hi"), framed(99, b"\2"), framed(99, b"\2"))
    for _ in range(2):
        made = decoder.decode(rows, "topic")
        assert made.values.to_pylist() == [{"id": 1, "note": "none"}, {"id": 2, "note": "hi"}, None, None]
        assert [(each.row, each.error_class) for each in made.errors] == [
            (2, "NotRegisteredError"),
            (3, "NotRegisteredError"),
        ]
    assert sorted(registry.requested) == [old, new, 99]


def test_unknown_ids_are_requested_again_later(registry: MemoryRegistry) -> None:
    clock = ManualClock()
    writers = WriterSchemas(lambda: registry, "AVRO", lambda schema: schema.text, clock)
    assert type(writers.find(1)).__name__ == "NotRegisteredError"
    registry.add(ITEM)
    assert type(writers.find(1)).__name__ == "NotRegisteredError"
    clock.advance(60_000)
    assert writers.find(1) == ITEM


def test_data_with_any_number_of_ids(registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of requests is limited; the most frequent ids are requested first."""
    monkeypatch.setattr(registries, "_UNKNOWN_MAX", 20)
    real = registry.add(ITEM)
    rows = [framed(2 + number, b"\2") for number in range(500)] + [framed(real, b"\2")] * 2
    decoder = AvroDecoder(ITEM, None, SETTINGS)
    for _ in range(2):
        made = decoder.decode(binary(*rows), "topic")
        assert [each.row for each in made.errors] == list(range(500))
        assert made.values[500].as_py() == {"id": 1}
    assert "was not requested" in made.errors[-1].message
    assert len(registry.requested) == 21


def test_the_limit_of_unknown_ids_is_reset(registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "_UNKNOWN_MAX", 20)
    clock = ManualClock()
    writers = WriterSchemas(lambda: registry, "AVRO", lambda schema: schema.text, clock)
    for _ in range(3):
        for schema_id in range(100, 130):
            assert type(writers.find(schema_id)).__name__ == "NotRegisteredError"
        clock.advance(10_000)
    assert registry.requested == [*range(100, 120)] * 3
    registry.add(ITEM)
    assert writers.find(1) == ITEM


def test_a_reference_that_was_deleted_is_an_error_of_its_rows(registry: MemoryRegistry) -> None:
    registry.add(ITEM)
    registry.schemas.append(Schema(ITEM, "AVRO", (Reference("Other", "others", 1),)))
    gone = RegistryRequestError(404, 40402, "Version 1 not found.")
    with mock.patch.object(registry, "resolve", side_effect=gone):
        made = AvroDecoder(ITEM, None, SETTINGS).decode(binary(framed(2, b"\2"), framed(1, b"\2")), "topic")
    assert [(each.row, each.error_class) for each in made.errors] == [(0, "NotRegisteredError")]
    assert "refers to one that the registry does not have: Version 1 not found" in made.errors[0].message


def test_a_forked_process_has_its_own_registry_client(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = registry_of(SETTINGS)
    assert registry_of(SETTINGS) is ours
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert registry_of(SETTINGS) is not ours


def test_schemas_that_cannot_be_used(registry: MemoryRegistry) -> None:
    """A schema that cannot be used is an error of its rows."""
    registry.add("{}", "JSON")
    registry.add('{"type": "nothing"}')
    made = AvroDecoder(ITEM, None, SETTINGS).decode(binary(framed(1, b"\2"), framed(2, b"\2")), "topic")
    assert [each.error_class for each in made.errors] == ["InvalidDataError", "InvalidDataError"]
    assert "JSON, not AVRO" in made.errors[0].message


def test_a_registry_that_is_down_fails_the_query(registry: MemoryRegistry) -> None:
    registry.is_down = True
    with pytest.raises(RegistryDownError, match=r"schema\.registry\.url"):
        AvroDecoder(ITEM, None, SETTINGS).decode(binary(framed(1, b"\2")), "topic")
    with pytest.raises(RegistryDownError, match=r"schema\.registry\.url"):
        plan_decoder(format_options("avro"), topics=["items"], is_key=False)


def test_a_pin_keeps_the_schema(registry: MemoryRegistry) -> None:
    registry.register("items-value", Schema(ITEM))
    first = plan_decoder(format_options("avro"), topics=["items"], is_key=False)
    registry.register("items-value", Schema(NEW_ITEM))
    later = plan_decoder(format_options("avro"), topics=["items"], is_key=False, pinned=first.pin())
    assert later.spark_type == first.spark_type == spark.StructType([spark.StructField("id", spark.LongType())])
    fresh = plan_decoder(format_options("avro"), topics=["items"], is_key=False)
    assert isinstance(fresh.spark_type, spark.StructType)
    assert fresh.spark_type.names == ["id", "note"]
    by_version = plan_decoder(format_options("avro", version="1"), topics=["items"], is_key=False)
    assert by_version.spark_type == first.spark_type
    copy = pickle.loads(pickle.dumps(later))
    assert copy.decode(binary(framed(1, b"\2")), "items").values.to_pylist() == [{"id": 1}]


def test_which_schema_is_read(registry: MemoryRegistry) -> None:
    registry.register("a-key", Schema(ITEM))
    registry.register("b-key", Schema(NEW_ITEM))
    with pytest.raises(FormatError, match="keySubject or keySchema"):
        plan_decoder(format_options("avro"), topics=["a", "b"], is_key=True)
    chosen = plan_decoder(format_options("avro", subject="b-key"), topics=["a", "b"], is_key=True)
    assert chosen.spark_type.simpleString() == "struct<id:bigint,note:string>"
    given = plan_decoder(format_options("avro", schema="long"), topics=["a", "b"], is_key=True)
    assert given.spark_type == spark.LongType()
    with pytest.raises(FormatError, match="c-key"):
        plan_decoder(format_options("avro"), topics=["c"], is_key=True)
    with pytest.raises(FormatError, match=r"schema\.registry\.url"):
        plan_decoder(format_options("avro", registry={}), topics=["a"], is_key=True)
    with pytest.raises(FormatError, match="not a schema of Avro"):
        plan_decoder(format_options("avro", schema="{"), topics=["a"], is_key=True)


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (["null", "int"], "int"),
        (["int", "long"], "bigint"),
        (["null", "float", "double"], "double"),
        (["string", "null", "int"], "struct<member0:string,member1:int>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "binary"),
        ({"type": "map", "values": ["null", "long"]}, "map<string,bigint>"),
        ({"type": "array", "items": "bytes"}, "array<binary>"),
        ("null", "void"),
    ],
)
def test_types(schema: Any, wanted: str) -> None:
    root = parse_root(None, Schema(record(schema)))
    assert Shapes(root).spark_type.simpleString() == f"struct<f0:{wanted}>"


def test_unions_of_numbers(registry: MemoryRegistry) -> None:
    """The branch of the same type is used: a time is not promoted to the double before it."""
    time = {"type": "long", "logicalType": "timestamp-micros"}
    schema = record(["int", "long"], ["double", time, "string"], ["null", "float", "double"])
    schema_id = registry.add(schema)
    doubles = b"\0" * 6 + b"\xf0\x3f"
    rows = binary(
        framed(schema_id, b"\0\2" + b"\2\2" + b"\0"),
        framed(schema_id, b"\2" + encode_varint(2**40) + b"\0" + doubles + b"\4" + doubles),
        framed(schema_id, b"\0\2" + b"\4\2x" + b"\2\0\0\x80\x3f"),
    )
    made = AvroDecoder(schema, None, SETTINGS).decode(rows, "topic")
    assert not made.errors
    at = datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert [tuple(each.values()) for each in made.values.to_pylist()] == [
        (1, {"member0": None, "member1": at, "member2": None}, None),
        (2**40, {"member0": 1.0, "member1": None, "member2": None}, 1.0),
        (1, {"member0": None, "member1": None, "member2": "x"}, 1.0),
    ]


def test_unsupported_types() -> None:
    with pytest.raises(FormatError, match=r"contains itself \(at \.f0\)"):
        AvroDecoder(record(["null", "Record"]), None, SETTINGS)
    with pytest.raises(FormatError, match="39 digits"):
        AvroDecoder(record({"type": "bytes", "logicalType": "decimal", "precision": 39}), None, SETTINGS)
    many: Any = "int"
    for level in range(13):
        fields = [{"name": name, "type": many if name == "a" else f"R{level - 1}" if level else "int"} for name in "ab"]
        many = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(FormatError, match="too many"):
        AvroDecoder(json.dumps(many), None, SETTINGS)


NESTED = record({"type": "array", "items": {"type": "map", "values": "string"}}, ["null", "long"])


@pytest.mark.parametrize(
    ("writer", "payload", "message"),
    [
        (record("string"), encode_varint(2**62), "size"),
        (record("string"), encode_varint(-5) + b"abc", "size"),
        (record("string"), b"\4\xff\xfe", "UTF-8"),
        (record("string"), b"\6\xed\xa0\x80", "UTF-8"),
        (record("double"), b"\0" * 7, "truncated"),
        (record("long"), b"\xff" * 20, "truncated"),
        (record("int"), encode_varint(2**31), "out of range"),
        (record(["null", "int"]), b"\4", "branch"),
        (record({"type": "enum", "name": "E", "symbols": ["A"]}), b"\2", "symbol"),
        (record({"type": "array", "items": "null"}), encode_varint(2**60), "more values"),
        (record({"type": "array", "items": "long"}), encode_varint(2**60), "truncated"),
        (record({"type": "array", "items": "long"}), encode_varint(-(2**63)), "truncated"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 2}), b"\4\x7f\x7f", "digits"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 38}), b"\x22" + b"\x7f" * 17, "digits"),
        (record({"type": "long", "logicalType": "timestamp-millis"}), encode_varint(2**62), "out of range"),
    ],
)
def test_hostile_rows(registry: MemoryRegistry, writer: str, payload: bytes, message: str) -> None:
    schema_id = registry.add(writer)
    made = AvroDecoder(writer, None, SETTINGS).decode(binary(framed(schema_id, payload)), "topic")
    assert made.values.to_pylist() == [None]
    assert message in made.errors[0].message


WIDE = {"type": "record", "name": "Wide", "fields": [{"name": f"f{index}", "type": "int"} for index in range(50)]}


@pytest.mark.parametrize(
    ("items", "item", "fair", "hostile"),
    [
        (["null", WIDE], b"\0", 20, 100_000),
        ({"type": "record", "name": "Empty", "fields": []}, b"", 200, 10_000),
        ("null", b"", 300, 10_000),
    ],
)
def test_the_values_of_a_row_are_bounded_by_its_size(
    registry: MemoryRegistry, items: Any, item: bytes, fair: int, hostile: int
) -> None:
    schema = record({"type": "array", "items": items})
    schema_id = registry.add(schema)
    rows = [framed(schema_id, encode_varint(count) + item * count + b"\0") for count in (fair, hostile, fair)]
    made = AvroDecoder(schema, None, SETTINGS).decode(binary(*rows), "topic")
    assert [None if each is None else len(each["f0"]) for each in made.values.to_pylist()] == [fair, None, fair]
    assert "far more values than bytes" in made.errors[0].message


def test_defaults_count_for_the_budget(registry: MemoryRegistry) -> None:
    item: Any = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "int"}]}
    schema_id = registry.add(record({"type": "array", "items": item}))
    text = {"name": "text", "type": "string", "default": "x" * 10_000}
    reader = record({"type": "array", "items": item | {"fields": [*item["fields"], text]}})
    rows = [framed(schema_id, encode_varint(count) + b"\2" * count + b"\0") for count in (2, 1000)]
    made = AvroDecoder(reader, None, SETTINGS).decode(binary(*rows), "topic")
    assert [each.row for each in made.errors] == [1]
    assert made.values[0].as_py() == {"f0": [{"id": 1, "text": "x" * 10_000}] * 2}


@pytest.mark.parametrize(("leaf", "is_fair"), [("null", True), (["null", "int"], False)])
def test_records_that_multiply_are_skipped_quickly(registry: MemoryRegistry, leaf: Any, is_fair: bool) -> None:
    """Forty levels of two fields are 10^12 values: none of them takes a byte, or the data ends soon."""
    many: Any = leaf
    for level in range(40):
        below = many if level == 0 else f"R{level - 1}"
        many = {
            "type": "record",
            "name": f"R{level}",
            "fields": [{"name": "a", "type": many}, {"name": "b", "type": below}],
        }
    schema_id = registry.add(record(many, "int"))
    reader = json.dumps({"type": "record", "name": "Record", "fields": [{"name": "f1", "type": "int"}]})
    made = AvroDecoder(reader, None, SETTINGS).decode(binary(framed(schema_id, b"\4")), "topic")
    assert made.values.to_pylist() == [{"f1": 2} if is_fair else None]


def test_long_batches_are_decoded_in_runs(registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    schema_id = registry.add(NESTED)
    entry = b"\2" + encode_varint(3) + b"key" + encode_varint(5) + b"x" * 5 + b"\0"
    rows = [
        framed(schema_id, encode_varint(count) + entry * count + (b"\0" if count else b"") + b"\2\2")
        for count in (*range(20), 300, 0, 1)
    ]
    rows[7:7] = [b"no Avro", rows[3][:-3]]
    whole = AvroDecoder(NESTED, None, SETTINGS).decode(binary(*rows), "topic")
    monkeypatch.setattr(arrays, "_STEPS_MAX", 100)
    parts = AvroDecoder(NESTED, None, SETTINGS).decode(binary(*rows), "topic")
    parts.values.validate(full=True)
    assert parts.values.equals(whole.values)
    assert parts.errors == whole.errors
    assert [each.row for each in parts.errors] == [7, 8]


def test_recursive_records_are_skipped(registry: MemoryRegistry) -> None:
    """Only a writer's schema may be recursive; the depth of the data is limited."""
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "next", "type": ["null", "Tree"]}]}
    schema_id = registry.add(record("int", tree, "int"))
    reader = json.dumps(json.loads(record("int", tree, "int")) | {"fields": [{"name": "f2", "type": "int"}]})
    rows = binary(framed(schema_id, b"\2" + b"\2" * 100 + b"\0\4"), framed(schema_id, b"\2" * 5000))
    made = AvroDecoder(reader, None, SETTINGS).decode(rows, "topic")
    assert made.values.to_pylist() == [{"f2": 2}, None]
    assert "too deeply" in made.errors[0].message


def test_buffers_grow(registry: MemoryRegistry) -> None:
    """The first batch needs much smaller buffers than the second."""
    schema_id = registry.add(NESTED)
    small = framed(schema_id, b"\0\0")
    entry = b"\2" + encode_varint(3) + b"key" + encode_varint(2000) + b"x" * 2000 + b"\0"
    large = framed(schema_id, encode_varint(50) + entry * 50 + b"\0\2\x02")
    decoder = AvroDecoder(NESTED, None, SETTINGS)
    assert decoder.decode(binary(small, small), "topic").values.to_pylist() == [{"f0": [], "f1": None}] * 2
    for _ in range(2):
        made = decoder.decode(binary(large, small, large[:-3], large), "topic")
        made.values.validate(full=True)
        assert [each.row for each in made.errors] == [2]
        assert made.values[0].as_py() == made.values[3].as_py() == {"f0": [[("key", "x" * 2000)]] * 50, "f1": 1}
