"""Reads topics as tables: the latest record of each key, as of the beginning of a micro-batch.

Spark plans the static side of a join once and uses its tasks for all micro-batches of a query: a plain batch read would
end at the same offsets forever. The tasks of `TableSource` only hold which share of the partitions they read, and look
up the offsets when they run: each micro-batch sees the current content of the topic, including new partitions.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its conventional name
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rookery.base.errors import ApiError
from rookery.base.types import TopicPartition
from rookery.spark.clients import admin_for
from rookery.spark.datasource import DefaultSource
from rookery.spark.failures import request_failed
from rookery.spark.options import ReadOptions
from rookery.spark.source.batch_reader import BatchReader, RangePartition
from rookery.spark.source.lookups import Lookups

if TYPE_CHECKING:
    import pyarrow as pa

    from rookery.pipelines.table_cache import Incarnation
    from rookery.spark.source.task_reader import ReadPlan

TABLE_FORMAT: Final = "rookery-table"


class Share(InputPartition):
    """A task that reads every `count`-th partition of the topics, from `index` on."""

    def __init__(self, index: int, count: int) -> None:
        super().__init__((index, count))
        self.index = index
        self.count = count


class TableSource(DefaultSource):
    """A data source with the options of a batch read of `format("rookery")`."""

    @classmethod
    def name(cls) -> str:
        return TABLE_FORMAT

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(self._plan(schema, streaming=False))


class TableReader(BatchReader):
    """Reads whole partitions, whose offsets the tasks look up. The rows are input for `latest_per_key`."""

    def __init__(self, plan: "ReadPlan") -> None:
        undivided = replace(plan.options, min_partitions=None, max_records_per_partition=None)
        super().__init__(replace(plan, options=undivided))

    def partitions(self) -> list[InputPartition]:
        """Return one share for each existing partition."""
        options = self._plan.options
        count = len(Lookups(options.client_config).existing_partitions(options.selection))
        return [Share(index, count) for index in range(count)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from rookery.pipelines.table_reader import TABLES, read_table

        assert isinstance(partition, Share)
        incarnations = _incarnations(self._plan.options)
        for task in super().partitions():
            if not isinstance(task, RangePartition):
                continue
            tp = task.range.partition
            # A partition that was created after the lookup of the incarnations is read by the next micro-batch.
            if tp.partition % partition.count == partition.index and tp in incarnations:
                yield from read_table(self._plan, task.range, incarnations[tp], TABLES)


def _incarnations(options: ReadOptions) -> "dict[TopicPartition, Incarnation]":
    from rookery.pipelines.table_cache import Incarnation

    config = options.client_config
    names = {tp.topic for tp in Lookups(config).existing_partitions(options.selection)}
    try:
        topics = admin_for(config).describe_topics(names)
    except ApiError as error:
        raise request_failed("looking up the topics", config, error) from None
    return {
        TopicPartition(topic.name, each.index): Incarnation(topic.topic_id, each.leader_epoch)
        for topic in topics
        for each in topic.partitions
    }


def latest_per_key(records: DataFrame) -> DataFrame:
    """Return the last record of each key; a last record without a value deletes its key.

    `records` have the columns of the data source.
    """
    everything = F.struct(*(F.col(name) for name in records.columns))
    keyed = records.where(F.col("key").isNotNull())
    latest = keyed.groupBy("topic", "key").agg(F.max_by(everything, F.col("offset")).alias("latest"))
    return latest.select("latest.*").where(F.col("value").isNotNull())
