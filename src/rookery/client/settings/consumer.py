"""The consumer's settings: Kafka 4's keys and defaults, and the conflicts between them."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.client.settings.common import (
    API_TIMEOUT_ROW,
    COMMON_ROWS,
    INTERCEPTORS_ROW,
    CommonSettings,
    next_number,
    non_empty,
    read_common,
    row,
)
from rookery.client.settings.parser import Values, check_together, table, unsupported_row

GroupProtocol: TypeAlias = Literal["classic", "consumer"]

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_STRING = ConfigType.STRING

_ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
# In groups of KIP-848 the broker determines these times, and assigns the partitions.
_CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
_BY_DURATION = "by_duration:"
# The format of Java's Duration.parse: a sign for the whole, signs for the parts, no T without a part after it.
_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?=.)(?:(?P<days>[+-]?\d{1,19})D)?"
    r"(?:T(?=.)(?:(?P<hours>[+-]?\d{1,19})H)?(?:(?P<minutes>[+-]?\d{1,19})M)?"
    r"(?:(?P<seconds>[+-]?\d{1,19})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_INSTANCE_ID = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_DURATION_MAX_MS = 2**63 - 1


class OffsetResetStrategy(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"


class OffsetReset(NamedTuple):
    """Where to begin without a valid position; with BY_DURATION, `duration_ms` before now."""

    strategy: OffsetResetStrategy
    duration_ms: int = 0

    @staticmethod
    def parse(text: str) -> "OffsetReset":
        if text.startswith(_BY_DURATION):
            duration_ms = parse_duration_ms(text.removeprefix(_BY_DURATION))
            if duration_ms is not None:
                return OffsetReset(OffsetResetStrategy.BY_DURATION, duration_ms)
        elif text in ("earliest", "latest", "none"):
            return OffsetReset(OffsetResetStrategy(text))
        raise ConfigError(f"must be earliest, latest, none or {_BY_DURATION}PnDTnHnMn.nS")

    def __str__(self) -> str:
        if self.strategy is not OffsetResetStrategy.BY_DURATION:
            return str(self.strategy.value)
        return f"{_BY_DURATION}PT{self.duration_ms // 1000}.{self.duration_ms % 1000:03}S"


def parse_duration_ms(text: str) -> int | None:
    """Parse an ISO-8601 duration of days, hours, minutes and seconds; return None if it is invalid or negative."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    seconds = int(match["days"] or 0) * 86_400 + int(match["hours"] or 0) * 3600 + int(match["minutes"] or 0) * 60
    nanoseconds = (seconds + int(match["seconds"] or 0)) * 10**9
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    nanoseconds += -fraction if (match["seconds"] or "").startswith("-") else fraction
    nanoseconds = -nanoseconds if match["sign"] == "-" else nanoseconds
    duration_ms = nanoseconds // 10**6
    return duration_ms if 0 <= duration_ms <= _DURATION_MAX_MS else None


def _check_reset(value: ConfigValue) -> str | None:
    try:
        OffsetReset.parse(str(value))
    except ConfigError as error:
        return str(error)
    return None


def _check_instance_id(value: ConfigValue) -> str | None:
    if value is None or (_INSTANCE_ID.fullmatch(str(value)) and value not in (".", "..")):
        return None
    return "must be 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'"


def _check_strategies(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    return None if value and all(value) else "must name one or more assignors"


_GROUP_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="group.id",
        type=_STRING,
        default=None,
        doc="The group to share partitions with; required for subscriptions and commits.",
        check=non_empty,
    ),
    ConfigKey(
        name="group.instance.id",
        type=_STRING,
        default=None,
        doc="Makes the member static: it may restart within session.timeout.ms without a rebalance.",
        check=_check_instance_id,
    ),
    row(
        "group.protocol",
        _STRING,
        "classic",
        "classic: a member assigns the partitions; consumer: the broker does (KIP-848).",
        choices=("classic", "consumer"),
        any_case=True,
    ),
    row("group.remote.assignor", _STRING, None, "The broker's assignor, with group.protocol=consumer only."),
    row("session.timeout.ms", _INT, 45_000, "A member without heartbeats for this long is removed.", minimum=1),
    row("heartbeat.interval.ms", _INT, 3000, "Time between heartbeats; less than session.timeout.ms.", minimum=1),
    row("max.poll.interval.ms", _INT, 300_000, "A member that does not poll for this long leaves.", minimum=1),
    ConfigKey(
        name="partition.assignment.strategy",
        type=_LIST,
        default=("range", "cooperative-sticky"),
        doc="Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky, Java's class names of "
        "these, or the names of the consumer's own assignors.",
        check=_check_strategies,
    ),
    row("enable.auto.commit", _BOOLEAN, True, "Commit positions automatically in polls; off without a group.id."),
    row("auto.commit.interval.ms", _INT, 5000, "Time between automatic commits.", minimum=0),
)
_FETCH_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="auto.offset.reset",
        type=_STRING,
        default="latest",
        doc="Where to begin without a valid position: earliest, latest, by_duration:PnDTnHnMn.nS (that long before "
        "now), none (an error).",
        check=_check_reset,
    ),
    row(
        "isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are returned.",
        choices=("read_committed", "read_uncommitted"),
    ),
    row("fetch.min.bytes", _INT, 1, "A broker answers a fetch when it has this much data.", minimum=0),
    row("fetch.max.bytes", _INT, 52_428_800, "Approximate size limit of a fetch response.", minimum=0),
    row("max.partition.fetch.bytes", _INT, 1_048_576, "Approximate size limit per partition of a fetch.", minimum=0),
    row("fetch.max.wait.ms", _INT, 500, "Longest time that a broker waits for fetch.min.bytes.", minimum=0),
    row("max.poll.records", _INT, 500, "Maximum number of records that one poll returns.", minimum=1),
    row("check.crcs", _BOOLEAN, True, "Verify the checksums of fetched batches."),
    row("allow.auto.create.topics", _BOOLEAN, True, "Let the broker create subscribed topics that do not exist."),
    row("exclude.internal.topics", _BOOLEAN, True, "Patterns do not match internal topics."),
    row("client.rack", _STRING, "", "Rack of the client: replicas in the same rack are preferred."),
    API_TIMEOUT_ROW,
)
_OTHER_ROWS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="internal.throw.on.fetch.stable.offset.unsupported",
        type=_BOOLEAN,
        default=False,
        doc="Fail with brokers before 2.5.",
        effective=False,
        internal=True,
    ),
    unsupported_row(
        "key.deserializer",
        _CLASS,
        None,
        doc="Java class that deserializes keys.",
        reason="pass the deserializer itself, as the consumer's keyword argument key_deserializer",
    ),
    unsupported_row(
        "value.deserializer",
        _CLASS,
        None,
        doc="Java class that deserializes values.",
        reason="pass the deserializer itself, as the consumer's keyword argument value_deserializer",
    ),
    unsupported_row(
        "share.acknowledgement.mode",
        _STRING,
        "implicit",
        doc="How a share consumer acknowledges records.",
        reason="share groups are not supported",
    ),
    unsupported_row(
        "share.acquire.mode",
        _STRING,
        "BATCH_OPTIMIZED",
        doc="How many records a share consumer acquires at a time.",
        reason="share groups are not supported",
    ),
    INTERCEPTORS_ROW,
)
CONSUMER_KEYS: dict[str, ConfigKey] = table(COMMON_ROWS, _GROUP_ROWS, _FETCH_ROWS, _OTHER_ROWS)


@value_class(kw_only=True)
class ConsumerSettings:
    common: CommonSettings
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: OffsetReset
    read_committed: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    partition_assignment_strategy: tuple[str, ...]

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> "ConsumerSettings":
        """Parse a mapping with Kafka's names. Raises ConfigError, which names every invalid key."""
        values = Values(CONSUMER_KEYS, config)
        check_together(_conflicts(values))
        return cls(
            common=read_common(
                values,
                client_id=_client_id(values),
                client_rack=values.text("client.rack"),
                api_timeout_ms=values.integer("default.api.timeout.ms"),
            ),
            group_id=values.optional_text("group.id"),
            group_instance_id=values.optional_text("group.instance.id"),
            group_protocol=_protocol(values),
            group_remote_assignor=values.optional_text("group.remote.assignor") or None,
            session_timeout_ms=values.integer("session.timeout.ms"),
            heartbeat_interval_ms=values.integer("heartbeat.interval.ms"),
            max_poll_interval_ms=values.integer("max.poll.interval.ms"),
            max_poll_records=values.integer("max.poll.records"),
            # Offsets are committed for a group only.
            enable_auto_commit=values.boolean("enable.auto.commit") and values.is_given("group.id"),
            auto_commit_interval_ms=values.integer("auto.commit.interval.ms"),
            auto_offset_reset=OffsetReset.parse(values.text("auto.offset.reset")),
            read_committed=values.text("isolation.level") == "read_committed",
            fetch_min_bytes=values.integer("fetch.min.bytes"),
            fetch_max_bytes=values.integer("fetch.max.bytes"),
            max_partition_fetch_bytes=values.integer("max.partition.fetch.bytes"),
            fetch_max_wait_ms=_fetch_max_wait_ms(values),
            check_crcs=values.boolean("check.crcs"),
            allow_auto_create_topics=values.boolean("allow.auto.create.topics"),
            exclude_internal_topics=values.boolean("exclude.internal.topics"),
            partition_assignment_strategy=_assignors(values),
        )


def _conflicts(values: Values) -> Iterator[str]:
    if _protocol(values) == "consumer":
        for name in _CLASSIC_ONLY:
            if values.is_given(name):
                yield f"{name} cannot be set with group.protocol=consumer: the broker determines it"
    else:
        if values.optional_text("group.remote.assignor"):
            yield "group.remote.assignor needs group.protocol=consumer; set partition.assignment.strategy instead"
        if values.integer("heartbeat.interval.ms") >= values.integer("session.timeout.ms"):
            yield (
                f"heartbeat.interval.ms ({values.integer('heartbeat.interval.ms')}) must be less than "
                f"session.timeout.ms ({values.integer('session.timeout.ms')})"
            )
    if not values.is_given("group.id"):
        if values.is_given("group.instance.id"):
            yield "group.instance.id needs a group.id"
        if values.is_given("enable.auto.commit") and values.boolean("enable.auto.commit"):
            yield "enable.auto.commit=true needs a group.id"
    wait_ms, request_ms = values.integer("fetch.max.wait.ms"), values.integer("request.timeout.ms")
    if values.is_given("fetch.max.wait.ms") and wait_ms > request_ms:
        yield f"fetch.max.wait.ms ({wait_ms}) must not exceed request.timeout.ms ({request_ms})"


def _protocol(values: Values) -> GroupProtocol:
    return "consumer" if values.text("group.protocol").lower() == "consumer" else "classic"


def _fetch_max_wait_ms(values: Values) -> int:
    """Return the wait; the default is lowered so that the broker answers well before the request times out."""
    wait_ms = values.integer("fetch.max.wait.ms")
    return wait_ms if values.is_given("fetch.max.wait.ms") else min(wait_ms, values.integer("request.timeout.ms") // 2)


def _assignors(values: Values) -> tuple[str, ...]:
    names = values.items("partition.assignment.strategy")
    return tuple(dict.fromkeys(_ASSIGNORS.get(name, name) for name in names))


def _client_id(values: Values) -> str:
    given = values.text("client.id")
    if given:
        return given
    group_id = values.optional_text("group.id") or "null"
    instance_id = values.optional_text("group.instance.id")
    return f"consumer-{group_id}-{next_number('consumer') if instance_id is None else instance_id}"
