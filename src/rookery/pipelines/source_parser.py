"""The sources of a pipeline's file: topics, files, PostgreSQL, other databases, Spark's generator of rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rookery.base.topic_names import name_problem
from rookery.pipelines.fields import Fields
from rookery.pipelines.spec import (
    FileSource,
    GeneratorSource,
    JdbcSource,
    PostgresSource,
    Source,
    TopicSource,
    Watermark,
)
from rookery.pipelines.values import INTERVAL_FORM, beside, is_interval
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
    fields.finish()
    return source


def parse_watermark(fields: Fields) -> Watermark | None:
    inner = fields.child("watermark")
    if inner is None:
        return None
    column, delay = inner.required("column"), inner.required("delay")
    if delay and not is_interval(delay):
        inner.complain("delay", f"delay is {delay}, and must be a time such as {INTERVAL_FORM}")
    inner.finish()
    return Watermark(inner.place, column, delay)


def format_choice(fields: Fields, name: str) -> str | None:
    """One of the formats that records can be decoded from and encoded to; None leaves bytes."""
    return fields.choice(name, FORMATS, "") or None


def topic_name(fields: Fields) -> str:
    return _legal_topics(fields, (fields.required("topic"),))[0]


def _legal_topics(fields: Fields, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if problem := name and name_problem(name):
            fields.complain("topic", problem)
    return names


def _topic(name: str, fields: Fields, file: Path) -> TopicSource:
    is_table = fields.flag("table")
    if is_table and fields.has("watermark"):
        fields.complain("watermark", f"source {name} is a table, which has no watermark")
    if is_table and fields.has("starting_offsets"):
        fields.complain("starting_offsets", f"source {name} is a table, which is read from the beginning")
    return TopicSource(
        name=name,
        place=fields.place_of("topic"),
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
        fields.report.add(fields.place, f"source {name} needs format")
    return FileSource(
        name=name,
        place=fields.place_of("files"),
        path=beside(file, fields.required("files")),
        format=fields.choice("format", _FILE_FORMATS, "json"),
        is_table=fields.flag("table"),
        schema=fields.text("schema"),
        watermark=parse_watermark(fields),
        options=dict(fields.pairs("options")),
    )


def _check_table_or_query(fields: Fields) -> None:
    if fields.has("table") == fields.has("query"):
        fields.report.add(fields.place, f"{fields.what} needs table or query, and not both")


def _jdbc(name: str, fields: Fields, file: Path) -> JdbcSource:
    _check_table_or_query(fields)
    url = fields.required("jdbc")
    if url and not url.startswith("jdbc:"):
        fields.complain("jdbc", "jdbc must be an address such as jdbc:mysql://host:3306/database")
    return JdbcSource(
        name=name,
        place=fields.place_of("jdbc"),
        url=url,
        table=fields.text("table"),
        query=fields.text("query"),
        options=dict(fields.pairs("options")),
    )


def _postgres(name: str, fields: Fields, file: Path) -> PostgresSource:
    _check_table_or_query(fields)
    return PostgresSource(
        name=name,
        place=fields.place_of("postgres"),
        connection=fields.required("postgres"),
        table=fields.text("table"),
        query=fields.text("query"),
        partition_column=fields.text("partition_column"),
        partitions=fields.whole("partitions", 1, minimum=1),
    )


def _generator(name: str, fields: Fields, file: Path) -> GeneratorSource:
    inner = fields.child("generator")
    rows_per_second = inner.whole("rows_per_second", 1, minimum=1) if inner else 1
    if inner:
        inner.finish()
    return GeneratorSource(
        name=name,
        place=fields.place_of("generator"),
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
