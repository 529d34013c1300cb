"""Encoders: derived schemas, registration, and columns and values that do not fit a schema."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StructType

from rookery.serdes import AvroDeserializer, Schema
from rookery.spark.formats import FormatError, RegistryDownError, plan_decoder, plan_encoder
from rookery.spark.formats.columns import arrow_type_of
from rookery.spark.formats.ddl import parse_type
from tests.spark.formats.registry import SETTINGS, MemoryRegistry, format_options, memory_registry

DDL = """id BIGINT, b BOOLEAN, tiny TINYINT, n INT, f FLOAT, d DOUBLE, s STRING, raw BINARY, price DECIMAL(20,3),
 day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<STRING>, m MAP<STRING,BIGINT>,
 inner STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>"""
ROW: dict[str, Any] = {
    "id": -(2**63),
    "b": True,
    "tiny": -128,
    "n": 2**31 - 1,
    "f": 0.5,
    "d": -1e300,
    "s": "ä",
    "raw": b"\0\xff",
    "price": Decimal("-12345678901234567.890"),
    "day": date(1969, 12, 31),
    "at": datetime(2024, 2, 29, 12, 0, 0, 7, UTC),
    "local": datetime(1950, 1, 1),
    "tags": ["a", None],
    "m": [("k", 1), ("l", None)],
    "inner": {"x": None, "y": [{"z": 1}, None]},
}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with memory_registry() as running:
        yield running


def column_of(kind: DataType, *rows: Any) -> Any:
    return pa.array(rows, arrow_type_of(kind))


def encode(schema: Any, ddl: str, *rows: Any, **options: Any) -> Any:
    kind = parse_type(ddl)
    given = format_options("avro", schema=None if schema is None else json.dumps(schema), **options)
    return plan_encoder(given, kind, topic="t", is_key=False).encode(column_of(kind, *rows), "t")


def record(**types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": each} for name, each in types.items()]}


def test_values_with_a_derived_schema_survive_a_round_trip(registry: MemoryRegistry) -> None:
    kind = parse_type(DDL)
    encoder = pickle.loads(pickle.dumps(plan_encoder(format_options("avro"), kind, topic="t", is_key=False)))
    nothing: dict[str, Any] = dict.fromkeys(ROW)
    column = column_of(kind, ROW, None, nothing, ROW)
    written = encoder.encode(column, "t")
    decoder = plan_decoder(format_options("avro"), topics=["t"], is_key=False)
    assert decoder.decode(written, "t").values.to_pylist() == [ROW | {"tiny": -128}, None, nothing, ROW]
    assert encoder.encode(column[2:], "t").to_pylist() == written.to_pylist()[2:]
    read = AvroDeserializer(registry)("t", written[0].as_py())
    assert (read["price"], read["m"], read["inner"]["y"]) == (ROW["price"], {"k": 1, "l": None}, [{"z": 1}, None])


def test_columns_can_be_added_to_derived_schemas(registry: MemoryRegistry) -> None:
    """Readers of the first schema can read the second, and vice versa: new columns have a default."""
    first, second = encode(None, "a INT", {"a": 1}), encode(None, "a INT, b STRING", {"a": 1, "b": "x"})
    decoder = plan_decoder(format_options("avro"), topics=["t"], is_key=False)
    rows = pa.concat_arrays([first, second])
    assert decoder.decode(rows, "t").values.to_pylist() == [{"a": 1, "b": None}, {"a": 1, "b": "x"}]


def test_given_schemas(registry: MemoryRegistry) -> None:
    schema = record(
        kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        hash={"type": "fixed", "name": "Hash", "size": 2},
        price={"type": "fixed", "name": "Price", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2},
        at={"type": "long", "logicalType": "timestamp-millis"},
        choice=["string", "null", "long"],
        uid={"type": "string", "logicalType": "uuid"},
        wide="double",
    )
    schema["fields"].append({"name": "more", "type": {"type": "map", "values": ["int", "null"]}, "default": {"a": 1}})
    ddl = """wide FLOAT, kind STRING, hash BINARY, price DECIMAL(9,2), at TIMESTAMP, uid STRING,
        choice STRUCT<member0: STRING, member1: BIGINT>"""
    at = datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)
    row = {
        "kind": "B",
        "hash": b"ab",
        "price": Decimal("-0.01"),
        "at": at,
        "uid": "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
    }
    rows = [
        row | {"choice": {"member0": "x"}, "wide": 0.1},
        row | {"choice": {"member1": 5}, "wide": 0.5},
        row | {"choice": None, "wide": 0.5},
    ]
    written = encode(schema, ddl, *rows)
    read = [AvroDeserializer(registry)("t", each) for each in written.to_pylist()]
    assert [each["choice"] for each in read] == ["x", 5, None]
    assert (read[0]["price"], read[0]["kind"], read[0]["more"]) == (Decimal("-0.01"), "B", {"a": 1})
    assert read[0]["at"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)
    assert read[0]["wide"] == pytest.approx(0.1)
    for wrong, message in (
        ({"kind": "C"}, "not a symbol"),
        ({"hash": b"abc"}, "its size is not that of the schema"),
        ({"uid": "no"}, "not a UUID"),
        ({"at": None}, "null"),
    ):
        with pytest.raises(FormatError, match=message):
            encode(schema, ddl, rows[0], rows[0] | wrong)


@pytest.mark.parametrize(
    ("schema", "ddl", "message"),
    [
        (record(a="int"), "a BIGINT", "cast it"),
        (record(a="int"), "a INT, b INT", "no field b"),
        (record(a="int", b="int"), "a INT", "no default"),
        (record(a=["null", "string"]), "a INT", "union without a branch"),
        (
            record(a={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}),
            "a DECIMAL(5,2)",
            "cast it",
        ),
        (record(a={"type": "map", "values": "int"}), "a MAP<INT,INT>", "cast it"),
        ("string", "a INT", "cast it"),
        ({"type": "what"}, "a INT", "not a schema"),
    ],
)
def test_types_that_do_not_fit(registry: MemoryRegistry, schema: Any, ddl: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        encode(schema, ddl, None)


@pytest.mark.parametrize("ddl", ["`a b` INT", "m MAP<INT, STRING>"])
def test_types_that_avro_lacks(registry: MemoryRegistry, ddl: str) -> None:
    with pytest.raises(FormatError, match=r"\$\."):
        encode(None, ddl, None)


def test_bare_types(registry: MemoryRegistry) -> None:
    for schema, ddl, value in (("long", "BIGINT", 5), ("bytes", "BINARY", b"x"), ("string", "STRING", "x")):
        written = encode(schema, ddl, value, None, subject=f"bare-{schema}")
        assert AvroDeserializer(registry)("t", written[0].as_py()) == value
        assert written[1].as_py() is None


def test_which_schema_is_written(registry: MemoryRegistry) -> None:
    registry.register("known", Schema(json.dumps(record(a="long"))))
    registry.register("known", Schema(json.dumps(record(a=["null", "long"]))))
    assert encode(None, "a BIGINT", {"a": 1}, subject="known", version="1")[0].as_py() == b"\0\0\0\0\1\2"
    latest = {**SETTINGS, "use.latest.version": "true"}
    assert encode(None, "a BIGINT", {"a": 1}, subject="known", registry=latest)[0].as_py() == b"\0\0\0\0\2\2\2"
    assert encode(None, "a BIGINT", {"a": 1}, subject="mine")[0].as_py()[:5] == b"\0\0\0\0\3"
    assert list(registry.subjects) == ["known", "mine"]
    with pytest.raises(FormatError, match="version 7"):
        encode(None, "a BIGINT", {"a": 1}, subject="known", version="7")
    registry.is_down = True
    with pytest.raises(RegistryDownError, match=r"schema\.registry\.url"):
        encode(None, "a BIGINT", {"a": 1})


def test_texts() -> None:
    encoder = plan_encoder(format_options("string"), parse_type("STRING"), topic="t", is_key=False)
    written = encoder.encode(pa.array(["ä", None]), "t")
    assert written.to_pylist() == ["ä".encode(), None]
    with pytest.raises(FormatError, match="cast it"):
        plan_encoder(format_options("string"), LongType(), topic="t", is_key=False)
    decoder = pickle.loads(pickle.dumps(plan_decoder(format_options("string"), topics=[], is_key=False)))
    made = decoder.decode(pa.array([b"\xff", "ä".encode(), None], pa.binary()), "t")
    assert (made.values.to_pylist(), [each.row for each in made.errors]) == ([None, "ä", None], [0])
    assert decoder.decode(written, "t").values.to_pylist() == ["ä", None]


def test_unknown_formats() -> None:
    with pytest.raises(FormatError, match="unknown format xml"):
        plan_encoder(format_options("xml"), StructType(), topic="t", is_key=False)
