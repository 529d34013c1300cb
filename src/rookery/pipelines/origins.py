"""Who reads what, and where dead letters come from. Pure.

A dead letter's origin is a source whose records may not be decoded, or a transform whose steps may fail for a row. One
flow writes them all, so that sinks may come, go and change places without a dead letter more or less. Besides, a sink
whose table refuses rows writes dead letters of its own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from rookery.dead_letters.standard import dead_letter_topic
from rookery.pipelines.spec import (
    Cast,
    DeduplicateTransform,
    Pipeline,
    PostgresSink,
    PythonTransform,
    SqlTransform,
    StepsTransform,
    TopicSource,
    ToTimestamp,
)

_WORD: Final = re.compile(r"\w+")
# Transforms whose rows are still records.
_Link: TypeAlias = StepsTransform | DeduplicateTransform


def dependencies(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """What a transform takes its rows from. Any word of SQL that is a name above counts: one too many does no harm."""
    transform = pipeline.transforms.get(name)
    match transform:
        case StepsTransform() | DeduplicateTransform():
            return (transform.source,)
        case PythonTransform():
            return transform.sources
        case SqlTransform():
            above = _names_above(pipeline, name)
            words = dict.fromkeys(word.lower() for word in _WORD.findall(transform.text))
            return tuple(above[word] for word in words if word in above)
        case None:
            return ()


def _names_above(pipeline: Pipeline, name: str) -> Mapping[str, str]:
    """By their lower case: SQL does not care."""
    transforms = list(pipeline.transforms)
    names = (*pipeline.sources, *transforms[: transforms.index(name)])
    return {each.lower(): each for each in names}


def needed_by(pipeline: Pipeline, name: str) -> set[str]:
    """A name and everything below it."""
    found: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current not in found:
            found.add(current)
            pending += dependencies(pipeline, current)
    return found


def keeps_bytes(pipeline: Pipeline, source: str, flow: str) -> bool:
    """Whether steps, or the flow's own sink, may make dead letters of this source's records, and so need bytes."""
    return any(_root(pipeline, name) == source for name in _failing_transforms(pipeline)) or any(
        record_source(pipeline, sink) == source for sink in refusing_sinks(pipeline) if sink.name == flow
    )


def dead_letter_origins(pipeline: Pipeline) -> tuple[str, ...]:
    """By their names, and not in the file's order: a checkpoint knows them by their places."""
    if pipeline.on_error != "dead-letter":
        return ()
    sources = (
        name
        for name, source in pipeline.sources.items()
        if isinstance(source, TopicSource) and (source.key_format or source.value_format)
    )
    return tuple(sorted((*sources, *_failing_transforms(pipeline))))


def refusing_sinks(pipeline: Pipeline) -> tuple[PostgresSink, ...]:
    """Those whose table may refuse rows, which then become dead letters."""
    if pipeline.on_error != "dead-letter":
        return ()
    return tuple(sink for sink in pipeline.sinks if isinstance(sink, PostgresSink))


def record_source(pipeline: Pipeline, sink: PostgresSink) -> str | None:
    """The topic's source, if each row of the sink is one record of it. Behind SQL and Python nobody can tell."""
    return _root(pipeline, sink.source, (StepsTransform, DeduplicateTransform))


def refused_topic(pipeline: Pipeline, sink: PostgresSink) -> str | None:
    """Where rows go that the sink's table refuses; None: to `<topic>.dlq` of the record that each is."""
    if pipeline.dead_letter_topic is not None or record_source(pipeline, sink) is not None:
        return pipeline.dead_letter_topic
    return dead_letter_topic(pipeline.group_id(sink.name))


def dead_letter_roots(pipeline: Pipeline) -> tuple[str, ...]:
    """The sources whose records may become dead letters."""
    of_sinks = (record_source(pipeline, sink) for sink in refusing_sinks(pipeline))
    found = (*roots(pipeline, dead_letter_origins(pipeline)), *(name for name in of_sinks if name is not None))
    return tuple(dict.fromkeys(found))


def roots(pipeline: Pipeline, origins: tuple[str, ...]) -> tuple[str, ...]:
    """The sources whose records the dead letters of these origins are."""
    found = (name if name in pipeline.sources else _root(pipeline, name) for name in origins)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _failing_transforms(pipeline: Pipeline) -> Iterator[str]:
    """Those with steps that convert values, of rows that are still records of a topic."""
    for name, transform in pipeline.transforms.items():
        if pipeline.on_error == "dead-letter" and isinstance(transform, StepsTransform):
            converts = any(isinstance(step, Cast | ToTimestamp) for step in transform.steps)
            if converts and _root(pipeline, name) is not None:
                yield name


def _root(pipeline: Pipeline, name: str, links: tuple[type[_Link], ...] = (StepsTransform,)) -> str | None:
    """The streamed topic that is below a chain of such transforms."""
    while isinstance(transform := pipeline.transforms.get(name), links):
        name = transform.source
    source = pipeline.sources.get(name)
    return name if isinstance(source, TopicSource) and not source.is_table else None
