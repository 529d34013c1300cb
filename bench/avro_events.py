"""Events in Avro with Confluent's framing: eight plain fields, about 60 bytes."""

import io
import json
from typing import Any

import fastavro

SUBJECT = "events-value"
DISTINCT = 1000
_FIELDS = {
    "number": "long",
    "user": "string",
    "page": "string",
    "country": "string",
    "duration_ms": "int",
    "price": "double",
    "is_member": "boolean",
    "at_ms": "long",
}
_PARSED: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "bench",
    "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()],
}
SCHEMA = json.dumps(_PARSED)
_MAGIC = b"\x00"


def framed(schema_id: int) -> list[bytes]:
    """Return the values of records, numbered from 0."""
    schema = fastavro.parse_schema(_PARSED)
    return [_MAGIC + schema_id.to_bytes(4) + _encode(schema, number) for number in range(DISTINCT)]


def _encode(schema: Any, number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, _event(number))
    return stream.getvalue()


def _event(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "user": f"user-{number * 7919 % 10_000:05}",
        "page": f"/products/{number % 97}/view",
        "country": ("CZ", "DE", "FR", "NL")[number % 4],
        "duration_ms": number * 31 % 60_000,
        "price": number / 7,
        "is_member": number % 3 == 0,
        "at_ms": 1_700_000_000_000 + number,
    }
