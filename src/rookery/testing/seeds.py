"""Parser of the files that seed topics: JSON Lines in the format of `rookery consume --json`. Pure."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

_FIELDS = ("key", "key_base64", "value", "value_base64")


class Seed(NamedTuple):
    topic: str | None
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


def parse_seeds(text: str, source: str) -> Iterator[Seed]:
    """Yield the record of each line. Raises ValueError, which names `source` and the line, for an invalid one."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield _parse(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(
                    f"{source}:{number}: {error}; expected one record as rookery consume --json prints it, such as "
                    '{"key": "k", "value": "v"}'
                ) from None


def _parse(record: dict[str, Any]) -> Seed:
    if not isinstance(record, dict) or not any(name in record for name in _FIELDS):
        raise ValueError("the record has neither a key nor a value")
    return Seed(
        topic=record.get("topic"),
        key=_field(record, "key"),
        value=_field(record, "value"),
        headers=tuple((header["name"], _bytes(_field(header, "value"))) for header in record.get("headers", ())),
        partition=record.get("partition"),
        timestamp_ms=record.get("timestamp_ms"),
    )


def _field(record: dict[str, Any], name: str) -> Any:
    encoded = record.get(f"{name}_base64")
    return record.get(name) if encoded is None else b64decode(encoded, validate=True)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
