"""Conversion of Avro values to plain JSON and back."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rookery.schemas.avro import parse_registered
from rookery.serdes.avro_json import from_json, to_json
from rookery.serdes.errors import InvalidValueError


def node(schema: Any) -> Any:
    return parse_registered(json.dumps(schema), {}).root


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "value", "plain"),
    [
        ("int", 7, 7),
        ("bytes", b"\x00\xff", "\x00\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "ab"),
        (logical("int", "date"), date(2026, 3, 1), "2026-03-01"),
        (logical("int", "time-millis"), time(12, 30), "12:30:00"),
        (logical("long", "timestamp-millis"), datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
        (logical("long", "local-timestamp-micros"), datetime(2026, 3, 1), "2026-03-01T00:00:00"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("3.50"), "3.50"),
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["null", logical("int", "date")], date(2026, 3, 1), "2026-03-01"),
        ({"type": "array", "items": "bytes"}, [b"a", b"b"], ["a", "b"]),
        ({"type": "map", "values": "bytes"}, {"k": b"a"}, {"k": "a"}),
    ],
)
def test_values_survive_a_round_trip(schema: Any, value: Any, plain: Any) -> None:
    assert to_json(value) == plain
    json.dumps(plain)
    assert from_json(node(schema), plain) == value


def test_values_without_a_json_type_become_text() -> None:
    assert to_json(UUID(int=7)) == "00000000-0000-0000-0000-000000000007"
    assert to_json({"a": [float("nan"), float("inf")]}) == {"a": ["nan", "inf"]}
    assert from_json(node("double"), "inf") == float("inf")


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": each} for key, each in fields.items()]}


def test_a_record_of_a_union_is_named() -> None:
    schema = node([record("Cat", lives="int"), record("Dog", owner="string")])
    assert from_json(schema, {"owner": "Ada"}) == ("Dog", {"owner": "Ada"})
    assert from_json(schema, {"Dog": {"owner": "Ada"}}) == ("Dog", {"owner": "Ada"})


def test_the_branch_names_of_avros_own_json_are_accepted() -> None:
    assert from_json(node(["null", "string"]), {"string": "x"}) == "x"


@pytest.mark.parametrize(
    ("schema", "value", "path", "what"),
    [
        (record("R", a="int"), {"b": 1}, "$", "R has no field b, only a"),
        (
            record("R", a=record("S", b=logical("int", "date"))),
            {"a": {"b": "never"}},
            "$.a.b",
            "'never' is not a valid date",
        ),
        (record("R", a="int"), 5, "$", "expected a record R"),
        (["null", "string"], 5, "$", "expected one of null, string"),
        ("bytes", "\u20ac", "$", "is not a valid bytes"),
        (["null", "boolean"], 1, "$", "expected one of"),
    ],
)
def test_a_mismatch_is_reported_with_its_path(schema: Any, value: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidValueError, match=what) as caught:
        from_json(node(schema), value)
    assert caught.value.path == path
