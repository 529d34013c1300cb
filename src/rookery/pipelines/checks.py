"""What must be true before a pipeline starts, and Spark is needed to tell: it agrees, and sinks take what is written.

Each check gives problems with their places, and all are told at once. The platform was asked before
(`platform.check_platform`): of what it does not have, Spark would complain in other words.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rookery.base.errors import RookeryError
from rookery.pipelines.builder import Flow, build_flows
from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.explanations import explain, in_words_of_the_file
from rookery.pipelines.pins import check_pins, letters_come_later
from rookery.pipelines.platform import registry_client
from rookery.pipelines.sinks import output_mode
from rookery.pipelines.spec import Pipeline, PipelineError, PostgresSink, Problem, TopicSink
from rookery.serdes import Schema
from rookery.serdes.errors import RegistryRequestError
from rookery.spark.formats import FormatError
from rookery.spark.formats.avro.derived_schema import derive_schema
from rookery.spark.formats.codec_plan import SCHEMA_TYPES

_NOT_FOUND: Final = 404


def check_pipeline(spark: SparkSession, pipeline: Pipeline) -> list[Flow]:
    """The flows, ready to start; or PipelineError."""
    files = CheckpointFiles(spark)
    flows, problems = build_flows(spark, pipeline, letters_come_later=letters_come_later(pipeline, files))
    problems += check_pins(pipeline, files)
    for flow in flows:
        problems += [*_check_output_mode(flow, pipeline), *_check_postgres(flow), *_check_schema(flow, pipeline)]
    if problems:
        raise PipelineError(problems)
    return flows


def _check_output_mode(flow: Flow, pipeline: Pipeline) -> Iterator[Problem]:
    """Spark's own rules about watermarks, aggregates and output modes, which it applies only when a query starts."""
    jvm: Any = flow.rows.sparkSession._jvm
    plan: Any = flow.rows._jdf.queryExecution().analyzed()
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode(flow.sink)]()
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except PySparkException as error:
        place = pipeline.place if flow.sink is None else flow.sink.place
        yield Problem(place, explain(str(error)).message)


def _check_postgres(flow: Flow) -> Iterator[Problem]:
    sink = flow.sink
    if not isinstance(sink, PostgresSink) or flow.record_type is None:
        return
    from rookery.spark.postgres.errors import PostgresError
    from rookery.spark.postgres.rights import column_problems
    from rookery.spark.postgres.tables import check_table

    try:
        problems = check_table(sink.connection, sink.table, flow.record_type, sink.key)
        problems += column_problems(sink.connection, sink.table, flow.record_type.names, sink.key)
    except PostgresError as error:
        problems = [str(error)]
    yield from (Problem(sink.place, f"table {sink.table}: {problem}") for problem in problems)


def _check_schema(flow: Flow, pipeline: Pipeline) -> Iterator[Problem]:
    """The schema that a topic sink will register must be compatible with those that are there. Registers nothing."""
    sink = flow.sink
    if not isinstance(sink, TopicSink) or sink.value_format not in SCHEMA_TYPES or flow.record_type is None:
        return
    subject = sink.subject
    try:
        text = sink.value_schema or (derive_schema(flow.record_type) if sink.value_format == "avro" else None)
        with registry_client(pipeline) as client:
            if text is None:
                client.get_version(subject)
                return
            found = client.test_compatibility(subject, Schema(text, SCHEMA_TYPES[sink.value_format]))
    except RegistryRequestError as error:
        if error.status != _NOT_FOUND:
            yield Problem(sink.place, str(error))
        elif text is None:
            yield Problem(sink.place, f"value_schema is needed: the registry has no schema {subject}")
    except (FormatError, RookeryError) as error:
        yield Problem(sink.place, in_words_of_the_file(str(error)))
    else:
        if not found.is_compatible:
            reasons = "; ".join(found.messages) or "the registry does not say why"
            yield Problem(sink.place, f"what would be written is incompatible with {subject}: {reasons}")
