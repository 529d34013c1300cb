"""The options of the source and of the sink, one row each: used to check options and to write docs/spark-options.md.

Names, defaults and meanings are those of Spark's own Kafka connector where it has the option. Spark converts the names
of options to lower case, so that names are not case-sensitive.
"""

import re
from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue
from rookery.base.values import value_class
from rookery.spark.query_error import QueryError

# The name of the source and of the sink in `format(...)`.
FORMAT: Final = "rookery"

_BOOLEAN: Final = ConfigType.BOOLEAN
_INT: Final = ConfigType.INT
_LONG: Final = ConfigType.LONG
_STRING: Final = ConfigType.STRING

# Options with these prefixes go to the client or to the registry's client, without the prefix.
CLIENT_PREFIX: Final = "kafka."
REGISTRY_PREFIX: Final = "schema.registry."

FORMATS: Final = ("avro", "json", "json-schema", "protobuf", "string")
TRIGGERS: Final = ("processing-time", "available-now", "once")
DEFAULT_LEDGER_TOPIC: Final = "__rookery_sink_ledger"

_DURATION: Final = re.compile(r"(-?\d{1,18})\s*([a-z]*)", re.ASCII)
_DURATION_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d{1,18})\s*([a-z]*)", re.ASCII)
_SIZE_LETTERS: Final = ("", "k", "m", "g", "t", "p")


class OptionError(QueryError):
    """An option is invalid; the message names it and says what to change."""

    is_lasting = True


class Scope(Flag):
    """The operations that use an option."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


@value_class
class Option:
    key: ConfigKey
    scopes: Scope

    @property
    def name(self) -> str:
        return self.key.name


def parse_duration_ms(text: str) -> int | None:
    """Parse a duration in Spark's form: `15m`, `90s`, `100ms`, or milliseconds without a unit. None if invalid."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit_ms = _DURATION_MS.get(match[2]) if match else None
    return None if match is None or unit_ms is None else int(match[1]) * unit_ms


def parse_size_bytes(text: str) -> int | None:
    """Parse a size: `64m`, `64mb`, or bytes without a unit. None if invalid."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2].removesuffix("b") not in _SIZE_LETTERS:
        return None
    return int(match[1]) << 10 * _SIZE_LETTERS.index(match[2].removesuffix("b"))


def _duration(value: ConfigValue) -> str | None:
    duration_ms = parse_duration_ms(str(value))
    return None if duration_ms is not None and duration_ms >= 0 else "must be a duration such as 15m, 90s or 500ms"


def _size(value: ConfigValue) -> str | None:
    return None if parse_size_bytes(str(value)) else "must be a size such as 64m or 1g, or a number of bytes, above 0"


def _row(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    scopes: Scope,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: int | None = None,
    effective: bool = True,
) -> Option:
    key = ConfigKey(
        name=name,
        type=kind,
        default=default,
        doc=doc,
        choices=choices,
        any_case=True,
        minimum=minimum,
        check={"maxTriggerDelay": _duration, "maxBytesPerTrigger": _size}.get(name),
        effective=effective,
    )
    return Option(key, scopes)


_WHERE_ROWS: Final = (
    _row(
        "kafka.bootstrap.servers",
        _STRING,
        None,
        Scope.ALL,
        "The brokers to connect to first: host:port, separated by commas. Required.",
    ),
    _row("subscribe", _STRING, None, Scope.READ, "The topics to read, separated by commas."),
    _row(
        "subscribePattern",
        _STRING,
        None,
        Scope.READ,
        "A regular expression of Python's `re` that matches the whole names of the topics to read (Java's `&&` in "
        "`[...]` and `\\p{...}` are errors).",
    ),
    _row("assign", _STRING, None, Scope.READ, 'The partitions to read: `{"clicks": [0, 1]}`.'),
)
_RANGE_ROWS: Final = (
    _row(
        "startingOffsets",
        _STRING,
        None,
        Scope.READ,
        "Where a new query starts: `earliest` (default of batches), `latest` (default of streams), or each partition's "
        'offset, `{"clicks": {"0": 23, "1": -2}}`, where -2 is the earliest and -1 the latest. A restarted stream '
        "continues from its checkpoint.",
    ),
    _row(
        "endingOffsets",
        _STRING,
        None,
        Scope.BATCH_READ,
        "Where a batch ends: `latest` (default), or each partition's offset (-1: the latest).",
    ),
    _row(
        "startingTimestamp",
        _LONG,
        None,
        Scope.READ,
        "Start with the first record of this time (ms) or later. Takes precedence over startingOffsetsByTimestamp.",
        minimum=0,
    ),
    _row(
        "endingTimestamp",
        _LONG,
        None,
        Scope.BATCH_READ,
        "End before the first record of this time (ms) or later; at the latest offset if there is none.",
        minimum=0,
    ),
    _row(
        "startingOffsetsByTimestamp",
        _STRING,
        None,
        Scope.READ,
        'A time (ms) for each partition, `{"clicks": {"0": 1000}}`. Takes precedence over startingOffsets.',
    ),
    _row(
        "endingOffsetsByTimestamp",
        _STRING,
        None,
        Scope.BATCH_READ,
        "A time (ms) for each partition. Takes precedence over endingOffsets.",
    ),
    _row(
        "startingOffsetsByTimestampStrategy",
        _STRING,
        "error",
        Scope.READ,
        "If no record is as late as the time to start at: fail, or start at the latest offset.",
        choices=("error", "latest"),
    ),
    _row(
        "failOnDataLoss",
        _BOOLEAN,
        True,
        Scope.READ,
        "Whether a query fails if data that it has not read no longer exists (retention, deleted topics), or logs a "
        "warning and continues.",
    ),
)
_SPLIT_ROWS: Final = (
    _row(
        "minPartitions",
        _INT,
        None,
        Scope.READ,
        "Split ranges of offsets until there are about this many tasks.",
        minimum=1,
    ),
    _row(
        "maxRecordsPerPartition",
        _LONG,
        None,
        Scope.READ,
        "Split ranges that have more offsets than this.",
        minimum=1,
    ),
    _row(
        "maxOffsetsPerTrigger",
        _LONG,
        None,
        Scope.STREAM_READ,
        "The maximum number of offsets in a micro-batch, shared among partitions in proportion to their lag.",
        minimum=1,
    ),
    _row(
        "minOffsetsPerTrigger",
        _LONG,
        None,
        Scope.STREAM_READ,
        "The minimum number of offsets in a micro-batch, unless maxTriggerDelay has passed since the last one.",
        minimum=1,
    ),
    _row("maxTriggerDelay", _STRING, "15m", Scope.STREAM_READ, "How long minOffsetsPerTrigger may delay data."),
    _row(
        "maxBytesPerTrigger",
        _STRING,
        None,
        Scope.STREAM_READ,
        "The approximate maximum number of bytes in a micro-batch as the broker stores them, such as `64m`. Not in "
        "Spark's connector.",
    ),
    _row(
        "trigger",
        _STRING,
        None,
        Scope.STREAM_READ,
        "The query's trigger, which Spark 4.0 and 4.1 do not pass to a source: there it is required if one of the "
        "limits above is set. Newer versions do not need it. Not in Spark's connector.",
        choices=TRIGGERS,
    ),
)
_READ_ROWS: Final = (
    _row(
        "includeHeaders",
        _BOOLEAN,
        None,
        Scope.ALL,
        "Reading: whether rows have a column headers (default false). Writing: whether that column, if it exists, is "
        "written (default true).",
    ),
    _row(
        "groupId",
        _STRING,
        None,
        Scope.STREAM_READ,
        "The consumer group to which the offsets of finished micro-batches are committed, so that tools show its lag. "
        "Not in Spark's connector.",
    ),
    _row(
        "groupIdPrefix",
        _STRING,
        None,
        Scope.READ,
        "Prefix of the groups that Spark's connector generates; Rookery generates none.",
        effective=False,
    ),
    _row("fetchOffset.numRetries", _INT, 3, Scope.READ, "The client retries until a time-out.", effective=False),
    _row("fetchOffset.retryIntervalMs", _LONG, 10, Scope.READ, "See kafka.retry.backoff.ms.", effective=False),
    _row("kafkaConsumer.pollTimeoutMs", _LONG, None, Scope.READ, "See kafka.request.timeout.ms.", effective=False),
)
_WRITE_ROWS: Final = (
    _row("topic", _STRING, None, Scope.WRITE, "The topic of all rows. Takes precedence over the column topic."),
    _row(
        "delivery",
        _STRING,
        "exactly-once",
        Scope.WRITE,
        "exactly-once: readers of committed records see each batch as a whole and once; at-least-once: no "
        "transactions, and repeated tasks repeat records.",
        choices=("exactly-once", "at-least-once"),
    ),
    _row(
        "ledgerTopic",
        _STRING,
        DEFAULT_LEDGER_TOPIC,
        Scope.WRITE,
        "The compacted topic in which the sink records its decided batches; created if it does not exist.",
    ),
    _row("txnAppId", _STRING, None, Scope.WRITE, "With txnVersion: a name for writes that must happen once."),
    _row(
        "txnVersion",
        _LONG,
        None,
        Scope.BATCH_WRITE,
        "A write is skipped if its txnAppId has already written this version, or a later one, to this topic.",
        minimum=0,
    ),
    _row("streamId", _STRING, None, Scope.BATCH_WRITE, "Set by `TopicSink`: the query whose batch is written."),
    _row("streamBatch", _LONG, None, Scope.BATCH_WRITE, "Set by `TopicSink`: the number of the batch.", minimum=0),
    _row(
        "checkpointLocation",
        _STRING,
        None,
        Scope.STREAM_WRITE,
        "Spark's own option: where the query stores its progress.",
    ),
    _row("queryName", _STRING, None, Scope.STREAM_WRITE, "Spark's own option: the name given with `queryName()`."),
)


def _format_rows(part: str) -> tuple[Option, ...]:
    return (
        _row(
            f"{part}Format",
            _STRING,
            None,
            Scope.ALL,
            f"The format of the column {part}: it is decoded when reading, and encoded when writing.",
            choices=FORMATS,
        ),
        _row(
            f"{part}Schema",
            _STRING,
            None,
            Scope.ALL,
            "The schema itself, instead of one from the registry; for `json` a Spark schema as DDL or JSON.",
        ),
        _row(f"{part}Subject", _STRING, None, Scope.ALL, f"The registry's subject; by default `<topic>-{part}`."),
        _row(
            f"{part}SchemaVersion",
            _STRING,
            "latest",
            Scope.ALL,
            "The version of the subject: a number or `latest`, which a read resolves once, when the query starts.",
        ),
        _row(f"{part}Message", _STRING, None, Scope.ALL, "The name of the Protobuf message; by default the first."),
        _row(
            f"{part}Details",
            _BOOLEAN,
            False,
            Scope.READ,
            f"Whether the column {part} is a struct with the fields value, error and schema_id.",
        ),
    )


_FORMAT_ROWS: Final = (
    *_format_rows("key"),
    *_format_rows("value"),
    _row("schema.registry.url", _STRING, None, Scope.ALL, "The addresses of the schema registry, separated by commas."),
    _row(
        "onError",
        _STRING,
        "fail",
        Scope.READ,
        "What happens to a record that cannot be decoded: the query fails, the column is null, or the record goes to "
        "the dead-letter topic and not into the result.",
        choices=("fail", "null", "dead-letter"),
    ),
    _row(
        "includeRaw",
        _STRING,
        "never",
        Scope.READ,
        "Whether rows have columns rawKey and rawValue with the bytes: for all records, or for those with errors.",
        choices=("never", "errors", "always"),
    ),
    _row(
        "deadLetterTopic",
        _STRING,
        None,
        Scope.READ,
        "The topic to which onError=dead-letter sends records; by default `<topic>.dlq`.",
    ),
    _row("pipelineName", _STRING, None, Scope.READ, "The name of the pipeline in the headers of dead letters."),
)

OPTIONS: Final[Mapping[str, Option]] = {
    option.name.lower(): option
    for option in (*_WHERE_ROWS, *_RANGE_ROWS, *_SPLIT_ROWS, *_READ_ROWS, *_WRITE_ROWS, *_FORMAT_ROWS)
}

_OFFSETS_HINT: Final = "the source starts at startingOffsets and stores its own offsets in the checkpoint"
# Keys of the client that are errors, as in Spark's connector, and why.
REFUSED_READ_KEYS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "set startingOffsets instead: earliest, latest or offsets",
    "key.deserializer": "keys are bytes; set keyFormat to decode them, or cast the column",
    "value.deserializer": "values are bytes; set valueFormat to decode them, or cast the column",
    "enable.auto.commit": f"{_OFFSETS_HINT}; set groupId to have them committed for the lag",
    "interceptor.classes": "interceptors could change records, and a repeated read would then differ",
}
REFUSED_WRITE_KEYS: Final[Mapping[str, str]] = {
    "key.serializer": "keys are bytes or strings; set keyFormat to encode them",
    "value.serializer": "values are bytes or strings; set valueFormat to encode them",
    "transactional.id": "the sink generates a transactional id for each task; set txnAppId to name a write",
    "interceptor.classes": "interceptors could change records, and a repeated write would then differ",
}
