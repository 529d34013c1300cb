"""The producer's settings: Kafka 4's keys and defaults, and which of them exclude each other."""

from collections.abc import Iterator, Mapping
from enum import IntEnum

from rookery.base.config_key import INT_MAX, ConfigKey, ConfigType, ConfigValue
from rookery.base.values import value_class
from rookery.client.settings.common import (
    COMMON_ROWS,
    INTERCEPTORS_ROW,
    CommonSettings,
    next_number,
    non_empty,
    read_common,
    row,
)
from rookery.client.settings.parser import Values, check_together, refused_row, table
from rookery.records.batch import Codec

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_STRING = ConfigType.STRING

# More batches in flight than this cannot be told apart by the sequence numbers that a broker remembers.
MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5
ROUND_ROBIN = "round-robin"
_ROUND_ROBIN_CLASS = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


class Acks(IntEnum):
    """Who must have a batch before it counts as delivered, as Produce numbers it."""

    NONE = 0
    LEADER = 1
    ALL = -1


def _partitioner(value: ConfigValue) -> str | None:
    if value in (None, ROUND_ROBIN, _ROUND_ROBIN_CLASS):
        return None
    return f"must be {ROUND_ROBIN}; give another partitioner itself: the producer's keyword argument partitioner"


_PRODUCER_ROWS: tuple[ConfigKey, ...] = (
    row(
        "acks",
        _STRING,
        "all",
        "Who must have a batch: 0 nobody, 1 the leader, all (or -1) every replica in sync.",
        choices=("all", "-1", "0", "1"),
    ),
    row("batch.size", _INT, 16_384, "Bytes of records that are gathered per partition; 0: no gathering.", minimum=0),
    row("linger.ms", _LONG, 5, "Time that a batch waits for more records before it is sent.", minimum=0),
    row("buffer.memory", _LONG, 33_554_432, "Bytes of records that wait or are on their way, all in all.", minimum=0),
    row("max.block.ms", _LONG, 60_000, "Time that send waits for metadata and room in the buffer.", minimum=0),
    row(
        "delivery.timeout.ms",
        _INT,
        120_000,
        "Time for a record from send to acknowledgement; at least linger.ms + request.timeout.ms.",
        minimum=0,
    ),
    row("retries", _INT, INT_MAX, "Tries after the first; delivery.timeout.ms is the better limit.", minimum=0),
    row(
        "max.in.flight.requests.per.connection",
        _INT,
        5,
        "Requests on their way to one broker; at most 5 with idempotence.",
        minimum=1,
    ),
    row("enable.idempotence", _BOOLEAN, True, "No duplicates and no reordering by retries; off if acks is not all."),
    ConfigKey(
        name="transactional.id",
        type=_STRING,
        default=None,
        doc="Makes the producer transactional; a newer producer with the same id shuts an older one out.",
        check=non_empty,
    ),
    row("transaction.timeout.ms", _INT, 60_000, "The coordinator aborts a transaction that is open for longer."),
    row(
        "compression.type",
        _STRING,
        "none",
        "Codec of batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    row("compression.gzip.level", _INT, -1, "Level of gzip; -1: its default.", minimum=1, maximum=9, also=-1),
    row("compression.lz4.level", _INT, 9, "Level of lz4.", minimum=1, maximum=17),
    row("compression.zstd.level", _INT, 3, "Level of zstd.", minimum=-131_072, maximum=22),
    row("max.request.size", _INT, 1_048_576, "Largest record, before compression, and largest request.", minimum=0),
    ConfigKey(
        name="partitioner.class",
        type=_CLASS,
        default=None,
        doc=f"{ROUND_ROBIN}, or Java's name of it; by default the hash of the key, sticky partitions without a key.",
        check=_partitioner,
    ),
    row("partitioner.ignore.keys", _BOOLEAN, False, "Records with a key are spread like those without."),
    row(
        "partitioner.adaptive.partitioning.enable",
        _BOOLEAN,
        True,
        "Brokers that take records faster get more of those without a key.",
        effective=False,
    ),
    row(
        "partitioner.availability.timeout.ms",
        _LONG,
        0,
        "A partition whose broker takes nothing for this long gets no records without a key; 0: never.",
        minimum=0,
        effective=False,
    ),
    row("metadata.max.idle.ms", _LONG, 300_000, "A topic without sends is forgotten after this time.", minimum=5000),
    row("receive.buffer.bytes", _INT, 32_768, "Size of a socket's receive buffer; -1: the system's.", minimum=-1),
    refused_row(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        False,
        doc="Transactions that take part in an external two-phase commit (KIP-939).",
        reason="two-phase commit is missing here",
    ),
    refused_row(
        "key.serializer",
        _CLASS,
        None,
        doc="Java class that makes bytes of keys.",
        reason="give the serializer itself: the producer's keyword argument key_serializer",
    ),
    refused_row(
        "value.serializer",
        _CLASS,
        None,
        doc="Java class that makes bytes of values.",
        reason="give the serializer itself: the producer's keyword argument value_serializer",
    ),
    INTERCEPTORS_ROW,
)
PRODUCER_KEYS: dict[str, ConfigKey] = table(COMMON_ROWS, _PRODUCER_ROWS)

_ACKS = {"all": Acks.ALL, "-1": Acks.ALL, "0": Acks.NONE, "1": Acks.LEADER}


@value_class(kw_only=True)
class ProducerSettings:
    common: CommonSettings
    acks: Acks
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    max_in_flight_requests_per_connection: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    compression_codec: Codec
    compression_level: int | None
    max_request_size: int
    partitioner_class: str | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_idle_ms: int

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> "ProducerSettings":
        """Settings of a mapping with Kafka's names; ConfigError names every key that is wrong."""
        values = Values(PRODUCER_KEYS, config)
        check_together(_conflicts(values))
        codec = Codec[values.text("compression.type").upper()]
        return cls(
            common=read_common(values, client_id=_client_id(values), api_timeout_ms=values.integer("max.block.ms")),
            acks=_ACKS[values.text("acks")],
            batch_size=values.integer("batch.size"),
            linger_ms=values.integer("linger.ms"),
            buffer_memory=values.integer("buffer.memory"),
            max_block_ms=values.integer("max.block.ms"),
            delivery_timeout_ms=_delivery_timeout_ms(values),
            retries=values.integer("retries"),
            max_in_flight_requests_per_connection=values.integer("max.in.flight.requests.per.connection"),
            enable_idempotence=_is_idempotent(values),
            transactional_id=values.optional_text("transactional.id"),
            transaction_timeout_ms=values.integer("transaction.timeout.ms"),
            compression_codec=codec,
            compression_level=_level(values, codec),
            max_request_size=values.integer("max.request.size"),
            partitioner_class=ROUND_ROBIN if values.is_given("partitioner.class") else None,
            partitioner_ignore_keys=values.boolean("partitioner.ignore.keys"),
            partitioner_adaptive_partitioning_enable=values.boolean("partitioner.adaptive.partitioning.enable"),
            partitioner_availability_timeout_ms=values.integer("partitioner.availability.timeout.ms"),
            metadata_max_idle_ms=values.integer("metadata.max.idle.ms"),
        )


def _conflicts(values: Values) -> Iterator[str]:
    if values.boolean("enable.idempotence"):
        yield from _idempotence_conflicts(values)
    if values.is_given("transactional.id") and not _is_idempotent(values):
        yield (
            "transactional.id needs idempotence: enable.idempotence must not be false, nor acks other than all, "
            "nor retries 0"
        )
    if values.is_given("delivery.timeout.ms") and values.integer("delivery.timeout.ms") < _shortest_delivery_ms(values):
        yield (
            f"delivery.timeout.ms ({values.integer('delivery.timeout.ms')}) must be at least linger.ms + "
            f"request.timeout.ms ({_shortest_delivery_ms(values)})"
        )


def _idempotence_conflicts(values: Values) -> Iterator[str]:
    in_flight = values.integer("max.in.flight.requests.per.connection")
    # Kafka 4 refuses this one also where enable.idempotence was left to its default, whatever acks and retries are.
    if in_flight > MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
        yield (
            f"max.in.flight.requests.per.connection ({in_flight}) must be at most {MAX_IN_FLIGHT_FOR_IDEMPOTENCE} "
            "with enable.idempotence; set that to false for more"
        )
    if not values.is_given("enable.idempotence"):
        return
    if _ACKS[values.text("acks")] is not Acks.ALL:
        yield f"enable.idempotence=true needs acks=all, not acks={values.text('acks')}"
    if values.integer("retries") == 0:
        yield "enable.idempotence=true needs retries above 0"


def _is_idempotent(values: Values) -> bool:
    """As Kafka does: what does not go with idempotence turns it off, where nobody asked for it."""
    return (
        values.boolean("enable.idempotence")
        and _ACKS[values.text("acks")] is Acks.ALL
        and values.integer("retries") > 0
    )


def _shortest_delivery_ms(values: Values) -> int:
    return min(values.integer("linger.ms") + values.integer("request.timeout.ms"), INT_MAX)


def _delivery_timeout_ms(values: Values) -> int:
    """Raised, if it was not given, to what the other times need."""
    return max(values.integer("delivery.timeout.ms"), _shortest_delivery_ms(values))


def _level(values: Values, codec: Codec) -> int | None:
    """A level that was asked for; None leaves the choice to the codec."""
    name = f"compression.{codec.name.lower()}.level"
    if name not in PRODUCER_KEYS or values.value(name) == PRODUCER_KEYS[name].default:
        return None
    return values.integer(name)


def _client_id(values: Values) -> str:
    if values.is_given("client.id"):
        return values.text("client.id")
    transactional_id = values.optional_text("transactional.id")
    return f"producer-{next_number('producer') if transactional_id is None else transactional_id}"
