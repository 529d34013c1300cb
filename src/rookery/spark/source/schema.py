"""The columns of the source: those of Spark's Kafka source, with decoded key and value columns, and raw columns.

The schema is created in one process and used later in others. The reader's schema of a decoder (its pin) is therefore
stored in the metadata of its column and not looked up again: a schema that is registered meanwhile has no effect until
the query is restarted.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rookery.base.types import TopicName
from rookery.base.values import value_class
from rookery.spark.option_table import OptionError
from rookery.spark.options import FormatOptions, ReadOptions

if TYPE_CHECKING:
    from rookery.spark.formats import ColumnDecoder

HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
PIN_KEY: Final = "rookery.pin"


@value_class
class Decoders:
    """The decoders of the columns; None for a column that is not decoded."""

    key: "ColumnDecoder | None" = None
    value: "ColumnDecoder | None" = None


def plan_decoders(
    options: ReadOptions, topics: Callable[[], Collection[TopicName]], schema: StructType | None = None
) -> Decoders:
    """Return the decoders. Calls `topics` and the registry unless `schema` holds the pins of an earlier call."""

    def plan(format_options: FormatOptions | None, *, is_key: bool) -> "ColumnDecoder | None":
        if format_options is None:
            return None
        from rookery.spark.formats import plan_decoder

        pinned = None if schema is None else _pin_of(schema, "key" if is_key else "value")
        names = sorted(topics()) if pinned is None else []
        return plan_decoder(format_options, topics=names, is_key=is_key, pinned=pinned)

    return Decoders(plan(options.key_format, is_key=True), plan(options.value_format, is_key=False))


def _pin_of(schema: StructType, name: str) -> str | None:
    return schema[name].metadata.get(PIN_KEY) if name in schema.names else None


def source_schema(options: ReadOptions, decoders: Decoders) -> StructType:
    fields = [
        _column("key", decoders.key, options.key_format),
        _column("value", decoders.value, options.value_format),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if options.include_headers:
        fields.append(StructField("headers", HEADERS_TYPE))
    if options.include_raw != "never":
        fields += [StructField("rawKey", BinaryType()), StructField("rawValue", BinaryType())]
    return StructType(fields)


def _column(name: str, decoder: "ColumnDecoder | None", options: FormatOptions | None) -> StructField:
    if decoder is None or options is None:
        return StructField(name, BinaryType())
    from rookery.spark.formats.columns import detailed_type

    kind: DataType = detailed_type(decoder.spark_type) if options.detailed else decoder.spark_type
    return StructField(name, kind, metadata={PIN_KEY: decoder.pin()})


def check_schema(expected: StructType, given: StructType) -> None:
    """Raise OptionError if the user gave another schema: Spark would accept it and fail at the first row."""
    if [(each.name, each.dataType) for each in given] != [(each.name, each.dataType) for each in expected]:
        raise OptionError(
            f"the columns of a topic are fixed: omit .schema(...), or give {expected.simpleString()}; the options "
            f"includeHeaders, includeRaw, keyFormat and valueFormat change them"
        )
