"""Builds the flows of a pipeline: one DataFrame per sink, ready to be written.

A flow is one streaming query in its own Spark session. The names of the file are temporary views of that session: SQL
refers to them, and two flows that read the same source do not share its progress. Spark analyses each relation while it
is built; an error of the analysis becomes a `Problem` at the line that caused it, and the relations that depend on the
failed one are not built.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its conventional name
from pyspark.sql.types import StructType

from rookery.base.values import value_class
from rookery.dead_letters.standard import TRANSFORMATION
from rookery.pipelines.explanations import explain
from rookery.pipelines.origins import dead_letter_origins, dependencies, needs_raw_bytes
from rookery.pipelines.progress import COUNT, DEAD_LETTERS, ROWS_OUT, RefusedCounts, observation_name
from rookery.pipelines.sink_rows import SinkRowsError, sink_rows, visible
from rookery.pipelines.sources import FailedRows, SourceReadError, SourceRows, read_source
from rookery.pipelines.spec import (
    DEAD_LETTER_FLOW,
    RAW_COLUMNS,
    RECORD_COLUMNS,
    DeduplicateTransform,
    Location,
    Pipeline,
    PipelineError,
    Problem,
    PythonTransform,
    Sink,
    Source,
    SqlTransform,
    StepsTransform,
    TopicSource,
    Transform,
    Watermark,
)
from rookery.pipelines.steps import ERROR_COLUMN, MissingColumnError, PatternError, apply_step
from rookery.spark.postgres.errors import PostgresError


class FunctionError(Exception):
    """A Python function of the pipeline cannot be used; the message says why."""


_BUILD_ERRORS: Final = (
    PySparkException,
    MissingColumnError,
    PatternError,
    FunctionError,
    SinkRowsError,
    SourceReadError,
    PostgresError,
)


@value_class
class Flow:
    """One streaming query, ready to start.

    `sink` is None for the flow that writes only dead letters. `rows` has the columns that the writer expects, and
    `record_type` the columns of a record before it is encoded. `refused` counts the rows that the sink refuses and that
    become dead letters.
    """

    name: str
    sink: Sink | None
    rows: DataFrame
    record_type: StructType | None
    refused: RefusedCounts = field(default_factory=RefusedCounts)


def build_flows(
    spark: SparkSession, pipeline: Pipeline, *, dead_letters_start_late: bool = False
) -> tuple[list[Flow], list[Problem]]:
    """Build all flows; return the flows that Spark accepts and the problems of the others.

    The flow of dead letters comes first: if it started at the latest offsets after a sink did, it would miss a bad
    record that the sink skipped in between. `dead_letters_start_late` says that sinks have started before it in an
    earlier run; it then reads its topics from the earliest offsets.
    """
    problems: list[Problem] = []
    flows: list[Flow] = []
    built: set[str] = set()
    for sink in (*([None] if dead_letter_origins(pipeline) else []), *pipeline.sinks):
        name = DEAD_LETTER_FLOW if sink is None else sink.name
        is_late = sink is None and dead_letters_start_late
        builder = FlowBuilder(spark.newSession(), _from_earliest(pipeline) if is_late else pipeline, name)
        try:
            rows = builder.dead_letters() if sink is None else builder.rows(sink)
            record_type = None if sink is None else visible(builder.relation(sink.source)).schema
            flows.append(Flow(name, sink, rows, record_type))
        except PipelineError as error:
            problems += error.problems
        built |= builder.built
    rest = [name for name in (*pipeline.sources, *pipeline.transforms) if name not in built]
    problems += _problems_of(spark, pipeline, rest)
    return flows, problems


def _from_earliest(pipeline: Pipeline) -> Pipeline:
    sources = {
        name: replace(
            source,
            starting_offsets="earliest",
            options={key: text for key, text in source.options.items() if not key.lower().startswith("starting")},
        )
        if isinstance(source, TopicSource)
        else source
        for name, source in pipeline.sources.items()
    }
    return replace(pipeline, sources=sources)


def _problems_of(spark: SparkSession, pipeline: Pipeline, names: Collection[str]) -> Iterator[Problem]:
    """Build relations that no flow has built, because an earlier problem stopped it or because no sink uses them."""
    builder = FlowBuilder(spark.newSession(), pipeline, DEAD_LETTER_FLOW)
    for name in names:
        try:
            builder.relation(name)
        except PipelineError as error:
            yield from error.problems


@contextmanager
def errors_reported_at(location: Location, text_location: Location | None = None) -> Iterator[None]:
    """Turn an error of the body into a PipelineError at `location`.

    `text_location` is the location of the first line of a SQL text: if the error names a line of the text, the problem
    is reported at that line.
    """
    try:
        yield
    except _BUILD_ERRORS as error:
        found = explain(str(error))
        where = location if text_location is None or found.line is None else text_location.below(found.line - 1)
        raise PipelineError([Problem(where, found.message)]) from error


class FlowBuilder:
    """Builds the relations of one flow on demand."""

    def __init__(self, session: SparkSession, pipeline: Pipeline, flow: str) -> None:
        self._session = session
        self._pipeline = pipeline
        self._flow = flow
        self._relations: dict[str, DataFrame] = {}
        self._failed: dict[str, tuple[FailedRows, ...]] = {}

    @property
    def built(self) -> set[str]:
        return set(self._relations)

    def dead_letters(self) -> DataFrame:
        letters = [each for origin in dead_letter_origins(self._pipeline) for each in self._dead_letters(origin)]
        return reduce(lambda one, other: one.unionByName(other), letters)

    def rows(self, sink: Sink) -> DataFrame:
        """Return the rows that the flow of `sink` writes."""
        relation = self.relation(sink.source)
        with errors_reported_at(sink.location):
            rows = sink_rows(sink, relation, self._pipeline)
            if not rows.isStreaming:
                raise SinkRowsError(f"{sink.source} is not a stream: it reads only tables")
            return rows.observe(observation_name(ROWS_OUT), F.count(F.lit(1)).alias(COUNT))

    def _dead_letters(self, origin: str) -> Iterator[DataFrame]:
        from rookery.spark.dead_letter_columns import as_dead_letters

        source = self._pipeline.sources.get(origin)
        if isinstance(source, TopicSource) and source.is_table:
            # Flows read a table in batches; the flow of dead letters streams it, so that each bad record is found once.
            with errors_reported_at(source.location):
                self._failed[origin] = self._read(replace(source, is_table=False)).failed
        else:
            self.relation(origin)
        for number, failed in enumerate(self._failed[origin]):
            letters = as_dead_letters(
                failed.rows,
                error_column=failed.error_column,
                stage=failed.stage,
                pipeline=self._pipeline.name,
                topic=self._pipeline.dead_letter_topic,
            )
            name = observation_name(DEAD_LETTERS, f"{origin}.{number}")
            yield letters.observe(name, F.count(F.lit(1)).alias(COUNT))

    def relation(self, name: str) -> DataFrame:
        """Return the source or transform `name`, built with everything that it reads."""
        found = self._relations.get(name)
        if found is None:
            found = self._relations[name] = self._build(name)
            found.createOrReplaceTempView(name)
        return found

    def _build(self, name: str) -> DataFrame:
        source = self._pipeline.sources.get(name)
        if source is None:
            transform = self._pipeline.transforms[name]
            rows = self._transform(transform)
            watermark = None if isinstance(transform, DeduplicateTransform) else transform.watermark
        else:
            with errors_reported_at(source.location):
                read = self._read(source)
            self._failed[name] = read.failed
            rows = read.rows
            watermark = getattr(source, "watermark", None)
        return _watermarked(rows, watermark)

    def _read(self, source: Source) -> SourceRows:
        keeps = needs_raw_bytes(self._pipeline, source.name, self._flow)
        return read_source(self._session, self._pipeline, source, flow=self._flow, needs_raw_bytes=keeps)

    def _transform(self, transform: Transform) -> DataFrame:
        below = [self.relation(name) for name in dependencies(self._pipeline, transform.name)]
        match transform:
            case StepsTransform():
                return self._apply_steps(transform, below[0])
            case SqlTransform():
                with errors_reported_at(transform.text_location, transform.text_location):
                    return self._session.sql(transform.text)
            case PythonTransform():
                with errors_reported_at(transform.location):
                    return _call(transform, below)
            case DeduplicateTransform():
                with errors_reported_at(transform.location):
                    keys = list(transform.keys)
                    return (
                        below[0].dropDuplicatesWithinWatermark(keys)
                        if transform.within_watermark
                        else below[0].dropDuplicates(keys)
                    )

    def _apply_steps(self, transform: StepsTransform, rows: DataFrame) -> DataFrame:
        on_error = self._pipeline.on_error
        if on_error == "dead-letter" and transform.name not in dead_letter_origins(self._pipeline):
            # No flow writes dead letters of these steps: a row that fails would be dropped silently.
            on_error = "fail"
        for step in transform.steps:
            with errors_reported_at(step.location):
                rows = apply_step(step, rows, on_error=on_error)
        if ERROR_COLUMN not in rows.columns:
            return rows
        failed = rows.where(F.col(ERROR_COLUMN).isNotNull())
        self._failed[transform.name] = (FailedRows(_as_records(failed), ERROR_COLUMN, TRANSFORMATION),)
        return rows.where(F.col(ERROR_COLUMN).isNull()).drop(ERROR_COLUMN)


def _watermarked(rows: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return rows
    with errors_reported_at(watermark.location):
        return rows.withWatermark(watermark.column, watermark.delay)


def _call(transform: PythonTransform, arguments: list[DataFrame]) -> DataFrame:
    function = _load_function(transform.file, transform.function)
    try:
        made = function(*arguments)
    except PySparkException:
        raise
    except Exception as error:
        raise FunctionError(f"{transform.function} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, DataFrame):
        raise FunctionError(f"{transform.function} must return a DataFrame, but returned {type(made).__name__}")
    return made


def _load_function(file: Path, name: str) -> Callable[..., Any]:
    """Run `file` and return its function `name`.

    The file is executed as a module that cannot be imported by name: Spark then pickles its functions by value, with
    everything that they use, so that executors need no copy of the file.
    """
    module = ModuleType(f"pipeline:{file.name}")
    module.__file__ = str(file)
    try:
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    except Exception as error:
        raise FunctionError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    function = module.__dict__.get(name)
    if not callable(function):
        raise FunctionError(f"{file} has no function {name}")
    return function  # type: ignore[no-any-return]  # the type of the user's function is unknown


def _as_records(rows: DataFrame) -> DataFrame:
    """Rename the columns of the pipeline's rows to those of the source, from which dead letters are made."""
    names = {**RECORD_COLUMNS, **RAW_COLUMNS}
    return rows.select(*(F.col(shown).alias(name) for name, shown in names.items()), ERROR_COLUMN)
