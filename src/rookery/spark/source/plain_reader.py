"""A stream under Spark 4.0 and 4.1, which have no admission control for sources in Python.

Spark asks for the latest offset and says neither where the query is nor what its trigger is. The reader keeps the
position itself. It is the end that it gave last, which Spark always takes as the end of the next micro-batch; a query
that is started again is asked for the partitions of its last micro-batch first, whose end is the position.

The trigger cannot be found out. Spark runs Trigger.AvailableNow as a single micro-batch here, like Trigger.Once: what a
limit leaves out of it would stay unread, though the query ends as if it had read all. Without the option trigger, a
micro-batch therefore takes all there is, and limits are refused.
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
    "Set the option trigger as well: processing-time keeps the limits; available-now and once read everything in one "
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
