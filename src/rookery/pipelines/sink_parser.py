"""Parses the sinks of a pipeline's file: topics, Parquet, PostgreSQL, the console. Each becomes one flow."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from rookery.pipelines.fields import Fields, resolve_path
from rookery.pipelines.source_parser import format_choice, topic_name
from rookery.pipelines.spec import ConsoleSink, OutputMode, ParquetSink, PostgresSink, Sink, TopicSink
from rookery.spark.option_table import parse_size_bytes


def parse_sink(kind: str, source: str, fields: Fields, file: Path) -> Sink:
    return _PARSERS[kind](source, fields, file)


def _topic(source: str, fields: Fields, file: Path) -> TopicSink:
    topic = topic_name(fields)
    return TopicSink(
        name=fields.text("name") or topic,
        location=fields.location_of("topic"),
        source=source,
        topic=topic,
        key=fields.text("key"),
        key_format=format_choice(fields, "key_format"),
        value_format=format_choice(fields, "value_format"),
        value_schema=fields.text("value_schema"),
        partitions=fields.whole_number("partitions", 0, minimum=1) or None,
        output_mode=_output_mode(fields, "append", "update"),
        options=dict(fields.pairs("options")),
    )


def _output_mode(fields: Fields, *modes: str) -> OutputMode:
    return cast(OutputMode, fields.choice("output_mode", modes, "append"))


def _parquet(source: str, fields: Fields, file: Path) -> ParquetSink:
    path = fields.required("parquet")
    size = fields.text("target_file_size")
    size_bytes = None if size is None else parse_size_bytes(size)
    if size is not None and not size_bytes:
        fields.add_problem("target_file_size", f"target_file_size is {size}, but must be a size such as 64 MB")
    return ParquetSink(
        name=fields.text("name") or Path(path).name,
        location=fields.location_of("parquet"),
        source=source,
        path=resolve_path(file, path),
        partition_by=fields.texts("partition_by"),
        target_file_size_bytes=size_bytes,
        options=dict(fields.pairs("options")),
    )


def _postgres(source: str, fields: Fields, file: Path) -> PostgresSink:
    table = fields.required("table")
    key = fields.texts("key")
    mode = _output_mode(fields, "append", "update")
    if mode == "update" and not key:
        fields.add_problem("output_mode", "output_mode update needs a key: rows replace those with the same key")
    if fields.has("delete_when") and not key:
        fields.add_problem("delete_when", "delete_when needs a key: rows are deleted by their key")
    return PostgresSink(
        name=fields.text("name") or table,
        location=fields.location_of("postgres"),
        source=source,
        connection=fields.required("postgres"),
        table=table,
        key=key,
        order_by=fields.text("order_by"),
        delete_when=fields.text("delete_when"),
        output_mode=mode,
    )


def _console(source: str, fields: Fields, file: Path) -> ConsoleSink:
    if not fields.flag("console"):
        fields.add_problem("console", "console must be true")
    return ConsoleSink(
        name=fields.text("name") or "console",
        location=fields.location_of("console"),
        source=source,
        output_mode=_output_mode(fields, "append", "update", "complete"),
        options=dict(fields.pairs("options")),
    )


_PARSERS: Final[Mapping[str, Callable[[str, Fields, Path], Sink]]] = {
    "topic": _topic,
    "parquet": _parquet,
    "postgres": _postgres,
    "console": _console,
}
SINK_KINDS: Final = tuple(_PARSERS)
