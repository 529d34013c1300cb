"""Conversion of records to rows: decoded columns, details, raw bytes, and records that cannot be decoded."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from rookery.dead_letters.standard import Failure, Origin
from rookery.records.columnar import SCHEMA
from rookery.spark.formats import ColumnDecoder, DecodedColumn, RowError
from rookery.spark.formats.columns import arrow_schema_of
from rookery.spark.options import OptionError, ReadOptions, parse_read_options
from rookery.spark.source.row_shape import DecodingError, Shaped, shape
from rookery.spark.source.schema import PIN_KEY, Decoders, check_schema, source_schema


class NumberDecoder(ColumnDecoder):
    """Decodes numbers that are written as text. The schema ids are the lengths of the texts."""

    spark_type = LongType()

    def decode(self, column: Any, topic: str) -> DecodedColumn:
        texts = column.to_pylist()
        values = [int(text) if text is not None and text.isdigit() else None for text in texts]
        errors = [
            RowError(row, "NoNumber", f"{text!r} in {topic}")
            for row, text in enumerate(texts)
            if text is not None and not text.isdigit()
        ]
        lengths = [None if text is None else len(text) for text in texts]
        return DecodedColumn(pa.array(values, pa.int64()), errors, pa.array(lengths, pa.int32()))

    def pin(self) -> str:
        return "number"


def records(*values: bytes | None, headers: list[tuple[str, bytes]] | None = None) -> pa.RecordBatch:
    count = len(values)
    columns = [
        [b"k"] * count,
        values,
        ["t"] * count,
        [3] * count,
        range(10, 10 + count),
        range(1000, 1000 + count),
        [0] * count,
        [headers or []] * count,
    ]
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def options_with(**options: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "valueFormat": "string", **options}
    return parse_read_options(given, streaming=False)


def shaped(batch: pa.RecordBatch, **options: str) -> Shaped:
    parsed, decoders = options_with(**options), Decoders(None, NumberDecoder())
    schema = arrow_schema_of(source_schema(parsed, decoders))
    result = shape(batch, schema, decoders, parsed)
    assert result.rows.schema == schema
    return result


def test_the_decoded_column_replaces_the_bytes() -> None:
    rows = shaped(records(b"7", None)).rows
    assert rows.schema.names[:3] == ["key", "value", "topic"]
    assert rows.column("value").to_pylist() == [7, None]
    assert rows.column("key").to_pylist() == [b"k", b"k"]


def test_a_record_that_cannot_be_decoded_fails_the_query() -> None:
    with pytest.raises(DecodingError) as raised:
        shaped(records(b"7", b"x"))
    text = str(raised.value)
    assert text.startswith("topic t, partition 3, offset 11: the value cannot be decoded: NoNumber: b'x' in t.")
    assert "onError" in text


def test_a_record_that_cannot_be_decoded_is_null() -> None:
    result = shaped(records(b"7", b"x"), onError="null", includeRaw="errors")
    assert result.rows.column("value").to_pylist() == [7, None]
    assert result.rows.column("rawValue").to_pylist() == [None, b"x"]
    assert result.rows.column("rawKey").to_pylist() == [None, b"k"]
    assert result.dead is None
    always = shaped(records(b"7", b"x"), onError="null", includeRaw="always").rows
    assert always.column("rawValue").to_pylist() == [b"7", b"x"]


def test_details_contain_the_error_and_do_not_fail_the_query() -> None:
    rows = shaped(records(b"7", b"x", None), valueDetails="true").rows
    assert rows.column("value").to_pylist() == [
        {"value": 7, "error": None, "schema_id": 1},
        {"value": None, "error": "NoNumber: b'x' in t", "schema_id": 1},
        {"value": None, "error": None, "schema_id": None},
    ]


def test_a_record_that_cannot_be_decoded_is_a_dead_letter() -> None:
    batch = records(b"1", b"x", b"3", b"y", headers=[("__connect.errors.attempt", b"2")])
    result = shaped(batch, onError="dead-letter", pipelineName="nightly")
    assert result.rows.column("value").to_pylist() == [1, 3]
    assert result.rows.column("offset").to_pylist() == [10, 12]
    assert result.dead is not None
    assert result.dead.column("value").to_pylist() == [b"x", b"y"]
    assert result.failures == [
        Failure(Origin("t", 3, 11, 1001), "NoNumber", "b'x' in t", "VALUE_CONVERTER", "nightly", 2),
        Failure(Origin("t", 3, 13, 1003), "NoNumber", "b'y' in t", "VALUE_CONVERTER", "nightly", 2),
    ]


def test_the_pin_is_in_the_metadata_of_the_column() -> None:
    schema = source_schema(options_with(), Decoders(None, NumberDecoder()))
    assert StructType.fromJson(schema.jsonValue())["value"].metadata == {PIN_KEY: "number"}


def test_the_options_determine_the_columns() -> None:
    options = replace(options_with(), value_format=None)
    schema = source_schema(options, Decoders())
    check_schema(schema, schema)
    with pytest.raises(OptionError, match="the columns of a topic are fixed"):
        check_schema(schema, StructType(schema.fields[1:]))


def test_times_out_of_range() -> None:
    """Any producer can send them: the query must not fail."""
    times = pa.array([2**62, 1500, -(2**62)], pa.int64()).cast(SCHEMA.field("timestamp").type)
    batch = records(b"1", b"2", b"3").set_column(SCHEMA.get_field_index("timestamp"), SCHEMA.field("timestamp"), times)
    found = shaped(batch).rows.column("timestamp").cast(pa.int64()).to_pylist()
    assert found == [9_223_372_036_854_775_000, 1_500_000, -9_223_372_036_854_775_000]
