"""Converts records in the client's columns to rows of the source's schema: casts, decodes, removes failed rows. Pure.

Python code runs per row only for rows that cannot be decoded. For such a row the query fails (`fail`), the column is
null (`null`), or the row is removed and goes to the dead-letter topic (`dead-letter`). With details, the column itself
holds the error, so that `fail` does not fail the query.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rookery.dead_letters.standard import KEY_CONVERTER, VALUE_CONVERTER, Failure, Origin, attempt_of
from rookery.spark.options import FormatOptions, ReadOptions
from rookery.spark.query_error import QueryError
from rookery.spark.source.schema import Decoders

if TYPE_CHECKING:
    from rookery.spark.formats import ColumnDecoder, RowError

# The largest time whose microseconds fit 64 bits.
_TIME_MS_MAX: Final = (2**63 - 1) // 1000
_STAGES: Final = {"key": KEY_CONVERTER, "value": VALUE_CONVERTER}


class DecodingError(QueryError):
    """A record cannot be decoded, and onError is fail."""

    is_lasting = True


class Shaped(NamedTuple):
    rows: pa.RecordBatch
    # Records that were removed from the rows, as the client returned them, and the failure of each.
    dead: pa.RecordBatch | None = None
    failures: Sequence[Failure] = ()


class _Column(NamedTuple):
    values: pa.Array
    errors: "Sequence[RowError]" = ()


class _Error(NamedTuple):
    stage: str
    error_class: str
    message: str


def shape(records: pa.RecordBatch, schema: pa.Schema, decoders: Decoders, options: ReadOptions) -> Shaped:
    """Convert `records`, which must be of one topic and not empty."""
    key = _decode(records, "key", decoders.key, options.key_format)
    value = _decode(records, "value", decoders.value, options.value_format)
    errors = _by_row({"key": key, "value": value})
    columns = {"key": key.values, "value": value.values}
    if options.include_raw != "never":
        shown = None if options.include_raw == "always" else _mask(errors, records.num_rows)
        columns |= {"rawKey": _raw(records.column("key"), shown), "rawValue": _raw(records.column("value"), shown)}
    rows = _batch(records, columns, schema)
    if not errors or options.on_error != "dead-letter":
        return Shaped(rows)
    is_dead = _mask(errors, records.num_rows)
    dead = records.filter(is_dead)
    return Shaped(rows.filter(pc.invert(is_dead)), dead, _failures(dead, errors, options.pipeline))


def _batch(records: pa.RecordBatch, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the schema. Columns that are not in `columns` come from the records.

    A cast to the same type costs nothing.
    """
    found = [columns[name] if name in columns else records.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(
        [
            _cast_times(column, kind) if name == "timestamp" else column.cast(kind)
            for name, column, kind in zip(schema.names, found, schema.types, strict=True)
        ],
        schema=schema,
    )


def _cast_times(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast timestamps. Producers may send any number of milliseconds; one out of range becomes the nearest in range."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        times_ms = pc.max_element_wise(pc.min_element_wise(column.cast(pa.int64()), _TIME_MS_MAX), -_TIME_MS_MAX)
        return times_ms.cast(column.type).cast(kind)


def _decode(
    records: pa.RecordBatch, name: str, decoder: "ColumnDecoder | None", options: FormatOptions | None
) -> _Column:
    column = records.column(name)
    if decoder is None or options is None:
        return _Column(column)
    decoded = decoder.decode(column, records.column("topic")[0].as_py())
    if options.detailed:
        from rookery.spark.formats.columns import detailed_array

        return _Column(detailed_array(decoded, decoder.spark_type), decoded.errors)
    if decoded.errors and options.on_error == "fail":
        raise _decoding_error(records, name, decoded.errors[0])
    return _Column(decoded.values, decoded.errors)


def _decoding_error(records: pa.RecordBatch, name: str, error: "RowError") -> DecodingError:
    topic, partition, offset = (records.column(each)[error.row].as_py() for each in ("topic", "partition", "offset"))
    return DecodingError(
        f"topic {topic}, partition {partition}, offset {offset}: the {name} cannot be decoded: {error.error_class}: "
        f"{error.message}. Check the option {name}Format, or set onError to null or dead-letter"
    )


def _by_row(columns: Mapping[str, _Column]) -> dict[int, _Error]:
    """Return the first error of each row."""
    found: dict[int, _Error] = {}
    for name, column in columns.items():
        for error in column.errors:
            found.setdefault(error.row, _Error(_STAGES[name], error.error_class, error.message))
    return found


def _mask(errors: Mapping[int, _Error], count: int) -> pa.Array:
    return pa.array([row in errors for row in range(count)], pa.bool_())


def _raw(column: pa.Array, shown: pa.Array | None) -> pa.Array:
    return column if shown is None else pc.if_else(shown, column, pa.scalar(None, column.type))


def _failures(dead: pa.RecordBatch, errors: Mapping[int, _Error], pipeline: str | None) -> list[Failure]:
    """Return the failures, in the order of the rows of `dead`."""
    columns = (dead.column(name) for name in ("topic", "partition", "offset"))
    places = zip(
        *(column.to_pylist() for column in columns), dead.column("timestamp").cast(pa.int64()).to_pylist(), strict=True
    )
    failures = []
    for row, place, headers in zip(sorted(errors), places, dead.column("headers").to_pylist(), strict=True):
        attempt = attempt_of((header["key"], header["value"]) for header in headers)
        failures.append(
            Failure(Origin(*place), errors[row].error_class, errors[row].message, errors[row].stage, pipeline, attempt)
        )
    return failures
