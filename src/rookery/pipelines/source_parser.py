"""Parses the sources of a pipeline's file: topics, files, PostgreSQL, other databases, Spark's row generator."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rookery.base.topic_names import name_problem
from rookery.pipelines.fields import INTERVAL_FORM, Fields, is_interval, resolve_path
from rookery.pipelines.spec import (
    FileSource,
    GeneratorSource,
    JdbcSource,
    PostgresSource,
    Source,
    TopicSource,
    Watermark,
)
from rookery.spark.option_table import FORMATS

_FILE_FORMATS: Final = ("json", "csv", "parquet", "orc", "text")
_KINDS: Final = ("topic", "files", "postgres", "jdbc", "generator")


def parse_source(name: str, fields: Fields | None, file: Path) -> Source | None:
    if fields is None:
        return None
    kind = fields.kind(_KINDS)
    if kind is None:
        return None
    source = _PARSERS[kind](name, fields, file)
    fields.report_unknown_keys()
    return source


def parse_watermark(fields: Fields) -> Watermark | None:
    inner = fields.child("watermark")
    if inner is None:
        return None
    column, delay = inner.required("column"), inner.required("delay")
    if delay and not is_interval(delay):
        inner.add_problem("delay", f"delay is {delay}, but must be a duration such as {INTERVAL_FORM}")
    inner.report_unknown_keys()
    return Watermark(inner.location, column, delay)


def format_choice(fields: Fields, name: str) -> str | None:
    """Return the format in which keys or values are decoded or encoded; None leaves them as bytes."""
    return fields.choice(name, FORMATS, "") or None


def topic_name(fields: Fields) -> str:
    return _legal_topics(fields, (fields.required("topic"),))[0]


def _legal_topics(fields: Fields, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if problem := name and name_problem(name):
            fields.add_problem("topic", problem)
    return names


def _topic(name: str, fields: Fields, file: Path) -> TopicSource:
    is_table = fields.flag("table")
    if is_table and fields.has("watermark"):
        fields.add_problem("watermark", f"source {name} is a table and cannot have a watermark: remove it")
    if is_table and fields.has("starting_offsets"):
        fields.add_problem(
            "starting_offsets", f"source {name} is a table, which is read whole: remove starting_offsets"
        )
    return TopicSource(
        name=name,
        location=fields.location_of("topic"),
        topics=_legal_topics(fields, fields.texts("topic")),
        is_table=is_table,
        key_format=format_choice(fields, "key_format"),
        value_format=format_choice(fields, "value_format"),
        value_schema=fields.text("value_schema"),
        starting_offsets=fields.text("starting_offsets") or "earliest",
        watermark=parse_watermark(fields),
        options=dict(fields.pairs("options")),
    )


def _files(name: str, fields: Fields, file: Path) -> FileSource:
    if not fields.has("format"):
        fields.report.add(fields.location, f"source {name} needs the key format")
    return FileSource(
        name=name,
        location=fields.location_of("files"),
        path=resolve_path(file, fields.required("files")),
        format=fields.choice("format", _FILE_FORMATS, "json"),
        is_table=fields.flag("table"),
        schema=fields.text("schema"),
        watermark=parse_watermark(fields),
        options=dict(fields.pairs("options")),
    )


def _check_table_or_query(fields: Fields) -> None:
    if fields.has("table") == fields.has("query"):
        fields.report.add(fields.location, f"{fields.what} needs either table or query")


def _jdbc(name: str, fields: Fields, file: Path) -> JdbcSource:
    _check_table_or_query(fields)
    url = fields.required("jdbc")
    if url and not url.startswith("jdbc:"):
        fields.add_problem("jdbc", "jdbc must be an address such as jdbc:mysql://host:3306/database")
    return JdbcSource(
        name=name,
        location=fields.location_of("jdbc"),
        url=url,
        table=fields.text("table"),
        query=fields.text("query"),
        options=dict(fields.pairs("options")),
    )


def _postgres(name: str, fields: Fields, file: Path) -> PostgresSource:
    _check_table_or_query(fields)
    return PostgresSource(
        name=name,
        location=fields.location_of("postgres"),
        connection=fields.required("postgres"),
        table=fields.text("table"),
        query=fields.text("query"),
        partition_column=fields.text("partition_column"),
        partitions=fields.whole_number("partitions", 1, minimum=1),
    )


def _generator(name: str, fields: Fields, file: Path) -> GeneratorSource:
    inner = fields.child("generator")
    rows_per_second = inner.whole_number("rows_per_second", 1, minimum=1) if inner else 1
    if inner:
        inner.report_unknown_keys()
    return GeneratorSource(
        name=name,
        location=fields.location_of("generator"),
        rows_per_second=rows_per_second,
        watermark=parse_watermark(fields),
        options=dict(fields.pairs("options")),
    )


_PARSERS: Final[Mapping[str, Callable[[str, Fields, Path], Source]]] = {
    "topic": _topic,
    "files": _files,
    "postgres": _postgres,
    "jdbc": _jdbc,
    "generator": _generator,
}
