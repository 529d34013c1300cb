"""The stream reader for Spark 4.0 and 4.1, which have no admission control for sources in Python.

Spark requests the latest offset and passes neither the position of the query nor its trigger. The reader tracks the
position itself: it is the end that the reader returned last, which Spark always uses as the end of the next
micro-batch. After a restart, Spark first requests the partitions of the last micro-batch, whose end is the position.

The reader cannot determine the trigger. These versions of Spark run Trigger.AvailableNow as a single micro-batch, like
Trigger.Once: records beyond a limit would stay unread, although the query ends as if it had read all. Without the
option trigger, a micro-batch therefore takes all available records, and limits are an error.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from rookery.base.clock import Clock
from rookery.spark.compat import Feature, lacking
from rookery.spark.offsets import OffsetJson
from rookery.spark.option_table import OptionError
from rookery.spark.options import ReadOptions
from rookery.spark.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from rookery.spark.source.task_reader import ReadPlan

_REMEDY: Final = (
    "Set the option trigger as well: processing-time applies the limits; available-now and once read everything in one "
    "micro-batch, which is what this version of Spark does with these triggers"
)


class PlainReader(StreamReader):
    def __init__(self, plan: "ReadPlan", *, clock: Clock | None = None) -> None:
        _check_limits(plan.options)
        super().__init__(plan, clock=clock)
        self._takes_all = plan.options.trigger != "processing-time"
        self._position: OffsetJson | None = None

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802 - Spark's name, of these versions
        start = self.initialOffset() if self._position is None else self._position
        self._position = self.next_end(start, takes_all=self._takes_all)
        return self._position

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        self._position = end
        return super().partitions(start, end)


def _check_limits(options: ReadOptions) -> None:
    limits = {
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "minOffsetsPerTrigger": options.min_offsets_per_trigger,
        "maxBytesPerTrigger": options.max_bytes_per_trigger,
    }
    given = next((name for name, limit in limits.items() if limit is not None), None)
    if given is not None and options.trigger is None:
        text = lacking(Feature.ADMISSION_CONTROL, f"option {given}, without the option trigger,")
        raise OptionError(f"{text}. {_REMEDY}")
