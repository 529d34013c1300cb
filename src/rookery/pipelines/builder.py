"""Flows: what a pipeline's file says, as DataFrames that are ready to be written, one for each sink.

A flow is one streaming query, in a Spark session of its own in which the names of the file are views: SQL refers to
them, and two flows that read the same source do not share its progress. Everything is analysed by Spark while it is
built; what Spark objects to becomes a `Problem` at the line that it is about, and what depends on it is left out.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import StructType

from rookery.base.values import value_class
from rookery.dead_letters.standard import TRANSFORMATION
from rookery.pipelines.explanations import explain
from rookery.pipelines.origins import dead_letter_origins, dependencies, keeps_bytes
from rookery.pipelines.progress import COUNT, DEAD_LETTERS, ROWS_OUT, observation_name
from rookery.pipelines.python_functions import FunctionError, load_function
from rookery.pipelines.refused_counts import RefusedCounts
from rookery.pipelines.sink_rows import SinkRowsError, sink_rows, visible
from rookery.pipelines.sources import FailedRows, SourceReadError, SourceRows, read_source
from rookery.pipelines.spec import (
    DEAD_LETTER_FLOW,
    RAW_COLUMNS,
    RECORD_COLUMNS,
    DeduplicateTransform,
    Pipeline,
    PipelineError,
    Place,
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

_REFUSALS = (
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
    """`sink` is None of the flow that writes dead letters only. `rows` has the columns that its writer wants;
    `record_type` are those of a record before it was encoded. `refused` counts what its writer makes dead letters of.
    """

    name: str
    sink: Sink | None
    rows: DataFrame
    record_type: StructType | None
    refused: RefusedCounts = field(default_factory=RefusedCounts)


def build_flows(
    spark: SparkSession, pipeline: Pipeline, *, letters_come_later: bool = False
) -> tuple[list[Flow], list[Problem]]:
    """Those that Spark agrees to, and everything that it objects to.

    The flow of dead letters is the first, since one that begins at the latest records must not begin after a sink that
    passes a bad one over. With `letters_come_later` sinks have begun before it, and it looks at everything there is.
    """
    problems: list[Problem] = []
    flows: list[Flow] = []
    built: set[str] = set()
    for sink in (*([None] if dead_letter_origins(pipeline) else []), *pipeline.sinks):
        name = DEAD_LETTER_FLOW if sink is None else sink.name
        is_late = sink is None and letters_come_later
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
    """A flow stops at the first problem: those that are in its way, or in nobody's, are found here."""
    builder = FlowBuilder(spark.newSession(), pipeline, DEAD_LETTER_FLOW)
    for name in names:
        try:
            builder.relation(name)
        except PipelineError as error:
            yield from error.problems


@contextmanager
def refused_at(place: Place, text_place: Place | None = None) -> Iterator[None]:
    """What Spark objects to is a problem of this place; `text_place` is where the first line of a SQL text is."""
    try:
        yield
    except _REFUSALS as error:
        found = explain(str(error))
        where = place if text_place is None or found.line is None else text_place.below(found.line - 1)
        raise PipelineError([Problem(where, found.message)]) from error


class FlowBuilder:
    """The relations of one flow, made when they are needed."""

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
        """What the flow of a sink writes."""
        relation = self.relation(sink.source)
        with refused_at(sink.place):
            rows = sink_rows(sink, relation, self._pipeline)
            if not rows.isStreaming:
                raise SinkRowsError(f"nothing in {sink.source} is a stream: only tables are below it")
            return rows.observe(observation_name(ROWS_OUT), F.count(F.lit(1)).alias(COUNT))

    def _dead_letters(self, origin: str) -> Iterator[DataFrame]:
        from rookery.spark.dead_letter_columns import as_dead_letters

        source = self._pipeline.sources.get(origin)
        if isinstance(source, TopicSource) and source.is_table:
            # The flow of dead letters is the one that streams it.
            with refused_at(source.place):
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
        """A source or a transform by its name, with everything below it."""
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
            with refused_at(source.place):
                read = self._read(source)
            self._failed[name] = read.failed
            rows = read.rows
            watermark = getattr(source, "watermark", None)
        return _watermarked(rows, watermark)

    def _read(self, source: Source) -> SourceRows:
        keeps = keeps_bytes(self._pipeline, source.name, self._flow)
        return read_source(self._session, self._pipeline, source, flow=self._flow, keeps_bytes=keeps)

    def _transform(self, transform: Transform) -> DataFrame:
        below = [self.relation(name) for name in dependencies(self._pipeline, transform.name)]
        match transform:
            case StepsTransform():
                return self._apply_steps(transform, below[0])
            case SqlTransform():
                with refused_at(transform.text_place, transform.text_place):
                    return self._session.sql(transform.text)
            case PythonTransform():
                with refused_at(transform.place):
                    return _call(transform, below)
            case DeduplicateTransform():
                with refused_at(transform.place):
                    keys = list(transform.keys)
                    return (
                        below[0].dropDuplicatesWithinWatermark(keys)
                        if transform.within_watermark
                        else below[0].dropDuplicates(keys)
                    )

    def _apply_steps(self, transform: StepsTransform, rows: DataFrame) -> DataFrame:
        on_error = self._pipeline.on_error
        if on_error == "dead-letter" and transform.name not in dead_letter_origins(self._pipeline):
            # Nobody would write the dead letter of a row that fails.
            on_error = "fail"
        for step in transform.steps:
            with refused_at(step.place):
                rows = apply_step(step, rows, on_error=on_error)
        if ERROR_COLUMN not in rows.columns:
            return rows
        failed = rows.where(F.col(ERROR_COLUMN).isNotNull())
        self._failed[transform.name] = (FailedRows(_as_records(failed), ERROR_COLUMN, TRANSFORMATION),)
        return rows.where(F.col(ERROR_COLUMN).isNull()).drop(ERROR_COLUMN)


def _watermarked(rows: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return rows
    with refused_at(watermark.place):
        return rows.withWatermark(watermark.column, watermark.delay)


def _call(transform: PythonTransform, arguments: list[DataFrame]) -> DataFrame:
    function = load_function(transform.file, transform.function)
    try:
        made = function(*arguments)
    except PySparkException:
        raise
    except Exception as error:
        raise FunctionError(f"{transform.function} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, DataFrame):
        raise FunctionError(f"{transform.function} must return a DataFrame, and returned {type(made).__name__}")
    return made


def _as_records(rows: DataFrame) -> DataFrame:
    """Rows of the pipeline with the columns of the source that dead letters are made of."""
    names = {**RECORD_COLUMNS, **RAW_COLUMNS}
    return rows.select(*(F.col(shown).alias(name) for name, shown in names.items()), ERROR_COLUMN)
