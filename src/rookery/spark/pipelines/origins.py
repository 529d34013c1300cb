"""Who reads what, and where dead letters come from. Pure.

A dead letter's origin is a source whose records may not be decoded, or a transform whose steps may fail for a row. One
flow writes them all, so that sinks may come, go and change places without a dead letter more or less.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rookery.spark.pipelines.spec import (
    Cast,
    DeduplicateTransform,
    Pipeline,
    PythonTransform,
    SqlTransform,
    StepsTransform,
    TopicSource,
    ToTimestamp,
)

_WORD: Final = re.compile(r"\w+")


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


def keeps_bytes(pipeline: Pipeline, source: str) -> bool:
    """Whether steps may make dead letters of this source's records, and so need their bytes."""
    return any(_root(pipeline, name) == source for name in _failing_transforms(pipeline))


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


def _root(pipeline: Pipeline, name: str) -> str | None:
    """The streamed topic that is below a chain of steps."""
    while isinstance(transform := pipeline.transforms.get(name), StepsTransform):
        name = transform.source
    source = pipeline.sources.get(name)
    return name if isinstance(source, TopicSource) and not source.is_table else None
