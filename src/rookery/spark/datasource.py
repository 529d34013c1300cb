"""`format("rookery")`: the class from which Spark gets the schema, the readers and the writers.

Spark creates an instance in one process, pickles it and requests a reader from it in another process. An instance
therefore holds only its options. Each method imports the modules that it needs, so that a process loads only its part.
"""

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from rookery.spark.compat import Feature, has
from rookery.spark.option_table import FORMAT
from rookery.spark.options import ReadOptions, parse_read_options, parse_write_options

if TYPE_CHECKING:
    from rookery.spark.source.batch_reader import BatchReader
    from rookery.spark.source.stream_reader import StreamReader
    from rookery.spark.source.task_reader import ReadPlan


class DefaultSource(DataSource):
    """The data source. Spark looks for a class of this name in the module `pyspark_rookery`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from rookery.spark.source.schema import plan_decoders, source_schema

        options = parse_read_options(self.options, streaming=None)
        return source_schema(options, plan_decoders(options, partial(_topics, options)))

    def reader(self, schema: StructType) -> "BatchReader":
        from rookery.spark.source.batch_reader import BatchReader

        return BatchReader(self._plan(schema, streaming=False))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        plan = self._plan(schema, streaming=True)
        if has(Feature.ADMISSION_CONTROL):
            from rookery.spark.source.admitting_reader import AdmittingReader

            return AdmittingReader(plan)
        from rookery.spark.source.plain_reader import PlainReader

        return PlainReader(plan)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from rookery.spark.sink.batch_writer import BatchWriter

        return BatchWriter(parse_write_options(self.options, streaming=False), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from rookery.spark.sink.stream_writer import StreamWriter

        return StreamWriter(parse_write_options(self.options, streaming=True), schema)

    def _plan(self, schema: StructType, *, streaming: bool) -> "ReadPlan":
        from rookery.spark.formats.columns import arrow_schema_of
        from rookery.spark.source.schema import check_schema, plan_decoders, source_schema
        from rookery.spark.source.task_reader import ReadPlan

        options = parse_read_options(self.options, streaming=streaming)
        decoders = plan_decoders(options, partial(_topics, options), schema)
        check_schema(source_schema(options, decoders), schema)
        return ReadPlan(options, decoders, arrow_schema_of(schema))


def _topics(options: ReadOptions) -> frozenset[str]:
    """Return the selected topics; the names of subjects are derived from them."""
    from rookery.spark.source.lookups import Lookups

    return frozenset(tp.topic for tp in Lookups(options.client_config).existing_partitions(options.selection))
