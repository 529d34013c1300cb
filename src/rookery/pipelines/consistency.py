"""Checks that the parts of a pipeline's file fit each other: names, targets, and settings of the platform. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rookery.pipelines.origins import (
    dead_letter_sinks,
    dead_letter_sources,
    needed_by,
    record_source,
    sink_dead_letter_topic,
)
from rookery.pipelines.platform_settings import find_wrong_settings
from rookery.pipelines.spec import Location, ParquetSink, Pipeline, Problem, TopicSink, TopicSource
from rookery.spark.option_table import FORMATS

_WITHOUT_REGISTRY: Final = ("string", "json")


def find_inconsistencies(pipeline: Pipeline) -> Iterator[Problem]:
    yield from find_wrong_settings(pipeline)
    yield from _check_names(
        [(each.name, each.location) for each in (*pipeline.sources.values(), *pipeline.transforms.values())]
    )
    yield from _check_names([(sink.name, sink.location) for sink in pipeline.sinks])
    yield from _check_paths(pipeline)
    yield from _check_loops(pipeline)
    yield from _check_needs(pipeline)


def _check_names(named: Sequence[tuple[str, Location]]) -> Iterator[Problem]:
    """Find names that differ only in case; the parser reports equal names."""
    seen: dict[str, str] = {}
    for name, location in named:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            message = f"{name} and {other} differ only in case: rename one, since SQL and some file systems ignore case"
            yield Problem(location, message)


def _check_paths(pipeline: Pipeline) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for sink in pipeline.sinks:
        if isinstance(sink, ParquetSink):
            other = seen.setdefault(sink.path.rstrip("/"), sink.name)
            if other != sink.name:
                yield Problem(
                    sink.location,
                    f"sink {other} also writes to {sink.path}: change the path, or Spark would lose rows of one",
                )


def _check_loops(pipeline: Pipeline) -> Iterator[Problem]:
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink) and sink.topic in _topics_read(pipeline, needed_by(pipeline, sink.source)):
            yield Problem(sink.location, f"sink {sink.name} writes to {sink.topic}, from which its own rows are read")
    for name in dead_letter_sources(pipeline):
        topic = pipeline.dead_letter_topic
        if topic in _topics_read(pipeline, {name}):
            message = f"the dead letters of {name} go to {topic}, which {name} reads: change dead_letters"
            yield Problem(pipeline.sources[name].location, message)
    for sink in dead_letter_sinks(pipeline):
        topic = sink_dead_letter_topic(pipeline, sink)
        is_read = topic in _topics_read(pipeline, needed_by(pipeline, sink.source))
        if record_source(pipeline, sink) is None and is_read:
            message = f"rows that {sink.name} refuses go to {topic}, from which its own rows are read"
            yield Problem(sink.location, message)


def _topics_read(pipeline: Pipeline, names: set[str]) -> set[str]:
    sources = (pipeline.sources.get(name) for name in names)
    return {topic for source in sources if isinstance(source, TopicSource) for topic in source.topics}


def _check_needs(pipeline: Pipeline) -> Iterator[Problem]:
    """Check that topics have a cluster, and formats with schemas a registry unless the schema is given."""
    topics = [
        each for each in (*pipeline.sources.values(), *pipeline.sinks) if isinstance(each, TopicSource | TopicSink)
    ]
    if topics and not pipeline.bootstrap_servers:
        message = "platform needs bootstrap.servers, since the pipeline reads or writes topics"
        yield Problem(pipeline.platform_location, message)
    elif dead_letter_sinks(pipeline) and not pipeline.bootstrap_servers:
        message = "platform needs bootstrap.servers: on_error dead-letter writes rows that a table refuses to a topic"
        yield Problem(pipeline.platform_location, message)
    for each in topics:
        given = {name.lower() for name in each.options}
        formats = (
            (each.value_format, each.value_schema or "valueschema" in given),
            (each.key_format, "keyschema" in given),
        )
        for form, has_schema in formats:
            if form in FORMATS and form not in _WITHOUT_REGISTRY and not has_schema and not pipeline.registry_url:
                yield Problem(
                    each.location, f"platform needs schema.registry.url, since {each.name} has the format {form}"
                )
