"""Column functions: `from_registry` decodes values whose schema is in a registry, `to_registry` encodes values.

They are meant for data that does not come from a topic, or is decoded later. The options of the source and the sink do
the same faster, because rows then do not make another trip to Python and back.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from rookery.spark.compat import Feature, has, lacking
from rookery.spark.formats import ColumnDecoder, ColumnEncoder, FormatError, plan_decoder, plan_encoder
from rookery.spark.formats.columns import Array, detailed_array, detailed_type
from rookery.spark.option_table import FORMATS, REGISTRY_PREFIX
from rookery.spark.options import FormatOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OnError = Literal["fail", "null"]
RecordBatch: TypeAlias = Any
Encoding: TypeAlias = Callable[[Array], Array]


def from_registry(
    column: "Column | str",
    *,
    format: str = "avro",
    url: str | None = None,
    settings: Mapping[str, str] = {},
    topic: str | None = None,
    subject: str | None = None,
    version: int | Literal["latest"] = "latest",
    schema: str | None = None,
    message: str | None = None,
    is_key: bool = False,
    details: bool = False,
    on_error: OnError = "fail",
) -> "Column":
    """Return the binary column, decoded. The call determines its type: from `schema`, or from a version of the
    subject, by default the latest of `<topic>-value`.

    With `details` the column is a struct of value, error and schema_id, and no row fails the query. `settings` are
    those of the registry's client and of deserializers: docs/spark-formats.md.
    """
    options = _options(
        format, url, settings, subject=subject, version=version, schema=schema, message=message, details=details
    )
    if on_error not in ("fail", "null"):
        raise FormatError(
            f"on_error must be fail or null, not {on_error}: only the source's option onError supports dead letters"
        )
    decoder = plan_decoder(options, topics=[topic] if topic else [], is_key=is_key)
    kind = detailed_type(decoder.spark_type) if details else decoder.spark_type
    return _apply(_decode_function(decoder, topic or "", details=details, on_error=on_error), kind, column)


def to_registry(
    column: "Column | str",
    *,
    format: str = "avro",
    url: str | None = None,
    settings: Mapping[str, str] = {},
    topic: str | None = None,
    subject: str | None = None,
    version: int | Literal["latest"] = "latest",
    schema: str | None = None,
    message: str | None = None,
    is_key: bool = False,
) -> "Column":
    """Return the column, encoded as binary: with `schema`, a version of the subject, or a schema derived from its type.

    The first task registers the schema under `subject` or `<topic>-value`.
    """
    encoding = plan_encoding(
        format=format,
        url=url,
        settings=settings,
        topic=topic,
        subject=subject,
        version=version,
        schema=schema,
        message=message,
        is_key=is_key,
    )
    return _apply(encoding, BinaryType(), column)


def plan_encoding(
    *,
    format: str,
    settings: Mapping[str, str],
    topic: str | None,
    subject: str | None,
    schema: str | None,
    message: str | None,
    is_key: bool,
    url: str | None = None,
    version: int | Literal["latest"] = "latest",
) -> Encoding:
    """Return the function that `to_registry` applies to a column."""
    options = _options(format, url, settings, subject=subject, version=version, schema=schema, message=message)
    if topic is None and subject is None and format in ("avro", "json-schema", "protobuf"):
        raise FormatError("give the topic or the subject under which the schema is registered")
    return _encode_function(options, topic or "", is_key=is_key)


def encode_columns(rows: "DataFrame", encodings: Mapping[str, Encoding]) -> "DataFrame":
    """Return `rows` with the columns of `encodings` encoded as binary. Works with every version of Spark: where column
    functions cannot take Arrow, all columns pass through Python."""
    if not encodings:
        return rows
    if has(Feature.ARROW_COLUMN_FUNCTIONS):
        return rows.withColumns({name: _apply(encode, BinaryType(), name) for name, encode in encodings.items()})
    kinds = {field.name: BinaryType() if field.name in encodings else field.dataType for field in rows.schema}
    return rows.mapInArrow(
        _encode_batches(encodings), StructType([StructField(name, kind) for name, kind in kinds.items()])
    )


def _encode_batches(encodings: Mapping[str, Encoding]) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    def encode(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict(
                {
                    name: encodings[name](column) if name in encodings else column
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
            )

    return encode


def _options(
    format: str,
    url: str | None,
    settings: Mapping[str, str],
    *,
    subject: str | None,
    version: int | Literal["latest"],
    schema: str | None,
    message: str | None,
    details: bool = False,
) -> FormatOptions:
    if format not in FORMATS:
        raise FormatError(f"unknown format {format}: use one of {', '.join(FORMATS)}")
    url_key = f"{REGISTRY_PREFIX}url"
    registry = {key if key == url_key else key.removeprefix(REGISTRY_PREFIX): each for key, each in settings.items()}
    if url is not None:
        registry[url_key] = url
    return FormatOptions(
        format=format,
        schema=schema,
        subject=subject,
        version=str(version),
        message=message,
        detailed=details,
        registry=registry,
        on_error="fail",
    )


def _apply(function: Callable[[Array], Array], kind: DataType, column: "Column | str") -> "Column":
    if not has(Feature.ARROW_COLUMN_FUNCTIONS):
        text = lacking(Feature.ARROW_COLUMN_FUNCTIONS, "a column function of Rookery")
        raise FormatError(f"{text}. The options keyFormat and valueFormat of source and sink do the same")
    from pyspark.sql.pandas.functions import arrow_udf

    # The stubs of arrow_udf accept no function whose arguments are Any.
    make: Any = arrow_udf
    made: Column = make(function, kind)(col(column) if isinstance(column, str) else column)
    return made


def _decode_function(
    decoder: ColumnDecoder, topic: str, *, details: bool, on_error: OnError
) -> Callable[[Array], Array]:
    def decode(column: pa.Array) -> pa.Array:
        decoded = decoder.decode(column, topic)
        if details:
            return detailed_array(decoded, decoder.spark_type)
        if decoded.errors and on_error == "fail":
            row, error_class, text = decoded.errors[0]
            raise FormatError(
                f"{len(decoded.errors)} of {len(column)} rows cannot be decoded. The first, row {row} of the batch, is "
                f"{column[row].as_py()[:40]!r}: {error_class}: {text}. Set details=True or on_error='null' to continue"
            )
        return decoded.values

    return decode


def _encode_function(options: FormatOptions, topic: str, *, is_key: bool) -> Callable[[Array], Array]:
    encoders: dict[Any, ColumnEncoder] = {}

    def encode(column: pa.Array) -> pa.Array:
        if column.type not in encoders:
            kind = from_arrow_type(column.type, prefer_timestamp_ntz=True)
            encoders[column.type] = plan_encoder(options, kind, topic=topic, is_key=is_key)
        return encoders[column.type].encode(column, topic)

    return encode
