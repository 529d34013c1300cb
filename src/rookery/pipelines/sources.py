"""Reads the sources of a pipeline as DataFrames, for one flow.

The rows of a topic have the columns of the decoded value (or only `value`, if it is no struct), followed by columns
that describe the record, whose names begin with an underscore. With `on_error: dead-letter`, records that cannot be
decoded are returned separately, with their bytes, for the flow that writes the dead letters.
"""

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its conventional name
from pyspark.sql.types import StructType

from rookery.base.values import value_class
from rookery.dead_letters.standard import KEY_CONVERTER, VALUE_CONVERTER
from rookery.pipelines.progress import COUNT, ROWS_IN, observation_name
from rookery.pipelines.spec import (
    KEY_COLUMN,
    RAW_COLUMNS,
    RECORD_COLUMNS,
    TOMBSTONE_COLUMN,
    AvailableNow,
    FileSource,
    GeneratorSource,
    JdbcSource,
    ParquetSink,
    Pipeline,
    PostgresSource,
    Source,
    TopicSource,
)
from rookery.pipelines.tables import TABLE_FORMAT, TableSource, latest_per_key
from rookery.spark.option_table import CLIENT_PREFIX, FORMAT, REGISTRY_PREFIX


class SourceReadError(Exception):
    """A source cannot be read; the message says why."""


@value_class
class FailedRows:
    """Records that failed in one stage, in the source's columns, with rawKey, rawValue and the reason in a column."""

    rows: DataFrame
    error_column: str
    stage: str


@value_class
class SourceRows:
    rows: DataFrame
    failed: tuple[FailedRows, ...] = ()


def platform_options(pipeline: Pipeline) -> dict[str, str]:
    """Return the platform's settings as options of the data source."""
    return {
        key if key.startswith(REGISTRY_PREFIX) else f"{CLIENT_PREFIX}{key}": value
        for key, value in pipeline.platform.items()
    }


def read_source(
    session: SparkSession, pipeline: Pipeline, source: Source, *, flow: str, needs_raw_bytes: bool
) -> SourceRows:
    """Read `source` for one flow. `needs_raw_bytes`: a later step can make a dead letter of any record."""
    match source:
        case TopicSource(is_table=True):
            return _read_table(session, pipeline, source)
        case TopicSource():
            return _read_topic(session, pipeline, source, flow=flow, needs_raw_bytes=needs_raw_bytes)
        case FileSource():
            _create_sink_directory(pipeline, source)
            return SourceRows(_observed(_read_files(session, source), source))
        case PostgresSource():
            return SourceRows(_read_postgres(session, source))
        case JdbcSource():
            return SourceRows(_read_jdbc(session, source))
        case GeneratorSource():
            reader = session.readStream.format("rate").option("rowsPerSecond", source.rows_per_second)
            return SourceRows(_observed(reader.options(**source.options).load(), source))


def _observed(rows: DataFrame, source: Source) -> DataFrame:
    if not rows.isStreaming:
        return rows
    return rows.observe(observation_name(ROWS_IN, source.name), F.count(F.lit(1)).alias(COUNT))


def _topic_options(pipeline: Pipeline, source: TopicSource) -> dict[str, str]:
    is_detailed = "true" if _is_detailed(pipeline, source) else None
    chosen = {
        "subscribe": ",".join(source.topics),
        "keyFormat": source.key_format,
        "keyDetails": is_detailed if source.key_format else None,
        "valueFormat": source.value_format,
        "valueSchema": source.value_schema,
        "valueDetails": is_detailed if source.value_format else None,
        "onError": "null" if pipeline.on_error == "null" and has_format(source) else None,
        "pipelineName": pipeline.name,
    }
    return {**platform_options(pipeline), **{key: text for key, text in chosen.items() if text is not None}}


def _read_topic(
    session: SparkSession, pipeline: Pipeline, source: TopicSource, *, flow: str, needs_raw_bytes: bool
) -> SourceRows:
    makes_dead_letters = pipeline.on_error == "dead-letter" and (needs_raw_bytes or has_format(source))
    options = {
        **_topic_options(pipeline, source),
        "startingOffsets": source.starting_offsets,
        "groupId": pipeline.group_id(flow),
        # Spark 4.0 and 4.1 do not pass the trigger to the source, which needs it to apply its limits.
        "trigger": "available-now" if isinstance(pipeline.trigger, AvailableNow) else "processing-time",
        **source.options,
    }
    if makes_dead_letters:
        options |= {"includeHeaders": "true", "includeRaw": "always" if needs_raw_bytes else "errors"}
    records = _observed(session.readStream.format(FORMAT).options(**options).load(), source)
    failed: list[FailedRows] = []
    if pipeline.on_error == "dead-letter":
        for column, error, stage in _errors(source):
            failed.append(FailedRows(records.where(error.isNotNull()), f"{column}.error", stage))
            records = records.where(error.isNull())
    return SourceRows(_shaped(records, pipeline, source, needs_raw_bytes=needs_raw_bytes), tuple(failed))


def has_format(source: TopicSource) -> bool:
    return source.key_format is not None or source.value_format is not None


def _wants_headers(source: TopicSource) -> bool:
    """Return whether rows have a column of headers: as in Spark's own source, on request only. Dead letters always
    have them.
    """
    return any(name.lower() == "includeheaders" and text.lower() == "true" for name, text in source.options.items())


def _errors(source: TopicSource) -> list[tuple[str, Column, str]]:
    formats = (("value", source.value_format, VALUE_CONVERTER), ("key", source.key_format, KEY_CONVERTER))
    return [(name, F.col(f"{name}.error"), stage) for name, form, stage in formats if form is not None]


def _is_detailed(pipeline: Pipeline, source: TopicSource) -> bool:
    """Return whether decoded columns come with their errors, without which a null could be either a bad record or a
    tombstone.
    """
    return pipeline.on_error == "dead-letter" or (pipeline.on_error == "null" and not source.is_table)


def _decoded(name: str, form: str | None, pipeline: Pipeline, source: TopicSource) -> Column:
    return F.col(f"{name}.value" if form is not None and _is_detailed(pipeline, source) else name)


def _is_tombstone(pipeline: Pipeline, source: TopicSource) -> Column:
    is_null = _decoded("value", source.value_format, pipeline, source).isNull()
    if source.value_format is None or not _is_detailed(pipeline, source):
        return is_null
    return is_null & F.col("value.error").isNull()


def _shaped(records: DataFrame, pipeline: Pipeline, source: TopicSource, *, needs_raw_bytes: bool) -> DataFrame:
    """Turn the columns of the data source into those of the pipeline."""
    names = [name for name in RECORD_COLUMNS if name != "headers" or _wants_headers(source)]
    hidden = [F.col(name).alias(RECORD_COLUMNS[name]) for name in names]
    if needs_raw_bytes:
        hidden += [F.col(name).alias(shown) for name, shown in RAW_COLUMNS.items()]
    shaped = records.select(
        _decoded("value", source.value_format, pipeline, source).alias("value"),
        _decoded("key", source.key_format, pipeline, source).alias(KEY_COLUMN),
        _is_tombstone(pipeline, source).alias(TOMBSTONE_COLUMN),
        *hidden,
    )
    return _spread(shaped)


def _spread(rows: DataFrame) -> DataFrame:
    """Replace the first column, the value, by its fields if it is a struct."""
    is_record = isinstance(rows.schema["value"].dataType, StructType)
    return rows.select("value.*", *rows.columns[1:]) if is_record else rows


def _read_table(session: SparkSession, pipeline: Pipeline, source: TopicSource) -> SourceRows:
    """Read a topic as a table. A record that cannot be decoded leaves its key unchanged; the flow of dead letters,
    which streams the topic, writes its dead letter.
    """
    session.dataSource.register(TableSource)
    reader = session.read.format(TABLE_FORMAT).options(**_topic_options(pipeline, source), **source.options)
    records = reader.load()
    if pipeline.on_error == "dead-letter":
        for _, error, _ in _errors(source):
            records = records.where(error.isNull())
        records = records.withColumns(
            {
                name: _decoded(name, form, pipeline, source)
                for name, form in (("key", source.key_format), ("value", source.value_format))
            }
        )
    latest = latest_per_key(records)
    shown = [F.col(name).alias(shown) for name, shown in RECORD_COLUMNS.items() if name in latest.columns]
    return SourceRows(_spread(latest.select("value", F.col("key").alias(KEY_COLUMN), *shown)))


def _read_postgres(session: SparkSession, source: PostgresSource) -> DataFrame:
    from rookery.spark.postgres.source import read_postgres

    return read_postgres(
        session,
        dsn=source.connection,
        table=source.table,
        query=source.query,
        partition_column=source.partition_column,
        partitions=source.partitions,
    )


def _read_jdbc(session: SparkSession, source: JdbcSource) -> DataFrame:
    what = {"query": source.query} if source.table is None else {"dbtable": source.table}
    try:
        driver = _find_driver(session, source.url)
        given = source.options if driver is None else {"driver": driver, **source.options}
        return session.read.format("jdbc").options(url=source.url, **what, **given).load()
    except Py4JJavaError as error:
        # PySpark has no class for the exceptions of a driver, nor for those of a missing driver.
        message = str(error.java_exception.getMessage())
        hint = ": add the driver's jar with --set spark.jars=FILE" if "driver" in message.lower() else ""
        raise SourceReadError(f"{message}{hint}") from error


def _find_driver(session: SparkSession, url: str) -> str | None:
    """Return the class of the driver that accepts `url`. Java's own search does not see the jars of spark.jars."""
    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    drivers = jvm.java.util.ServiceLoader.load(jvm.java.lang.Class.forName("java.sql.Driver"), loader).iterator()
    while drivers.hasNext():
        driver = drivers.next()
        if driver.acceptsURL(url):
            return str(driver.getClass().getName())
    return None


def _create_sink_directory(pipeline: Pipeline, source: FileSource) -> None:
    """Create the directory if another flow of the pipeline writes to it: Spark requires that it exists, and before the
    first batch of that flow it does not.
    """
    if any(isinstance(sink, ParquetSink) and sink.path == source.path for sink in pipeline.sinks):
        Path(source.path).mkdir(parents=True, exist_ok=True)


def _read_files(session: SparkSession, source: FileSource) -> DataFrame:
    """Read files with the given schema, or else with the schema of the existing files."""
    schema = source.schema or _schema_of_files(session, source)
    if source.is_table:
        return session.read.format(source.format).schema(schema).options(**source.options).load(source.path)
    return session.readStream.format(source.format).schema(schema).options(**source.options).load(source.path)


def _schema_of_files(session: SparkSession, source: FileSource) -> StructType:
    return session.read.format(source.format).options(**source.options).load(source.path).schema
