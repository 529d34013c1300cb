"""Columns of Protobuf, as Spark's `from_protobuf` returns them by default."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rookery.schemas.protobuf import parse
from rookery.serdes import ProtobufDeserializer, Schema
from rookery.serdes.errors import SerdesError
from rookery.serdes.wire import encode_indexes
from rookery.spark.formats import FormatError, plan_decoder, plan_encoder
from tests.spark.formats.registry import MemoryRegistry, format_options, framed, memory_registry

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

message Other { string text = 1; }

message Order {
  enum State { UNKNOWN = 0; OPEN = 1; SENT = 2; }
  message Line { string text = 1; uint32 count = 2; }
  int64 id = 1;
  uint64 large = 2;
  double price = 3;
  bool ok = 4;
  bytes data = 5;
  State state = 6;
  optional int32 rank = 7;
  repeated Line lines = 8;
  repeated State states = 9;
  map<string, Line> by_name = 10;
  map<int32, string> by_number = 11;
  google.protobuf.Timestamp at = 12;
  google.protobuf.Duration took = 13;
  google.protobuf.StringValue note = 14;
  oneof way { string mail = 15; Line line = 16; }
  float ratio = 17;
}
"""
ORDER = parse(PROTO).message_class("shop.Order")
TYPE = (
    "struct<id:bigint,large:bigint,price:double,ok:boolean,data:binary,state:string,rank:int,"
    "lines:array<struct<text:string,count:int>>,states:array<string>,by_name:map<string,struct<text:string,count:int>>,"
    "by_number:map<int,string>,at:timestamp,took:interval day to second,note:struct<value:string>,mail:string,"
    "line:struct<text:string,count:int>,ratio:float>"
)
SECOND_MESSAGE = encode_indexes((1,))


@pytest.fixture(scope="module")
def registry() -> Iterator[MemoryRegistry]:
    with memory_registry() as running:
        running.register("orders-value", Schema(PROTO, "PROTOBUF"))
        yield running


def row_of(message: Any) -> bytes:
    return framed(1, SECOND_MESSAGE + message.SerializeToString())


def decoder() -> Any:
    return plan_decoder(format_options("protobuf", message="Order"), topics=["orders"], is_key=False)


def full_order() -> Any:
    order = ORDER(id=7, large=2**64 - 1, price=0.5, ok=True, data=b"\xff", state=2, rank=0, mail="a@b", ratio=0.25)
    order.lines.add(text="x", count=2**32 - 1)
    order.lines.add()
    order.states.extend([0, 1, 9])
    order.by_name["k"].text = "v"
    order.by_number[-5] = "five"
    order.at.FromDatetime(datetime(2024, 2, 29, 12, 0, 0, 5, UTC))
    order.took.FromTimedelta(timedelta(microseconds=-1_500_000))
    order.note.value = ""
    return order


FULL = {
    "id": 7,
    "large": -1,
    "price": 0.5,
    "ok": True,
    "data": b"\xff",
    "state": "SENT",
    "rank": 0,
    "lines": [{"text": "x", "count": -1}, {"text": None, "count": None}],
    "states": ["UNKNOWN", "OPEN", "UNKNOWN_ENUM_VALUE_State_9"],
    "by_name": [("k", {"text": "v", "count": None})],
    "by_number": [(-5, "five")],
    "at": datetime(2024, 2, 29, 12, 0, 0, 5, UTC),
    "took": timedelta(microseconds=-1_500_000),
    "note": {"value": None},
    "mail": "a@b",
    "line": None,
    "ratio": 0.25,
}


def test_types_and_values(registry: MemoryRegistry) -> None:
    made = decoder()
    assert made.spark_type.simpleString() == TYPE
    rows = pa.array([row_of(full_order()), None, row_of(ORDER())], pa.binary())
    for each in (made, pickle.loads(pickle.dumps(made))):
        decoded = each.decode(rows, "orders")
        decoded.values.validate(full=True)
        assert decoded.values.type == made.arrow_type
        assert decoded.values[0].as_py() == FULL
        assert not decoded.errors
        assert decoded.values[1].as_py() is None
        empty = decoded.values[2].as_py()
        assert {name for name, value in empty.items() if value is not None} == {
            "lines",
            "states",
            "by_name",
            "by_number",
        }


def test_rows_that_are_not_the_readers_message(registry: MemoryRegistry) -> None:
    good = row_of(ORDER(id=1))
    rows = [
        good,
        framed(1, b"\0"),
        framed(1, b"\2\x10"),
        framed(1, b"\xff"),
        framed(1, SECOND_MESSAGE + b"\x08"),
        b"",
        good,
    ]
    made = decoder().decode(pa.array(rows, pa.binary()), "orders")
    assert [(each.row, each.error_class) for each in made.errors] == [
        (1, "InvalidDataError"),
        (2, "InvalidDataError"),
        (3, "WireFormatError"),
        (4, "InvalidDataError"),
        (5, "WireFormatError"),
    ]
    assert "shop.Other" in made.errors[0].message
    assert made.values[0] == made.values[6]


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_the_same_rows_as_the_deserializer(registry: MemoryRegistry, payloads: list[bytes]) -> None:
    rows = [framed(1, SECOND_MESSAGE + each) for each in payloads]
    made = decoder().decode(pa.array(rows, pa.binary()), "orders")
    made.values.validate(full=True)
    failed, read = {each.row for each in made.errors}, ProtobufDeserializer(registry)
    for row, each in enumerate(rows):
        try:
            wanted = read("orders", each)
        except SerdesError:
            assert row in failed
            continue
        if row not in failed:
            value = made.values[row].as_py()
            assert (value["id"] or 0, value["mail"] or "") == (wanted.id, wanted.mail)
            assert len(value["lines"]) == len(wanted.lines)


def test_columns_are_written(registry: MemoryRegistry) -> None:
    made = decoder()
    column = pa.array([FULL | {"states": ["OPEN"]}, None], made.arrow_type)
    options = format_options("protobuf", schema=PROTO, message="shop.Order")
    encoder = pickle.loads(pickle.dumps(plan_encoder(options, made.spark_type, topic="orders", is_key=False)))
    written = encoder.encode(column, "orders")
    order = full_order()
    del order.states[:]
    order.states.append(1)
    read = ProtobufDeserializer(registry)("orders", written[0].as_py())
    assert str(read) == str(order)
    assert made.decode(written, "orders").values.to_pylist() == column.to_pylist()
    with pytest.raises(FormatError, match="row 0 cannot be encoded as the message"):
        encoder.encode(pa.array([{"state": "LOST"}], column.type), "orders")


def test_invalid_options_and_types(registry: MemoryRegistry) -> None:
    options = format_options("protobuf", schema='syntax = "proto3"; message M { M next = 1; }')
    with pytest.raises(FormatError, match="contains itself"):
        plan_decoder(options, topics=[], is_key=False)
    with pytest.raises(FormatError, match="no message Missing"):
        plan_decoder(format_options("protobuf", message="Missing"), topics=["orders"], is_key=False)
    for kind, message in ((StructType([StructField("id", StringType())]), "cast it"), (LongType(), "cast it")):
        with pytest.raises(FormatError, match=message):
            plan_encoder(format_options("protobuf", schema=PROTO, message="Order"), kind, topic="o", is_key=False)
    wrong = StructType([StructField("idd", LongType())])
    with pytest.raises(FormatError, match="no such field"):
        plan_encoder(format_options("protobuf", schema=PROTO, message="Order"), wrong, topic="o", is_key=False)
