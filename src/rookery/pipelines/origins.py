"""Which relations a relation reads, and where dead letters come from. Pure.

The origin of a dead letter is a source whose records can fail to decode, or a transform whose steps can fail for a row.
One flow writes the dead letters of all origins, so that adding, removing or reordering sinks neither loses nor repeats
a dead letter. In addition, a sink whose table refuses rows writes dead letters itself.
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
# Transforms whose output rows each belong to one input record.
_RowTransform: TypeAlias = StepsTransform | DeduplicateTransform


def dependencies(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """Return the relations that the transform `name` reads; none for a source.

    For SQL, every word that is the name of a relation above counts: a superfluous dependency does no harm.
    """
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
    """Return the names above `name`, by their lower case, since SQL ignores case."""
    transforms = list(pipeline.transforms)
    names = (*pipeline.sources, *transforms[: transforms.index(name)])
    return {each.lower(): each for each in names}


def needed_by(pipeline: Pipeline, name: str) -> set[str]:
    """Return `name` and everything that it reads, directly or indirectly."""
    found: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current not in found:
            found.add(current)
            pending += dependencies(pipeline, current)
    return found


def needs_raw_bytes(pipeline: Pipeline, source: str, flow: str) -> bool:
    """Return whether steps, or the sink of `flow`, can turn records of `source` into dead letters, which hold the
    records' original bytes.
    """
    return any(_topic_source(pipeline, name) == source for name in _failing_transforms(pipeline)) or any(
        record_source(pipeline, sink) == source for sink in dead_letter_sinks(pipeline) if sink.name == flow
    )


def dead_letter_origins(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the origins of dead letters, sorted by name: a checkpoint identifies them by position, and the order of
    the file may change.
    """
    if pipeline.on_error != "dead-letter":
        return ()
    sources = (
        name
        for name, source in pipeline.sources.items()
        if isinstance(source, TopicSource) and (source.key_format or source.value_format)
    )
    return tuple(sorted((*sources, *_failing_transforms(pipeline))))


def dead_letter_sinks(pipeline: Pipeline) -> tuple[PostgresSink, ...]:
    """Return the sinks whose tables may refuse rows, which then become dead letters."""
    if pipeline.on_error != "dead-letter":
        return ()
    return tuple(sink for sink in pipeline.sinks if isinstance(sink, PostgresSink))


def record_source(pipeline: Pipeline, sink: PostgresSink) -> str | None:
    """Return the topic source of which each row of the sink is one record; None after SQL or Python, whose rows cannot
    be traced to records.
    """
    return _topic_source(pipeline, sink.source, (StepsTransform, DeduplicateTransform))


def sink_dead_letter_topic(pipeline: Pipeline, sink: PostgresSink) -> str | None:
    """Return the topic for rows that the sink's table refuses; None for `<topic>.dlq` of each row's record."""
    if pipeline.dead_letter_topic is not None or record_source(pipeline, sink) is not None:
        return pipeline.dead_letter_topic
    return dead_letter_topic(pipeline.group_id(sink.name))


def dead_letter_sources(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the sources whose records can become dead letters."""
    origins = dead_letter_origins(pipeline)
    of_origins = (name if name in pipeline.sources else _topic_source(pipeline, name) for name in origins)
    of_sinks = (record_source(pipeline, sink) for sink in dead_letter_sinks(pipeline))
    return tuple(dict.fromkeys(name for name in (*of_origins, *of_sinks) if name is not None))


def _failing_transforms(pipeline: Pipeline) -> Iterator[str]:
    """Yield the transforms with steps that convert values, if their rows can be traced to records of a topic."""
    for name, transform in pipeline.transforms.items():
        if pipeline.on_error == "dead-letter" and isinstance(transform, StepsTransform):
            converts = any(isinstance(step, Cast | ToTimestamp) for step in transform.steps)
            if converts and _topic_source(pipeline, name) is not None:
                yield name


def _topic_source(
    pipeline: Pipeline, name: str, kinds: tuple[type[_RowTransform], ...] = (StepsTransform,)
) -> str | None:
    """Return the streamed topic source that `name` reads through a chain of transforms of these `kinds`, if any."""
    while isinstance(transform := pipeline.transforms.get(name), kinds):
        name = transform.source
    source = pipeline.sources.get(name)
    return name if isinstance(source, TopicSource) and not source.is_table else None
