"""Parses a pipeline's file into a `Pipeline`, with all checks that need neither Spark nor the platform.

`parse_pipeline` raises one `PipelineError` with all problems. Paths are relative to the file. docs/pipelines.md
explains the keys.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast

import yaml

from rookery.pipelines.consistency import find_inconsistencies
from rookery.pipelines.fields import INTERVAL_FORM, Fields, Report, is_interval, resolve_path, suggestion
from rookery.pipelines.sink_parser import SINK_KINDS, parse_sink
from rookery.pipelines.source_parser import parse_source, parse_watermark, topic_name
from rookery.pipelines.spec import (
    DEAD_LETTER_FLOW,
    AvailableNow,
    Continuous,
    DeduplicateTransform,
    Delivery,
    Every,
    Location,
    OnError,
    Pipeline,
    PipelineError,
    Problem,
    PythonTransform,
    Sink,
    Source,
    SqlTransform,
    StepsTransform,
    Transform,
    Trigger,
)
from rookery.pipelines.step_parser import parse_step

PIPELINE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
PIPELINE_NAME_FORM: Final = (
    "must begin with a lower-case letter or a digit and have only lower-case letters, digits, dots, dashes and "
    "underscores"
)
_RELATION_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_FLOW_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_RESTARTS_MAX: Final = 5
_TRANSFORM_KINDS: Final = ("steps", "sql", "sql_file", "python", "deduplicate")
_Named = TypeVar("_Named", Source, Transform)


def read_pipeline(file: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise PipelineError([Problem(Location(str(file), line), "the file is not valid UTF-8")]) from None
    return parse_pipeline(text, file, os.environ if environment is None else environment)


def parse_pipeline(text: str, file: Path, environment: Mapping[str, str]) -> Pipeline:
    report = Report(str(file), environment)
    fields = _top(text, report)
    pipeline = _parse(fields, file)
    fields.report_unknown_keys()
    if report.problems:
        raise PipelineError(report.problems)
    return pipeline


def _top(text: str, report: Report) -> Fields:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        message = f"the file is not valid YAML: {error.problem}"
        raise PipelineError([Problem(Location(report.file, line), message)]) from None
    except yaml.YAMLError as error:
        raise PipelineError([Problem(Location(report.file, 1), f"the file is not valid YAML: {error}")]) from None
    if not isinstance(node, yaml.MappingNode):
        message = "a pipeline must be a YAML mapping, with the keys name, sources and sinks"
        raise PipelineError([Problem(Location(report.file, 1), message)])
    return Fields(node, report, "the pipeline")


def _parse(fields: Fields, file: Path) -> Pipeline:
    name = fields.required("name")
    if name and not PIPELINE_NAME.fullmatch(name):
        fields.add_problem("name", f"the name {name} {PIPELINE_NAME_FORM}")
    sources = _parse_sources(fields, file)
    transforms = _parse_transforms(fields, file, sources)
    sinks = _parse_sinks(fields, file, (*sources, *transforms))
    platform = fields.child("platform")
    pipeline = Pipeline(
        name=name,
        file=file,
        location=fields.location,
        platform={} if platform is None else dict(platform.all_pairs()),
        platform_location=fields.location_of("platform"),
        platform_locations={} if platform is None else {key: platform.location_of(key) for key in platform.names()},
        trigger=_parse_trigger(fields),
        delivery=cast(Delivery, fields.choice("delivery", ("exactly-once", "at-least-once"), "exactly-once")),
        checkpoint=resolve_path(file, fields.text("checkpoint") or f"checkpoints/{name}"),
        on_error=cast(OnError, fields.choice("on_error", ("fail", "null", "dead-letter"), "fail")),
        dead_letter_topic=_parse_dead_letters(fields),
        restarts_max=fields.whole_number("restarts", _RESTARTS_MAX, minimum=0),
        sources=sources,
        transforms=transforms,
        sinks=sinks,
    )
    fields.report.problems += find_inconsistencies(pipeline)
    return pipeline


def _parse_dead_letters(fields: Fields) -> str | None:
    inner = fields.child("dead_letters")
    if inner is None:
        return None
    if fields.text("on_error") != "dead-letter":
        fields.add_problem("dead_letters", "dead_letters needs on_error: dead-letter")
    topic = topic_name(inner)
    inner.report_unknown_keys()
    return topic


def _parse_trigger(fields: Fields) -> Trigger:
    text = fields.text("trigger") or "continuous"
    if text == "available-now":
        return AvailableNow()
    interval = text.removeprefix("every ")
    if interval != text and is_interval(interval):
        return Every(interval)
    if text != "continuous":
        fields.add_problem(
            "trigger",
            f"trigger is {text}, but must be continuous, available-now or an interval such as every {INTERVAL_FORM}",
        )
    return Continuous()


def _parse_sources(fields: Fields, file: Path) -> dict[str, Source]:
    inner = fields.child("sources")
    if inner is None or not inner.names():
        if inner is not None or not fields.has("sources"):
            fields.report.add(fields.location_of("sources"), "the pipeline needs at least one source")
        return {}
    found: list[Source | None] = []
    for name in inner.names():
        node = inner.node_of(name)
        assert node is not None
        _check_name(name, inner.location_of(name), fields.report)
        found.append(parse_source(name, inner.mapping(node, f"source {name}"), file))
    return _by_name(found)


def _by_name(found: Iterable[_Named | None]) -> dict[str, _Named]:
    return {each.name: each for each in found if each is not None}


def _check_name(name: str, location: Location, report: Report) -> None:
    if name and not _RELATION_NAME.fullmatch(name):
        report.add(
            location,
            f"the name {name} must begin with a letter and have only letters, digits and underscores: SQL refers to it",
        )


def _parse_transforms(fields: Fields, file: Path, sources: Mapping[str, Source]) -> dict[str, Transform]:
    found: dict[str, Transform] = {}
    for number, node in enumerate(fields.children("transforms"), start=1):
        inner = fields.mapping(node, f"transform {number}")
        if inner is None:
            continue
        transform = _parse_transform(inner, file, (*sources, *found))
        if transform.name in sources or transform.name in found:
            inner.add_problem(
                "name", f"the name {transform.name} is already used above: give the transform another name"
            )
        found[transform.name] = transform
    return found


def _parse_transform(fields: Fields, file: Path, above: Sequence[str]) -> Transform:
    name = fields.required("name")
    fields.what = f"transform {name}" if name else fields.what
    _check_name(name, fields.location_of("name"), fields.report)
    # `fields.kind` has reported a missing or ambiguous kind; parse one anyway, to find further problems.
    kind = fields.kind(_TRANSFORM_KINDS) or next(filter(fields.has, _TRANSFORM_KINDS), "steps")
    transform = _TRANSFORMS[kind](name, fields, file, above)
    fields.report_unknown_keys()
    return transform


def _parse_from(fields: Fields, above: Sequence[str]) -> tuple[str, ...]:
    names = fields.required_texts("from")
    for name in names:
        if name not in above:
            fields.add_problem("from", f"no source or transform above is named {name}{suggestion(name, above)}")
    return names


def _one_from(fields: Fields, above: Sequence[str]) -> str:
    names = _parse_from(fields, above)
    if len(names) > 1:
        fields.add_problem("from", f"{fields.what} can read from only one relation, not from {' and '.join(names)}")
    return names[0] if names else ""


def _parse_steps(name: str, fields: Fields, file: Path, above: Sequence[str]) -> Transform:
    steps = [parse_step(node, fields) for node in fields.children("steps")]
    return StepsTransform(
        name=name,
        location=fields.location,
        source=_one_from(fields, above),
        steps=tuple(step for step in steps if step is not None),
        watermark=parse_watermark(fields),
    )


def _parse_sql(name: str, fields: Fields, file: Path, above: Sequence[str]) -> Transform:
    node = fields.node_of("sql")
    if node is not None:
        fields.report.check_block_style(node, f"sql of {fields.what}")
    return SqlTransform(
        name=name,
        location=fields.location,
        text=fields.required("sql"),
        text_location=fields.location if node is None else fields.report.text_location(node),
        watermark=parse_watermark(fields),
    )


def _parse_sql_file(name: str, fields: Fields, file: Path, above: Sequence[str]) -> Transform:
    path = Path(resolve_path(file, fields.required("sql_file")))
    text = path.read_text() if path.is_file() else ""
    if not path.is_file():
        fields.add_problem("sql_file", f"there is no file {path}")
    return SqlTransform(
        name=name,
        location=fields.location,
        text=text,
        text_location=Location(str(path), 1),
        watermark=parse_watermark(fields),
    )


def _parse_python(name: str, fields: Fields, file: Path, above: Sequence[str]) -> Transform:
    path_text, colon, function = fields.required("python").rpartition(":")
    path = Path(resolve_path(file, path_text))
    if not colon or not function.isidentifier():
        fields.add_problem("python", "python must be FILE:FUNCTION, such as enrich.py:enrich")
    elif not path.is_file():
        fields.add_problem("python", f"there is no file {path}")
    return PythonTransform(
        name=name,
        location=fields.location_of("python"),
        sources=_parse_from(fields, above),
        file=path,
        function=function,
        watermark=parse_watermark(fields),
    )


def _parse_deduplicate(name: str, fields: Fields, file: Path, above: Sequence[str]) -> Transform:
    inner = fields.child("deduplicate")
    keys = inner.required_texts("keys") if inner else ()
    within = inner.choice("within", ("watermark", "forever"), "watermark") if inner else "watermark"
    if inner:
        inner.report_unknown_keys()
    return DeduplicateTransform(
        name=name,
        location=fields.location_of("deduplicate"),
        source=_one_from(fields, above),
        keys=keys,
        within_watermark=within == "watermark",
    )


_TRANSFORMS: Final[Mapping[str, Callable[[str, Fields, Path, Sequence[str]], Transform]]] = {
    "steps": _parse_steps,
    "sql": _parse_sql,
    "sql_file": _parse_sql_file,
    "python": _parse_python,
    "deduplicate": _parse_deduplicate,
}


def _parse_sinks(fields: Fields, file: Path, above: Sequence[str]) -> tuple[Sink, ...]:
    nodes = fields.children("sinks")
    if not fields.has("sinks") or fields.is_empty_list("sinks"):
        fields.add_problem("sinks", "the pipeline needs at least one sink")
    found: list[Sink] = []
    for number, node in enumerate(nodes, start=1):
        inner = fields.mapping(node, f"sink {number}")
        sink = None if inner is None else _parse_sink(inner, file, above)
        if sink is not None:
            _check_flow_name(sink, found, fields.report)
            found.append(sink)
    return tuple(found)


def _parse_sink(fields: Fields, file: Path, above: Sequence[str]) -> Sink | None:
    kind, source = fields.kind(SINK_KINDS), _one_from(fields, above)
    if kind is None:
        return None
    sink = parse_sink(kind, source, fields, file)
    fields.report_unknown_keys()
    return sink


def _check_flow_name(sink: Sink, others: Sequence[Sink], report: Report) -> None:
    if any(sink.name == other.name for other in others):
        report.add(sink.location, f"another sink is named {sink.name}: give this one a different name")
    elif sink.name == DEAD_LETTER_FLOW:
        message = (
            f"the name {DEAD_LETTER_FLOW} is reserved for the flow that writes dead letters: give the sink another"
        )
        report.add(sink.location, message)
    elif sink.name and not _FLOW_NAME.fullmatch(sink.name):
        report.add(
            sink.location,
            f"the sink's name {sink.name} must begin with a letter or a digit and have only letters, digits, dots, "
            "dashes and underscores: set name",
        )
