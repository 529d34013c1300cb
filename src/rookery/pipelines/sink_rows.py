"""Prepares the rows of each sink: drops the columns that describe the source record, and encodes rows for topics.

If rows that a table refuses become dead letters, each row carries its source record.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its conventional name
from pyspark.sql.types import BinaryType, DataType, StringType

from rookery.pipelines.fields import suggestion
from rookery.pipelines.origins import dead_letter_sinks, record_source
from rookery.pipelines.sources import platform_options
from rookery.pipelines.spec import (
    HEADERS_COLUMN,
    HIDDEN_COLUMNS,
    KEY_COLUMN,
    RAW_COLUMNS,
    RECORD_COLUMNS,
    ROUTE_COLUMN,
    TOMBSTONE_COLUMN,
    ParquetSink,
    Pipeline,
    PostgresSink,
    Sink,
    TopicSink,
)
from rookery.spark.option_table import REGISTRY_PREFIX
from rookery.spark.postgres.letters import ORIGIN

if TYPE_CHECKING:
    from rookery.spark.functions import Encoding


class SinkRowsError(Exception):
    """Rows do not fit a sink; the message says why."""


def visible(rows: DataFrame) -> DataFrame:
    """Drop the columns that describe the source record."""
    return rows.drop(*HIDDEN_COLUMNS)


def sink_rows(sink: Sink, rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    if not visible(rows).columns:
        raise SinkRowsError(f"{sink.source} has no columns that could be written")
    if isinstance(sink, TopicSink):
        return _topic_rows(sink, rows, pipeline)
    if isinstance(sink, ParquetSink | PostgresSink):
        _check_columns(sink, visible(rows))
    if isinstance(sink, ParquetSink) and sink.target_file_size_bytes is not None:
        # With the hint, Spark merges and splits the tasks of a batch by the size that `sinks` configures.
        return visible(rows).hint("rebalance", *sink.partition_by)
    if any(each.name == sink.name and record_source(pipeline, each) for each in dead_letter_sinks(pipeline)):
        return rows.select(*(F.col(f"`{name}`") for name in visible(rows).columns), _origin(rows).alias(ORIGIN))
    return visible(rows)


def _origin(rows: DataFrame) -> Column:
    """Return the source record, of which a dead letter is made. A step may have renamed or dropped its timestamp."""
    time = RECORD_COLUMNS["timestamp"]
    columns = {
        **{name: F.col(RECORD_COLUMNS[name]) for name in ("topic", "partition", "offset")},
        "timestamp_ms": F.unix_millis(time) if time in rows.columns else F.lit(None).cast("bigint"),
        "key": F.col(RAW_COLUMNS["rawKey"]),
        "value": F.col(RAW_COLUMNS["rawValue"]),
        "headers": F.col(RAW_COLUMNS["headers"]),
    }
    return F.struct(*(column.alias(name) for name, column in columns.items()))


def _check_columns(sink: ParquetSink | PostgresSink, rows: DataFrame) -> None:
    """Check the columns that a sink names, before its first batch."""
    if isinstance(sink, ParquetSink):
        # Spark ignores the case of these names.
        rows = rows.toDF(*(name.lower() for name in rows.columns))
        named = {"partition_by": tuple(name.lower() for name in sink.partition_by)}
    else:
        named = {"key": sink.key, "order_by": () if sink.order_by is None else (sink.order_by,)}
        if sink.delete_when is not None:
            # Spark analyses the condition here, and raises an error if it does not fit these rows.
            rows.where(F.expr(sink.delete_when))
    for key, columns in named.items():
        for column in columns:
            if column not in rows.columns:
                raise SinkRowsError(f"{key} names the unknown column {column}{suggestion(column, rows.columns)}")


def _topic_rows(sink: TopicSink, rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    from rookery.spark.functions import encode_columns

    # The columns that formats of the registry encode, after all columns have their final names.
    encodings: dict[str, Encoding] = {}
    columns = {
        "key": _key(sink, rows, pipeline, encodings),
        "value": _value(sink, rows, pipeline, encodings),
        "topic": F.coalesce(F.col(ROUTE_COLUMN), F.lit(sink.topic))
        if ROUTE_COLUMN in rows.columns
        else F.lit(sink.topic),
    }
    if rows.columns.count(HEADERS_COLUMN) == 1:
        columns["headers"] = F.col(HEADERS_COLUMN)
    shaped = rows.select(*(column.alias(name) for name, column in columns.items()))
    return encode_columns(shaped, encodings)


def _unless_tombstone(value: Column, rows: DataFrame) -> Column:
    """Write a record that came without a value without one: as a record of nulls, it would restore a deleted key."""
    if rows.columns.count(TOMBSTONE_COLUMN) != 1:
        return value
    return F.when(~F.coalesce(F.col(TOMBSTONE_COLUMN), F.lit(False)), value)


def _key(sink: TopicSink, rows: DataFrame, pipeline: Pipeline, encodings: "dict[str, Encoding]") -> Column:
    """Return the column of the record's key; by default the key of the source record."""
    if sink.key is not None:
        key = F.expr(sink.key)
    elif rows.columns.count(KEY_COLUMN) == 1:
        key = F.col(KEY_COLUMN)
    else:
        return F.lit(None).cast("binary")
    if sink.key_format is not None:
        encodings["key"] = _encoding(sink.key_format, sink, pipeline, is_key=True)
        return key
    return _as_bytes(key, rows.select(key.alias("key")).schema["key"].dataType)


def _as_bytes(column: Column, kind: DataType) -> Column:
    return column if isinstance(kind, BinaryType) else column.cast("string").cast("binary")


def _value(sink: TopicSink, rows: DataFrame, pipeline: Pipeline, encodings: "dict[str, Encoding]") -> Column:
    shown = visible(rows)
    lone = shown.schema.fields[0] if len(shown.columns) == 1 else None
    is_plain = lone is not None and isinstance(lone.dataType, BinaryType | StringType)
    if sink.value_format is None and lone is not None and lone.name == "value" and is_plain:
        return _unless_tombstone(_as_bytes(F.col("value"), lone.dataType), rows)
    if sink.value_format == "string":
        if lone is None:
            raise SinkRowsError(
                f"value_format string needs exactly one column, but {sink.source} has {', '.join(shown.columns)}"
            )
        return _unless_tombstone(_as_bytes(F.col(f"`{lone.name}`"), lone.dataType), rows)
    # Replace tombstones before the encoding: the schema may have no nullable fields.
    record = _unless_tombstone(F.struct(*(F.col(f"`{name}`") for name in shown.columns)), rows)
    if sink.value_format in (None, "json"):
        return F.to_json(record).cast("binary")
    encodings["value"] = _encoding(str(sink.value_format), sink, pipeline, is_key=False)
    return record


def _encoding(form: str, sink: TopicSink, pipeline: Pipeline, *, is_key: bool) -> "Encoding":
    from rookery.spark.functions import plan_encoding

    part = "key" if is_key else "value"
    given = {name.lower(): text for name, text in sink.options.items()}
    return plan_encoding(
        format=form,
        settings={key: text for key, text in platform_options(pipeline).items() if key.startswith(REGISTRY_PREFIX)},
        topic=sink.topic,
        subject=given.get(f"{part}subject"),
        schema=given.get("keyschema") if is_key else sink.value_schema,
        message=given.get(f"{part}message"),
        is_key=is_key,
    )
