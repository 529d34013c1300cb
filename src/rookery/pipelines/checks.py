"""The checks before a pipeline starts that need Spark: its queries are valid, and its sinks accept the rows.

Each check yields problems with their locations, and one `PipelineError` reports all of them. `platform.check_platform`
runs before: for a missing topic or table, Spark would report an error that is harder to understand.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rookery.base.errors import RookeryError
from rookery.pipelines.builder import Flow, build_flows
from rookery.pipelines.checkpoint_files import CheckpointFiles
from rookery.pipelines.explanations import explain, with_file_keys
from rookery.pipelines.pins import check_pins, dead_letters_start_late
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
    """Build and check the flows; return them ready to start. Raises PipelineError."""
    files = CheckpointFiles(spark)
    flows, problems = build_flows(spark, pipeline, dead_letters_start_late=dead_letters_start_late(pipeline, files))
    problems += check_pins(pipeline, files)
    for flow in flows:
        problems += [*_check_output_mode(flow, pipeline), *_check_postgres(flow), *_check_schema(flow, pipeline)]
    if problems:
        raise PipelineError(problems)
    return flows


def _check_output_mode(flow: Flow, pipeline: Pipeline) -> Iterator[Problem]:
    """Apply Spark's rules on watermarks, aggregates and output modes, which Spark itself checks when a query starts."""
    jvm: Any = flow.rows.sparkSession._jvm
    plan: Any = flow.rows._jdf.queryExecution().analyzed()
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output_mode(flow.sink)]()
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except PySparkException as error:
        location = pipeline.location if flow.sink is None else flow.sink.location
        yield Problem(location, explain(str(error)).message)


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
    yield from (Problem(sink.location, f"table {sink.table}: {problem}") for problem in problems)


def _check_schema(flow: Flow, pipeline: Pipeline) -> Iterator[Problem]:
    """Check that the schema that a topic sink will register is compatible with the registered ones; registers none."""
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
            yield Problem(sink.location, str(error))
        elif text is None:
            yield Problem(sink.location, f"the sink needs value_schema, since the registry has no schema {subject}")
    except (FormatError, RookeryError) as error:
        yield Problem(sink.location, with_file_keys(str(error)))
    else:
        if not found.is_compatible:
            reasons = "; ".join(found.messages) or "the registry does not say why"
            yield Problem(sink.location, f"the schema of the rows is incompatible with {subject}: {reasons}")
