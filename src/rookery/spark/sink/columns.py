"""The columns that the sink writes, checked as Spark's own `kafka` sink checks them.

    value      string or binary; with valueFormat any type that the format can encode. Required
    key        the same, with keyFormat
    topic      string, for each row; not required, and ignored, with the option topic
    partition  int; if null, the partitioner chooses: by the key, or at random
    headers    array<struct<key: string, value: binary>>
    timestamp  timestamp

Other columns are ignored, so that rows of the source can be written without changes. Errors are raised when the query
starts.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rookery.spark.option_table import OptionError
from rookery.spark.options import FormatOptions, WriteOptions
from rookery.spark.sink.commit_protocol import SinkError

if TYPE_CHECKING:
    from rookery.spark.formats import ColumnEncoder

_VALUE, _KEY, _TOPIC, _HEADERS = "value", "key", "topic", "headers"
_BYTES: Final = (StringType, BinaryType)
_ACCEPTED: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    _VALUE: _BYTES,
    _KEY: _BYTES,
    _TOPIC: (StringType,),
    "partition": (IntegerType,),
    _HEADERS: (ArrayType,),
    "timestamp": (TimestampType, TimestampNTZType),
}
_NULL_TOPIC: Final = "null topic present in the data. Use the option topic to set a topic for all rows"


class SinkColumns:
    """The columns of one write. The driver creates it; tasks receive it pickled."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._topic = options.topic
        self._formats = {
            name: chosen
            for name, chosen in ((_KEY, options.key_format), (_VALUE, options.value_format))
            if chosen is not None and name in schema.names
        }
        self._types = {field.name: field.dataType for field in schema.fields}
        self._encoders: dict[tuple[str, str], ColumnEncoder] = {}
        self._check(schema)
        left_out = {_TOPIC} if self._topic is not None else set()
        if not options.include_headers:
            left_out.add(_HEADERS)
        self._names = [name for name in _ACCEPTED if name in schema.names and name not in left_out]
        if self._topic is not None:
            for name in self._formats:
                self._encoder(name, self._topic)

    def _check(self, schema: StructType) -> None:
        for name in _ACCEPTED:
            if schema.names.count(name) > 1:
                raise OptionError(f"the column '{name}' exists {schema.names.count(name)} times")
        if _VALUE not in schema.names:
            raise OptionError(f"required column 'value' not found; there are: {', '.join(schema.names) or 'none'}")
        if self._topic is None and _TOPIC not in schema.names:
            raise OptionError(
                "the option topic is required when no column 'topic' is present. Use the option topic to set a topic"
            )
        for field in schema.fields:
            if field.name not in self._formats and not _is_accepted(field.name, field.dataType):
                raise OptionError(
                    f"unsupported type of column '{field.name}': {field.dataType.simpleString()}. Expected: "
                    f"{_expected(field.name)}"
                )

    def prepare(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows to send: in one part, or in one part per topic if each topic has its own schemas."""
        chosen = rows.select(self._names)
        if self._topic is None and chosen.column(_TOPIC).null_count:
            raise SinkError(_NULL_TOPIC, is_lasting=True)
        if not self._formats:
            yield chosen
        elif self._topic is not None:
            yield self._encode(chosen, self._topic)
        else:
            for topic in pc.unique(chosen.column(_TOPIC)).to_pylist():
                yield self._encode(chosen.filter(pc.equal(chosen.column(_TOPIC), topic)), topic)

    def _encode(self, rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        for name in self._formats:
            encoded = self._encoder(name, topic).encode(rows.column(name), topic)
            rows = rows.set_column(rows.schema.get_field_index(name), name, encoded)
        return rows

    def _encoder(self, name: str, topic: str) -> "ColumnEncoder":
        known = self._encoders.get((name, topic))
        if known is None:
            from rookery.spark.formats import plan_encoder

            options: FormatOptions = self._formats[name]
            known = plan_encoder(options, self._types[name], topic=topic, is_key=name == _KEY)
            self._encoders[name, topic] = known
        return known


def _is_accepted(name: str, kind: DataType) -> bool:
    if name not in _ACCEPTED:
        return True
    if name == _HEADERS:
        return _is_headers(kind)
    return isinstance(kind, _ACCEPTED[name])


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _expected(name: str) -> str:
    if name == _HEADERS:
        return "array<struct<key:string,value:binary>>"
    names = " or ".join(kind.typeName() for kind in _ACCEPTED[name])
    return f"{names}; or set the option {name}Format" if name in (_KEY, _VALUE) else names
