"""Checks a pipeline against its PostgreSQL databases: tables and queries can be read, and the user may write."""

from collections.abc import Iterator

from rookery.pipelines.spec import Pipeline, PostgresSink, PostgresSource, Problem


def check_databases(pipeline: Pipeline) -> Iterator[Problem]:
    for source in pipeline.sources.values():
        if isinstance(source, PostgresSource):
            yield from _check_source(source)
    for sink in pipeline.sinks:
        if isinstance(sink, PostgresSink):
            yield from _check_sink(sink)


def _check_source(source: PostgresSource) -> Iterator[Problem]:
    from rookery.spark.postgres.errors import PostgresError
    from rookery.spark.postgres.source import plan_parts

    try:
        plan_parts(source.connection, table=source.table, query=source.query, partition_column=None, partitions=1)
    except PostgresError as error:
        yield Problem(source.location, str(error))


def _check_sink(sink: PostgresSink) -> Iterator[Problem]:
    from rookery.spark.postgres.errors import PostgresError
    from rookery.spark.postgres.rights import sink_problems

    try:
        problems = sink_problems(
            sink.connection, sink.table, has_key=bool(sink.key), deletes=sink.delete_when is not None
        )
    except PostgresError as error:
        problems = [str(error)]
    yield from (Problem(sink.location, f"table {sink.table}: {problem}") for problem in problems)
