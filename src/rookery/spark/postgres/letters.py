"""Makes dead letters of rows that a table refuses. Pure.

If a row has its original record in the column ORIGIN, its dead letter is that record, unchanged. Otherwise it is the
row itself, as JSON.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rookery.base.values import value_class
from rookery.dead_letters.standard import TASK_PUT, Failure, Origin, attempt_of
from rookery.spark.dead_letter_columns import dead_letter_table
from rookery.spark.postgres.errors import PostgresError

# A struct: topic, partition, offset, timestamp_ms, key, value, headers.
ORIGIN: Final = "__rookery_origin"
LETTER_SCHEMA: Final = "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string"
# The class of the error that would have been raised.
_ERROR_CLASS: Final = PostgresError.__name__
_JSON: Final = msgspec.json.Encoder(decimal_format="number")


@value_class
class DeadLetters:
    """The destination of dead letters. `options` are those of the sink `rookery`: the servers, the delivery.

    `topic` None: `<topic>.dlq` of each row's original record; the rows must then have the column ORIGIN.
    """

    options: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    pipeline: str | None = None


def make_letters(
    rows: pa.RecordBatch,
    reasons: Sequence[str],
    letters: DeadLetters,
    *,
    origins: pa.StructArray | None,
    json_columns: Collection[str] = (),
) -> pa.Table:
    """Return the dead letters of rows, with the headers of their reasons. `json_columns` hold JSON texts."""
    if origins is None:
        failures = [Failure(None, _ERROR_CLASS, reason, TASK_PUT, letters.pipeline) for reason in reasons]
        columns = {"key": pa.nulls(rows.num_rows, pa.binary()), "value": _as_json(rows, json_columns)}
        return dead_letter_table(pa.record_batch(columns), failures, letters.topic)
    records = pa.RecordBatch.from_struct_array(origins)
    failures = [
        _failure(place, reason, letters.pipeline) for place, reason in zip(_origins(records), reasons, strict=True)
    ]
    return dead_letter_table(records, failures, letters.topic)


def _origins(records: pa.RecordBatch) -> list[dict[str, Any]]:
    names = ["topic", "partition", "offset", "timestamp_ms", "headers"]
    return records.select(names).to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def _failure(place: dict[str, Any], reason: str, pipeline: str | None) -> Failure:
    attempt = attempt_of((header["key"], header["value"]) for header in place["headers"] or ())
    origin = Origin(place["topic"], place["partition"], place["offset"], place["timestamp_ms"])
    return Failure(origin, _ERROR_CLASS, reason, TASK_PUT, pipeline, attempt)


def _as_json(rows: pa.RecordBatch, json_columns: Collection[str]) -> pa.Array:
    names = rows.schema.names
    columns = [
        _embedded(column.to_pylist()) if name in json_columns else _values(column)
        for name, column in zip(names, rows.columns, strict=True)
    ]
    return pa.array(
        [_JSON.encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)], pa.binary()
    )


def _embedded(texts: list[str | None]) -> list[msgspec.Raw | None]:
    return [None if text is None else msgspec.Raw(text.encode()) for text in texts]


def _values(column: pa.Array) -> list[Any]:
    """Return the values for JSON. Times are formatted by Arrow, because Python's end with the year 9999."""
    kind = column.type
    if pa.types.is_list(kind):
        inner = iter(_values(pc.list_flatten(column)))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else list(islice(inner, length)) for length in lengths]
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        texts = column.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return [None if text is None else f"{text.replace(' ', 'T')}{zone}" for text in texts]
    if pa.types.is_date(kind):
        column = column.cast(pa.string())
    return column.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def portions(letters: pa.Table, size_bytes: int) -> Iterator[pa.Table]:
    """Split letters into tables of about `size_bytes`; a single letter may be larger."""
    count = max(letters.num_rows * size_bytes // max(letters.nbytes, 1), 1)
    return (letters.slice(start, count) for start in range(0, letters.num_rows, count))


def to_bytes(letters: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, letters.schema) as stream:
        stream.write_table(letters)
    return buffer.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types


def from_bytes(data: bytes) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as stream:
        return list(stream)
