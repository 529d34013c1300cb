"""Topics as tables: the latest record of each key, as it is when a micro-batch begins.

Spark plans the static side of a join once and keeps its tasks for all micro-batches of a query, so that a plain batch
read would end at the same offsets for ever. `TableSource` has tasks that only say which share of the partitions is
theirs, and plans inside the task: each micro-batch sees what the topic holds then, new partitions included.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rookery.spark.datasource import DefaultSource
from rookery.spark.options import ReadOptions, parse_read_options
from rookery.spark.source.batch_reader import BatchReader, RangePartition
from rookery.spark.source.lookups import Lookups

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_FORMAT: Final = "rookery-table"


class Share(InputPartition):
    """Every `count`-th partition of the topics, from `index` on."""

    def __init__(self, index: int, count: int) -> None:
        super().__init__((index, count))
        self.index = index
        self.count = count


class TableSource(DataSource):
    """The options are those of `format("rookery")`."""

    @classmethod
    def name(cls) -> str:
        return TABLE_FORMAT

    def schema(self) -> StructType:
        return DefaultSource(self.options).schema()

    def reader(self, schema: StructType) -> "TableReader":
        options = parse_read_options(self.options, streaming=False)
        return TableReader(options, DefaultSource(self.options).reader(schema))


class TableReader(DataSourceReader):
    def __init__(self, options: ReadOptions, reader: BatchReader) -> None:
        self._options = options
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        """As many as there are partitions now."""
        found = Lookups(self._options.client_config).existing_partitions(self._options.selection)
        return [Share(index, len(found)) for index in range(len(found))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Share)
        for task in self._reader.partitions():
            if isinstance(task, RangePartition) and task.range.partition.partition % partition.count == partition.index:
                yield from self._reader.read(task)


def latest_per_key(records: DataFrame) -> DataFrame:
    """Of records in the source's columns: the last one of each key, unless it has no value, which removes the key."""
    everything = F.struct(*(F.col(name) for name in records.columns))
    keyed = records.where(F.col("key").isNotNull())
    latest = keyed.groupBy("topic", "key").agg(F.max_by(everything, F.col("offset")).alias("latest"))
    return latest.select("latest.*").where(F.col("value").isNotNull())
