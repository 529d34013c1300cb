"""A batch read: the range of each partition is determined when the query is planned; tasks then read the ranges."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rookery.spark.offsets import LATEST, Edge
from rookery.spark.option_table import OptionError
from rookery.spark.options import ReadOptions
from rookery.spark.source.lookups import Lookups
from rookery.spark.source.ranges import OffsetRange, ranges_between, split_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from rookery.spark.source.task_reader import ReadPlan


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)
        self.range = value


def tasks_for(options: ReadOptions, ranges: list[OffsetRange]) -> list[InputPartition]:
    parts = split_ranges(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    return [RangePartition(each) for each in parts]


class BatchReader(DataSourceReader):
    def __init__(self, plan: "ReadPlan") -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        options = self._plan.options
        lookups = Lookups(options.client_config)
        found = lookups.existing_partitions(options.selection)
        starts = lookups.resolve(options.starting, found, late=options.late_start)
        ends = lookups.resolve(options.ending or Edge(LATEST), found)
        for tp in sorted(starts.keys() & ends.keys()):
            if starts[tp] > ends[tp]:
                raise OptionError(
                    f"{tp} would be read from offset {starts[tp]} to {ends[tp]}: check the options startingOffsets and "
                    f"endingOffsets, or startingTimestamp and endingTimestamp"
                )
        return tasks_for(options, ranges_between(starts, ends))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        # If there are no partitions, Spark still runs one task, with an empty InputPartition.
        if isinstance(partition, RangePartition):
            yield from self._plan.read(partition.range)
