"""Rows that a table refuses, as dead letters."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rookery.dead_letters.standard import ATTEMPT, Failure, Origin, original_headers, read_failure
from rookery.spark.postgres.letters import DeadLetters, from_bytes, make_letters, portions, to_bytes

TO = DeadLetters({}, None, "shop")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def pairs(letter: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in letter["headers"])


def test_the_letter_of_a_record_is_the_record() -> None:
    places = {"topic": "orders", "partition": 1, "offset": 7, "timestamp_ms": 5, "key": None, "value": b"\xff\0"}
    headers = [{"key": "own", "value": None}, {"key": ATTEMPT, "value": b"2"}]
    records = [{**places, "headers": headers}, {**places, "offset": 8, "key": b"k", "headers": None}]
    kinds = [pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary(), HEADERS]
    origins = pa.array(records, pa.struct(list(zip(records[0], kinds, strict=True))))
    rows = pa.record_batch({"id": [1, 2]})
    first, second = make_letters(rows, ["why", "because"], TO, origins=origins).to_pylist()
    assert (first["key"], first["value"], first["topic"]) == (None, b"\xff\0", "orders.dlq")
    assert (second["key"], second["value"], second["topic"]) == (b"k", b"\xff\0", "orders.dlq")
    assert original_headers(pairs(first)) == (("own", None),)
    assert [read_failure(pairs(letter)) for letter in (first, second)] == [
        Failure(Origin("orders", 1, 7, 5), "PostgresError", "why", "TASK_PUT", "shop", 2),
        Failure(Origin("orders", 1, 8, 5), "PostgresError", "because", "TASK_PUT", "shop"),
    ]


def test_the_letter_of_any_other_row_is_json() -> None:
    """This includes times that Python lacks."""
    late = pa.array([0, 2**62, None], pa.int64())
    times = late.cast(pa.timestamp("us", tz="Europe/Berlin"))
    days = pa.array([0, -2_440_589, None], pa.int32()).cast(pa.date32())
    rows = pa.record_batch(
        {
            "at": times,
            "local": late.cast(pa.timestamp("us")),
            "many": pa.ListArray.from_arrays(pa.array([0, 1, None, 3], pa.int32()), times),
            "day": days,
            "price": pa.array([Decimal("1.50"), None, None]),
            "raw": pa.array([b"\xff", None, None]),
            "place": pa.array(['{"city":"Bonn"}', None, "[1]"]),
            "name": pa.array(["\0", "x", None]),
        }
    )
    letters = make_letters(rows, ["why"] * 3, replace(TO, topic="lost"), origins=None, json_columns=["place"])
    values = [json.loads(value) for value in letters.column("value").to_pylist()]
    assert values[0] == {
        "at": "1970-01-01T00:00:00.000000Z",
        "local": "1970-01-01T00:00:00.000000",
        "many": ["1970-01-01T00:00:00.000000Z"],
        "day": "1970-01-01",
        "price": 1.5,
        "raw": "/w==",
        "place": {"city": "Bonn"},
        "name": "\0",
    }
    assert (values[1]["place"], values[2]["place"]) == (None, [1])
    assert (values[1]["many"], values[2]["many"]) == ([values[1]["at"], None], None)
    assert values[1]["day"] == "-4713-11-23"
    letter = letters.to_pylist()[0]
    assert (letter["key"], letter["topic"]) == (None, "lost")
    assert read_failure(pairs(letter)) == Failure(None, "PostgresError", "why", "TASK_PUT", "shop")


def test_letters_are_split_into_portions() -> None:
    letters = pa.table({"value": pa.array([b"x" * 100] * 10)})
    parts = list(portions(letters, 300))
    assert len(parts) > 3
    assert all(part.num_rows <= 3 for part in parts)
    assert pa.concat_tables([pa.Table.from_batches(from_bytes(to_bytes(part))) for part in parts]) == letters
    assert [part.num_rows for part in portions(letters, 1)] == [1] * 10
    assert list(portions(letters.slice(0, 0), 300)) == []
