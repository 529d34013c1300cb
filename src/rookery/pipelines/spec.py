"""The content of a pipeline's file, as values. Each has its location, so that every error can name file and line.

`parser` creates them, and `builder` makes DataFrames of them. Names are those of Structured Streaming where it has
them. Fields that may hold passwords are excluded from reprs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from rookery.base.errors import RookeryError
from rookery.base.values import value_class

OnError: TypeAlias = Literal["fail", "null", "dead-letter"]
Delivery: TypeAlias = Literal["exactly-once", "at-least-once"]
OutputMode: TypeAlias = Literal["append", "update", "complete"]
MaskMethod: TypeAlias = Literal["redact", "hash", "null"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]

# Columns that describe the source record, next to the columns of its value. Sinks do not write them.
KEY_COLUMN: Final = "_key"
ROUTE_COLUMN: Final = "_route"
HEADERS_COLUMN: Final = "_headers"
# Whether the source record had no value, and must be written without one.
TOMBSTONE_COLUMN: Final = "_tombstone"
# The original bytes of records whose steps can fail, for their dead letters.
RAW_COLUMNS: Final = {"rawKey": "_raw_key", "rawValue": "_raw_value", "headers": "_raw_headers"}
# Columns of the data source, and their names in a pipeline.
RECORD_COLUMNS: Final = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "headers": HEADERS_COLUMN,
}
HIDDEN_COLUMNS: Final = (
    KEY_COLUMN,
    TOMBSTONE_COLUMN,
    *RECORD_COLUMNS.values(),
    *RAW_COLUMNS.values(),
    ROUTE_COLUMN,
)
# The units in which a number can be a timestamp.
UNIX_FORMS: Final = ("unix", "unix_ms", "unix_us")
# The name of the flow that writes the dead letters of sources and steps.
DEAD_LETTER_FLOW: Final = "dead-letters"


@value_class
class Location:
    """A line of a pipeline's file, or of a SQL file that it refers to."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def below(self, lines: int) -> "Location":
        return Location(self.file, self.line + lines)


@value_class
class Problem:
    location: Location
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


class PipelineError(RookeryError):
    """A pipeline cannot run as it is written; has all problems that were found, in the file's order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(
            dict.fromkeys(problems), key=lambda problem: (problem.location.file, problem.location.line)
        )
        super().__init__("\n".join(map(str, self.problems)))


class FlowFailedError(RookeryError):
    """A flow failed and will not be restarted; the others are stopped."""


@value_class
class Watermark:
    location: Location
    column: str
    delay: str


@value_class(kw_only=True)
class TopicSource:
    name: str
    location: Location
    topics: tuple[str, ...]
    is_table: bool
    key_format: str | None
    value_format: str | None
    value_schema: str | None
    starting_offsets: str
    watermark: Watermark | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class FileSource:
    name: str
    location: Location
    path: str
    format: str
    is_table: bool
    schema: str | None
    watermark: Watermark | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class PostgresSource:
    """A table or a query, read again for each micro-batch."""

    name: str
    location: Location
    connection: str = field(repr=False)
    table: str | None
    query: str | None
    # Splits the read into several tasks.
    partition_column: str | None
    partitions: int


@value_class(kw_only=True)
class JdbcSource:
    """A table or a query of any database, read by Spark's own reader with a driver that the user provides."""

    name: str
    location: Location
    url: str = field(repr=False)
    table: str | None
    query: str | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class GeneratorSource:
    name: str
    location: Location
    rows_per_second: int
    watermark: Watermark | None
    options: Mapping[str, str]


Source: TypeAlias = TopicSource | FileSource | PostgresSource | JdbcSource | GeneratorSource


@value_class
class Mask:
    location: Location
    methods: tuple[tuple[str, MaskMethod], ...]


@value_class
class Rename:
    location: Location
    names: Pairs


@value_class
class Cast:
    location: Location
    types: Pairs


@value_class
class Filter:
    location: Location
    condition: str


@value_class
class Route:
    location: Location
    topic: str


@value_class
class Flatten:
    """Flattens structs; an empty `columns` means all of them."""

    location: Location
    columns: tuple[str, ...]
    separator: str


@value_class
class ToTimestamp:
    """Converts numbers by one of UNIX_FORMS, or strings by a pattern of Spark."""

    location: Location
    formats: Pairs


@value_class
class Drop:
    location: Location
    columns: tuple[str, ...]


@value_class
class Set:
    location: Location
    expressions: Pairs


Step: TypeAlias = Mask | Rename | Cast | Filter | Route | Flatten | ToTimestamp | Drop | Set


@value_class(kw_only=True)
class StepsTransform:
    name: str
    location: Location
    source: str
    steps: tuple[Step, ...]
    watermark: Watermark | None


@value_class(kw_only=True)
class SqlTransform:
    """`text_location` is the location of the text's first line, in the pipeline's file or in a SQL file."""

    name: str
    location: Location
    text: str
    text_location: Location
    watermark: Watermark | None


@value_class(kw_only=True)
class PythonTransform:
    name: str
    location: Location
    sources: tuple[str, ...]
    file: Path
    function: str
    watermark: Watermark | None


@value_class(kw_only=True)
class DeduplicateTransform:
    """With `within_watermark`, keys are dropped after the watermark's delay; without it, all are kept forever."""

    name: str
    location: Location
    source: str
    keys: tuple[str, ...]
    within_watermark: bool


Transform: TypeAlias = StepsTransform | SqlTransform | PythonTransform | DeduplicateTransform


@value_class(kw_only=True)
class TopicSink:
    """Without a format, a single column `value` of bytes or text is written as it is, and everything else as JSON.

    `partitions` is the number of partitions if the topic is created; None leaves it to the broker.
    """

    name: str
    location: Location
    source: str
    topic: str
    key: str | None
    key_format: str | None
    value_format: str | None
    value_schema: str | None
    partitions: int | None
    output_mode: OutputMode
    options: Mapping[str, str] = field(repr=False)

    @property
    def subject(self) -> str:
        """The registry's subject for the schema of values."""
        given = {name.lower(): text for name, text in self.options.items()}
        return given.get("valuesubject", f"{self.topic}-value")


@value_class(kw_only=True)
class ParquetSink:
    name: str
    location: Location
    source: str
    path: str
    partition_by: tuple[str, ...]
    target_file_size_bytes: int | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class PostgresSink:
    """Without a key, rows are appended; with a key, they replace or delete the rows with the same key.

    If several rows of a batch have the same key, the last one by `order_by` counts.
    """

    name: str
    location: Location
    source: str
    connection: str = field(repr=False)
    table: str
    key: tuple[str, ...]
    order_by: str | None
    delete_when: str | None
    output_mode: OutputMode


@value_class(kw_only=True)
class ConsoleSink:
    name: str
    location: Location
    source: str
    output_mode: OutputMode
    options: Mapping[str, str]


Sink: TypeAlias = TopicSink | ParquetSink | PostgresSink | ConsoleSink


@value_class
class Continuous:
    """The next micro-batch begins when the last one is done and there are new records."""


@value_class
class AvailableNow:
    """The flow processes the records that exist at its start, then ends."""


@value_class
class Every:
    """A micro-batch begins at each interval, such as `10 seconds`."""

    interval: str


Trigger: TypeAlias = Continuous | AvailableNow | Every


@value_class(kw_only=True)
class Pipeline:
    name: str
    file: Path
    location: Location
    platform: Mapping[str, str] = field(repr=False)
    platform_location: Location
    platform_locations: Mapping[str, Location]
    trigger: Trigger
    delivery: Delivery
    checkpoint: str
    on_error: OnError
    # None: each topic has its own, `<topic>.dlq`.
    dead_letter_topic: str | None
    restarts_max: int
    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    sinks: tuple[Sink, ...]

    @property
    def bootstrap_servers(self) -> str | None:
        return self.platform.get("bootstrap.servers")

    @property
    def registry_url(self) -> str | None:
        return self.platform.get("schema.registry.url")

    def group_id(self, flow: str) -> str:
        """Return the group to which a flow commits its offsets, so that tools can show its lag."""
        return f"{self.name}.{flow}"

    def checkpoint_of(self, flow: str) -> str:
        return f"{self.checkpoint.rstrip('/')}/{flow}"
