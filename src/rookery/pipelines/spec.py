"""What a pipeline's file says, as values. Each knows its place in the file, so that every error can name file and line.

`parser` makes them, `builder` makes DataFrames of them. Names are those of Structured Streaming where it has them.
What a connection is made with is in no repr: there are passwords in it.
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

# Beside a record's own columns: where it comes from. Sinks leave them out of what they write.
KEY_COLUMN: Final = "_key"
ROUTE_COLUMN: Final = "_route"
HEADERS_COLUMN: Final = "_headers"
# Whether the record came without a value, and is to be written without one.
TOMBSTONE_COLUMN: Final = "_tombstone"
# The bytes of records whose steps can fail, for their dead letters.
RAW_COLUMNS: Final = {"rawKey": "_raw_key", "rawValue": "_raw_value", "headers": "_raw_headers"}
# Column of the data source: name in a pipeline.
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
# How a number may tell a time.
UNIX_FORMS: Final = ("unix", "unix_ms", "unix_us")
# The flow that writes all dead letters.
DEAD_LETTER_FLOW: Final = "dead-letters"


@value_class
class Place:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def below(self, lines: int) -> "Place":
        return Place(self.file, self.line + lines)


@value_class
class Problem:
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PipelineError(RookeryError):
    """A pipeline cannot run as it is written: all problems that were found, in the file's order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(dict.fromkeys(problems), key=lambda problem: (problem.place.file, problem.place.line))
        super().__init__("\n".join(map(str, self.problems)))


class FlowFailedError(RookeryError):
    """A flow failed and will not be started again; the others are stopped."""


@value_class
class Watermark:
    place: Place
    column: str
    delay: str


@value_class(kw_only=True)
class TopicSource:
    name: str
    place: Place
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
    place: Place
    path: str
    format: str
    is_table: bool
    schema: str | None
    watermark: Watermark | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class PostgresSource:
    """A table or a query, read anew with each micro-batch."""

    name: str
    place: Place
    connection: str = field(repr=False)
    table: str | None
    query: str | None
    # To read it in several tasks.
    partition_column: str | None
    partitions: int


@value_class(kw_only=True)
class JdbcSource:
    """A table or a query of any database, by Spark's own reader and a driver that the user brings."""

    name: str
    place: Place
    url: str = field(repr=False)
    table: str | None
    query: str | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class GeneratorSource:
    name: str
    place: Place
    rows_per_second: int
    watermark: Watermark | None
    options: Mapping[str, str]


Source: TypeAlias = TopicSource | FileSource | PostgresSource | JdbcSource | GeneratorSource


@value_class
class Mask:
    place: Place
    methods: tuple[tuple[str, MaskMethod], ...]


@value_class
class Rename:
    place: Place
    names: Pairs


@value_class
class Cast:
    place: Place
    types: Pairs


@value_class
class Filter:
    place: Place
    condition: str


@value_class
class Route:
    place: Place
    topic: str


@value_class
class Flatten:
    """No columns: all structs."""

    place: Place
    columns: tuple[str, ...]
    separator: str


@value_class
class ToTimestamp:
    """From numbers by one of UNIX_FORMS, or from texts by a pattern of Spark's."""

    place: Place
    formats: Pairs


@value_class
class Drop:
    place: Place
    columns: tuple[str, ...]


@value_class
class Set:
    place: Place
    expressions: Pairs


Step: TypeAlias = Mask | Rename | Cast | Filter | Route | Flatten | ToTimestamp | Drop | Set


@value_class(kw_only=True)
class StepsTransform:
    name: str
    place: Place
    source: str
    steps: tuple[Step, ...]
    watermark: Watermark | None


@value_class(kw_only=True)
class SqlTransform:
    """`text_place` is where the text's first line is, in the pipeline's file or in one of its own."""

    name: str
    place: Place
    text: str
    text_place: Place
    watermark: Watermark | None


@value_class(kw_only=True)
class PythonTransform:
    name: str
    place: Place
    sources: tuple[str, ...]
    file: Path
    function: str
    watermark: Watermark | None


@value_class(kw_only=True)
class DeduplicateTransform:
    """`within_watermark` forgets keys after the watermark's delay; without, all are kept for ever."""

    name: str
    place: Place
    source: str
    keys: tuple[str, ...]
    within_watermark: bool


Transform: TypeAlias = StepsTransform | SqlTransform | PythonTransform | DeduplicateTransform


@value_class(kw_only=True)
class TopicSink:
    """Without a format, a lone column `value` of bytes or text is written as it is, and everything else as JSON.

    `partitions` are those that the topic gets if it has to be made; None leaves that to the broker.
    """

    name: str
    place: Place
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
        """The registry's name for the schema of values."""
        given = {name.lower(): text for name, text in self.options.items()}
        return given.get("valuesubject", f"{self.topic}-value")


@value_class(kw_only=True)
class ParquetSink:
    name: str
    place: Place
    source: str
    path: str
    partition_by: tuple[str, ...]
    target_file_size_bytes: int | None
    options: Mapping[str, str] = field(repr=False)


@value_class(kw_only=True)
class PostgresSink:
    """Without a key rows are appended; with one they replace those with the same key, or delete them.

    Of several rows with one key in a batch the one counts that is last by `order_by`.
    """

    name: str
    place: Place
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
    place: Place
    source: str
    output_mode: OutputMode
    options: Mapping[str, str]


Sink: TypeAlias = TopicSink | ParquetSink | PostgresSink | ConsoleSink


@value_class
class Continuous:
    """The next micro-batch begins when the last one is done and there is something new."""


@value_class
class AvailableNow:
    """What is there at the start, then the end."""


@value_class
class Every:
    interval: str


Trigger: TypeAlias = Continuous | AvailableNow | Every


@value_class(kw_only=True)
class Pipeline:
    name: str
    file: Path
    place: Place
    platform: Mapping[str, str] = field(repr=False)
    platform_place: Place
    platform_places: Mapping[str, Place]
    trigger: Trigger
    delivery: Delivery
    checkpoint: str
    on_error: OnError
    # None: `<topic>.dlq` of each topic.
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
        """The group that a flow commits its offsets to, so that its lag shows."""
        return f"{self.name}.{flow}"

    def checkpoint_of(self, flow: str) -> str:
        return f"{self.checkpoint.rstrip('/')}/{flow}"
