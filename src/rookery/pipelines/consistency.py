"""Whether the parts of a pipeline's file fit each other: names, targets, and what they need of the platform. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rookery.pipelines.origins import (
    dead_letter_roots,
    needed_by,
    record_source,
    refused_topic,
    refusing_sinks,
)
from rookery.pipelines.platform_settings import find_wrong_settings
from rookery.pipelines.spec import ParquetSink, Pipeline, Place, Problem, TopicSink, TopicSource
from rookery.spark.option_table import FORMATS

_WITHOUT_REGISTRY: Final = ("string", "json")


def find_inconsistencies(pipeline: Pipeline) -> Iterator[Problem]:
    yield from find_wrong_settings(pipeline)
    yield from _check_names(
        [(each.name, each.place) for each in (*pipeline.sources.values(), *pipeline.transforms.values())]
    )
    yield from _check_names([(sink.name, sink.place) for sink in pipeline.sinks])
    yield from _check_paths(pipeline)
    yield from _check_loops(pipeline)
    yield from _check_needs(pipeline)


def _check_names(named: Sequence[tuple[str, Place]]) -> Iterator[Problem]:
    """For SQL and for some file systems a and A are the same. Equal names are told elsewhere."""
    seen: dict[str, str] = {}
    for name, place in named:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            yield Problem(place, f"{name} and {other} differ in case only: SQL and file systems take them for the same")


def _check_paths(pipeline: Pipeline) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for sink in pipeline.sinks:
        if isinstance(sink, ParquetSink):
            other = seen.setdefault(sink.path.rstrip("/"), sink.name)
            if other != sink.name:
                yield Problem(
                    sink.place, f"sink {other} writes to {sink.path} already: Spark would lose rows of one of them"
                )


def _check_loops(pipeline: Pipeline) -> Iterator[Problem]:
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink) and sink.topic in _topics_read(pipeline, needed_by(pipeline, sink.source)):
            yield Problem(sink.place, f"sink {sink.name} writes to {sink.topic}, which its own rows come from")
    for name in dead_letter_roots(pipeline):
        topic = pipeline.dead_letter_topic
        if topic in _topics_read(pipeline, {name}):
            yield Problem(pipeline.sources[name].place, f"the dead letters of {name} go to {topic}, which it reads")
    for sink in refusing_sinks(pipeline):
        topic = refused_topic(pipeline, sink)
        is_read = topic in _topics_read(pipeline, needed_by(pipeline, sink.source))
        if record_source(pipeline, sink) is None and is_read:
            yield Problem(sink.place, f"rows that {sink.name} refuses go to {topic}, which its own rows come from")


def _topics_read(pipeline: Pipeline, names: set[str]) -> set[str]:
    sources = (pipeline.sources.get(name) for name in names)
    return {topic for source in sources if isinstance(source, TopicSource) for topic in source.topics}


def _check_needs(pipeline: Pipeline) -> Iterator[Problem]:
    """Topics need a cluster, and formats with schemas a registry, unless the schema is given."""
    topics = [
        each for each in (*pipeline.sources.values(), *pipeline.sinks) if isinstance(each, TopicSource | TopicSink)
    ]
    if topics and not pipeline.bootstrap_servers:
        yield Problem(pipeline.platform_place, "platform needs bootstrap.servers: there are topics")
    elif refusing_sinks(pipeline) and not pipeline.bootstrap_servers:
        message = "platform needs bootstrap.servers: on_error dead-letter writes rows that a table refuses to a topic"
        yield Problem(pipeline.platform_place, message)
    for each in topics:
        given = {name.lower() for name in each.options}
        formats = (
            (each.value_format, each.value_schema or "valueschema" in given),
            (each.key_format, "keyschema" in given),
        )
        for form, has_schema in formats:
            if form in FORMATS and form not in _WITHOUT_REGISTRY and not has_schema and not pipeline.registry_url:
                yield Problem(each.place, f"platform needs schema.registry.url: {each.name} is {form}")
