"""The source under another name, with the stream reader of Spark 4.0 and 4.1 in every version.

A separate module, because it is pickled by value.
"""

from pyspark.sql.types import StructType

from rookery.spark.datasource import DefaultSource
from rookery.spark.source.plain_reader import PlainReader


class PlainSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "plain-rookery"

    def streamReader(self, schema: StructType) -> PlainReader:  # noqa: N802 - Spark's name
        return PlainReader(self._plan(schema, streaming=True))
