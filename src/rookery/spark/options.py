"""Parses and checks the options of the source and of the sink, as Spark passes them.

`option_table` defines the options. One error reports the problems of all single options; each sentence names its
option as users write it, and suggests the nearest name for an unknown one. `kafka.*` goes to Rookery's client, under
the rules of docs/client-config.md: keys of another kind of client are dropped, so that one dictionary can serve source
and sink. For the same reason, an option that has no effect here but has one elsewhere (`topic` when reading) is
ignored. Settings of a client are excluded from every repr, because they may contain passwords.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from rookery.base.config_key import ConfigKey, ConfigValue, parse_value
from rookery.base.errors import ConfigError
from rookery.base.types import TopicPartition
from rookery.base.values import value_class
from rookery.client.settings.admin import ADMIN_KEYS
from rookery.client.settings.consumer import CONSUMER_KEYS, ConsumerSettings
from rookery.client.settings.producer import PRODUCER_KEYS, ProducerSettings
from rookery.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    Edge,
    MatchingTopics,
    NamedPartitions,
    NamedTopics,
    PartitionOffsets,
    PartitionTimes,
    SameTime,
    Selection,
    parse_offsets,
    parse_partitions,
)
from rookery.spark.option_table import (
    CLIENT_PREFIX,
    OPTIONS,
    REFUSED_READ_KEYS,
    REFUSED_WRITE_KEYS,
    REGISTRY_PREFIX,
    OptionError,
    parse_duration_ms,
    parse_size_bytes,
)

__all__ = ["FormatOptions", "OptionError", "ReadOptions", "WriteOptions", "parse_read_options", "parse_write_options"]

OnError: TypeAlias = Literal["fail", "null", "dead-letter"]
IncludeRaw: TypeAlias = Literal["never", "errors", "always"]
Delivery: TypeAlias = Literal["exactly-once", "at-least-once"]
Settings: TypeAlias = Mapping[str, str]

# A transaction of the sink stays open from the end of its task until the batch is decided. The default is the longest
# time that brokers allow by default.
_TRANSACTION_TIMEOUT_MS: Final = 900_000
# Every record that could be read must fit, together with the headers that describe its error. This is the default of
# buffer.memory, which limits a record anyway.
_DEAD_LETTER_SIZE_MAX: Final = 33_554_432
_DEAD_LETTER_KEYS: Final = {name: key for name, key in PRODUCER_KEYS.items() if name not in REFUSED_WRITE_KEYS}
# Match escaped characters and sets such as [a-z] in a regular expression.
_ESCAPED: Final = re.compile(r"\\.")
_SETS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*")
_CLIENT_KEYS: Final = CONSUMER_KEYS.keys() | PRODUCER_KEYS.keys() | ADMIN_KEYS.keys()


@value_class(kw_only=True)
class FormatOptions:
    """The format of the column key or value."""

    format: str
    schema: str | None
    subject: str | None
    version: str
    message: str | None
    # Whether the column is a struct of value, error and schema_id.
    detailed: bool
    # Settings of `rookery.serdes.RegistryClient` and schema.registry.url; empty without a registry.
    registry: Settings = field(repr=False)
    on_error: OnError


@value_class(kw_only=True)
class ReadOptions:
    # Settings of the Consumer.
    client_config: dict[str, str] = field(repr=False)
    selection: Selection
    starting: Bound
    # None for a stream.
    ending: Bound | None
    # For partitions without a record as late as the time to start at: LATEST, or None for an error.
    late_start: int | None
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    # One of TRIGGERS; None if not set.
    trigger: str | None
    include_headers: bool
    group_id: str | None
    key_format: FormatOptions | None
    value_format: FormatOptions | None
    on_error: OnError
    include_raw: IncludeRaw
    dead_letter_topic: str | None
    # Settings of the Producer for dead letters.
    dead_letter_config: dict[str, str] = field(repr=False)
    pipeline: str | None


@value_class(kw_only=True)
class WriteOptions:
    # Settings of the Producer, without a transactional.id.
    client_config: dict[str, str] = field(repr=False)
    topic: str | None
    delivery: Delivery
    ledger_topic: str
    transaction_timeout_ms: int
    include_headers: bool
    txn_app_id: str | None
    txn_version: int | None
    # Set for a micro-batch that foreachBatch writes.
    stream_id: str | None
    stream_batch: int | None
    key_format: FormatOptions | None
    value_format: FormatOptions | None


def parse_read_options(options: Settings, *, streaming: bool | None) -> ReadOptions:
    """Parse the options of a read. `streaming` None: not known yet, so options of batches and streams are allowed."""
    given = _ParsedOptions(options)
    if streaming:
        given.refuse(("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"), "a stream has no end")
    starting = _bound(given, "starting", Edge(LATEST if streaming else EARLIEST))
    ending = None if streaming else _bound(given, "ending", Edge(LATEST))
    if streaming is False:
        _check_batch_bounds(starting, ending)
    low, high = given.integer("minOffsetsPerTrigger"), given.integer("maxOffsetsPerTrigger")
    if low is not None and high is not None and low > high:
        raise OptionError(f"option minOffsetsPerTrigger ({low}) must not exceed maxOffsetsPerTrigger ({high})")
    size, on_error, include_raw = (given.text(name) for name in ("maxBytesPerTrigger", "onError", "includeRaw"))
    if on_error not in (None, "fail") and given.text("keyFormat") is None and given.text("valueFormat") is None:
        given.refuse(("onError",), "it applies to records that cannot be decoded, and needs keyFormat or valueFormat")
    return ReadOptions(
        client_config=_read_config(given),
        selection=_selection(given),
        starting=starting,
        ending=ending,
        late_start=LATEST if given.text("startingOffsetsByTimestampStrategy") == "latest" else None,
        fail_on_data_loss=given.boolean("failOnDataLoss"),
        min_partitions=given.integer("minPartitions"),
        max_records_per_partition=given.integer("maxRecordsPerPartition"),
        max_offsets_per_trigger=high,
        min_offsets_per_trigger=low,
        max_trigger_delay_ms=parse_duration_ms(given.text("maxTriggerDelay") or "") or 0,
        max_bytes_per_trigger=None if size is None else parse_size_bytes(size),
        trigger=given.text("trigger"),
        include_headers=given.boolean("includeHeaders", default=False),
        group_id=given.text("groupId"),
        key_format=_format(given, "key"),
        value_format=_format(given, "value"),
        on_error=_on_error(on_error),
        include_raw="errors" if include_raw == "errors" else "always" if include_raw == "always" else "never",
        dead_letter_topic=given.text("deadLetterTopic"),
        dead_letter_config=_dead_letter_config(given, is_used=on_error == "dead-letter"),
        pipeline=given.text("pipelineName"),
    )


def parse_write_options(options: Settings, *, streaming: bool) -> WriteOptions:
    given = _ParsedOptions(options)
    app, version = given.text("txnAppId"), given.integer("txnVersion")
    if not streaming and (app is None) != (version is None):
        raise OptionError("options txnAppId and txnVersion must be set together: a writer, and the number of its write")
    stream = given.text("streamId")
    if stream is not None and app is not None:
        raise OptionError(
            "options txnAppId and txnVersion cannot be set for a TopicSink, which uses its query and batch"
        )
    config = given.client_config(PRODUCER_KEYS, REFUSED_WRITE_KEYS)
    try:
        ProducerSettings.parse(config)
    except ConfigError as error:
        raise _wrong_client_keys(error) from None
    return WriteOptions(
        client_config=config,
        topic=given.text("topic"),
        delivery="at-least-once" if given.text("delivery") == "at-least-once" else "exactly-once",
        ledger_topic=given.text("ledgerTopic") or "",
        transaction_timeout_ms=int(config.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)),
        include_headers=given.boolean("includeHeaders", default=True),
        txn_app_id=app,
        txn_version=version,
        stream_id=stream,
        stream_batch=given.integer("streamBatch"),
        key_format=_format(given, "key"),
        value_format=_format(given, "value"),
    )


class _ParsedOptions:
    """The options of a query, parsed by the option table. Raises one OptionError for all invalid options."""

    def __init__(self, options: Settings) -> None:
        self._values: dict[str, ConfigValue] = {}
        self._client: dict[str, str] = {}
        self._registry: dict[str, str] = {}
        problems = []
        for name, text in options.items():
            try:
                self._add(name.lower(), text)
            except (ConfigError, OptionError) as error:
                problems.append(str(error))
        if problems:
            raise OptionError("\n".join(problems))

    def _add(self, name: str, text: str) -> None:
        if name.startswith(CLIENT_PREFIX):
            self._client[name.removeprefix(CLIENT_PREFIX)] = text
        elif name.startswith(REGISTRY_PREFIX):
            self._registry[name if name == f"{REGISTRY_PREFIX}url" else name.removeprefix(REGISTRY_PREFIX)] = text
        elif name in OPTIONS:
            self._values[name] = _parse(OPTIONS[name].key, text)
        else:
            raise OptionError(f"unknown option {name}{_guess(name)}")

    def text(self, name: str) -> str | None:
        value = self._value(name)
        return None if value is None else str(value)

    def integer(self, name: str) -> int | None:
        value = self._value(name)
        assert value is None or isinstance(value, int), name
        return value

    def boolean(self, name: str, *, default: bool | None = None) -> bool:
        """Return a boolean option. `default` is for options whose default depends on the operation."""
        value = self._value(name)
        value = default if value is None else value
        assert isinstance(value, bool), name
        return value

    def _value(self, name: str) -> ConfigValue:
        return self._values.get(name.lower(), OPTIONS[name.lower()].key.default)

    def refuse(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if name.lower() in self._values:
                raise OptionError(f"option {name} cannot be used here: {reason}")

    @property
    def registry(self) -> dict[str, str]:
        return self._registry

    def client_config(self, keys: Mapping[str, ConfigKey], refused: Settings) -> dict[str, str]:
        """Return `kafka.*` without the prefix, and without keys that only other kinds of clients support."""
        if not self._client.get("bootstrap.servers", "").strip():
            raise OptionError("option kafka.bootstrap.servers is required: host:port of one or more brokers")
        for name, reason in refused.items():
            if name in self._client:
                raise OptionError(f"option {CLIENT_PREFIX}{name} is not supported: {reason}")
        return {name: text for name, text in self._client.items() if name in keys or name not in _CLIENT_KEYS}


def _parse(key: ConfigKey, text: str) -> ConfigValue:
    try:
        value = parse_value(key, text)
    except ConfigError as error:
        raise OptionError(str(error).replace(f"configuration {key.name}", f"option {key.name}")) from None
    if isinstance(value, str) and not value.strip():
        raise OptionError(f"option {key.name} is empty")
    return value.lower() if key.choices and isinstance(value, str) else value


def _guess(name: str) -> str:
    similar = get_close_matches(name, OPTIONS, n=1, cutoff=0.7)
    return f"; did you mean {OPTIONS[similar[0]].name}?" if similar else "; docs/spark-options.md lists all of them"


def _read_config(given: _ParsedOptions) -> dict[str, str]:
    config = given.client_config(CONSUMER_KEYS, REFUSED_READ_KEYS)
    try:
        ConsumerSettings.parse(config)
    except ConfigError as error:
        raise _wrong_client_keys(error) from None
    return config


def _dead_letter_config(given: _ParsedOptions, *, is_used: bool) -> dict[str, str]:
    config = given.client_config(_DEAD_LETTER_KEYS, REFUSED_READ_KEYS)
    config.setdefault("max.request.size", str(_DEAD_LETTER_SIZE_MAX))
    if is_used:
        try:
            ProducerSettings.parse(config)
        except ConfigError as error:
            raise _wrong_client_keys(error) from None
    return config


def _wrong_client_keys(error: ConfigError) -> OptionError:
    return OptionError(f"options {CLIENT_PREFIX}* (named without the prefix here): {error}")


def _selection(given: _ParsedOptions) -> Selection:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(names) != 1:
        found = f"not {' and '.join(names)}" if names else "none was given"
        raise OptionError(f"exactly one of the options subscribe, subscribePattern and assign is required: {found}")
    text = given.text(names[0]) or ""
    if names[0] == "assign":
        return NamedPartitions(parse_partitions("assign", text))
    if names[0] == "subscribe":
        topics = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
        if not topics:
            raise OptionError("option subscribe names no topic")
        return NamedTopics(tuple(topics))
    return MatchingTopics(_checked_pattern(text))


def _checked_pattern(text: str) -> str:
    with warnings.catch_warnings():
        # `[a-z&&[^b]]` and `[a[b]]` mean something else in Python than in Java: Python's re would match no valid topic
        # name with them, and the query would silently read nothing.
        warnings.simplefilter("error", FutureWarning)
        try:
            re.compile(text)
            if any("[" in _ESCAPED.sub("", found[0][1:]) for found in _SETS.finditer(text) if found[0][0] == "["):
                raise FutureWarning("nested set")
        except FutureWarning as warning:
            raise OptionError(
                f"option subscribePattern: {str(warning).lower()} in {text}. Patterns are those of Python's re, "
                f"which lacks Java's operations on sets of characters: rewrite the pattern without them"
            ) from None
        except re.error as error:
            raise OptionError(
                f"option subscribePattern is not valid for Python's re, which differs from Java's: {error}"
            ) from None
    return text


def _bound(given: _ParsedOptions, edge: str, default: Edge) -> Bound:
    """Return the bound of the first of three options that is set, in Spark's order of precedence."""
    time_ms = given.integer(f"{edge}Timestamp")
    if time_ms is not None:
        return SameTime(f"{edge}Timestamp", time_ms)
    by_time, option = f"{edge}OffsetsByTimestamp", f"{edge}Offsets"
    times = given.text(by_time)
    if times is not None:
        return PartitionTimes(by_time, _checked(by_time, times, least=0, hint="times are milliseconds since 1970"))
    text = given.text(option)
    if text is None:
        return default
    edge_bound = {"earliest": Edge(EARLIEST), "latest": Edge(LATEST)}.get(text.strip().lower())
    hint = "-2 is the earliest offset, -1 the latest"
    return edge_bound or PartitionOffsets(option, _checked(option, text, least=EARLIEST, hint=hint))


def _checked(option: str, text: str, *, least: int, hint: str) -> dict[TopicPartition, int]:
    found = parse_offsets(option, text)
    for tp, number in found.items():
        if number < least:
            raise OptionError(f"option {option}: {number} of {tp} is not valid; {hint}")
    return found


def _check_batch_bounds(starting: Bound, ending: Bound | None) -> None:
    """Raise OptionError for a batch that would start at the latest or end at the earliest offset."""
    if _uses(starting, LATEST):
        raise OptionError("option startingOffsets cannot be latest (-1) for a batch: it would read nothing")
    if ending is not None and _uses(ending, EARLIEST):
        raise OptionError("option endingOffsets cannot be earliest (-2) for a batch: it would read nothing")


def _uses(bound: Bound, edge: int) -> bool:
    if isinstance(bound, Edge):
        return bound.offset == edge
    return isinstance(bound, PartitionOffsets) and edge in bound.offsets.values()


def _format(given: _ParsedOptions, part: str) -> FormatOptions | None:
    name = given.text(f"{part}Format")
    if name is None:
        given.refuse(
            tuple(f"{part}{rest}" for rest in ("Schema", "Subject", "SchemaVersion", "Message", "Details")),
            f"it needs {part}Format",
        )
        return None
    version = given.text(f"{part}SchemaVersion") or ""
    if version != "latest" and not version.isdecimal():
        raise OptionError(f"option {part}SchemaVersion must be latest or a number, not {version}")
    return FormatOptions(
        format=name,
        schema=given.text(f"{part}Schema"),
        subject=given.text(f"{part}Subject"),
        version=version,
        message=given.text(f"{part}Message"),
        detailed=given.boolean(f"{part}Details"),
        registry=given.registry,
        on_error=_on_error(given.text("onError")),
    )


def _on_error(text: str | None) -> OnError:
    return "null" if text == "null" else "dead-letter" if text == "dead-letter" else "fail"
