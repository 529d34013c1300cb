"""The producer's settings: Kafka 4's keys and defaults, and the conflicts between them."""

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
from rookery.client.settings.parser import Values, check_together, table, unsupported_row
from rookery.records.batch import Codec

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_STRING = ConfigType.STRING

# A broker stores the sequence numbers of this many batches per producer: it cannot detect a duplicate of an older one.
MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5
ROUND_ROBIN = "round-robin"
_ROUND_ROBIN_CLASS = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


class Acks(IntEnum):
    """Which replicas must have a batch before it counts as delivered, as encoded in Produce."""

    NONE = 0
    LEADER = 1
    ALL = -1


def _check_partitioner(value: ConfigValue) -> str | None:
    if value in (None, ROUND_ROBIN, _ROUND_ROBIN_CLASS):
        return None
    return f"must be {ROUND_ROBIN}; pass any other partitioner as the producer's keyword argument partitioner"


_PRODUCER_ROWS: tuple[ConfigKey, ...] = (
    row(
        "acks",
        _STRING,
        "all",
        "Replicas that must have a batch: 0 none, 1 the leader, all (or -1) all in-sync replicas.",
        choices=("all", "-1", "0", "1"),
    ),
    row("batch.size", _INT, 16_384, "Maximum bytes of records in a partition's batch; 0: no batching.", minimum=0),
    row("linger.ms", _LONG, 5, "Time that a batch waits for more records before it is sent.", minimum=0),
    row("buffer.memory", _LONG, 33_554_432, "Total bytes of records that wait or are in flight.", minimum=0),
    row("max.block.ms", _LONG, 60_000, "Longest time that send waits for metadata and memory.", minimum=0),
    row(
        "delivery.timeout.ms",
        _INT,
        120_000,
        "Time for a record from send to acknowledgement; at least linger.ms + request.timeout.ms.",
        minimum=0,
    ),
    row("retries", _INT, INT_MAX, "Maximum retries; prefer delivery.timeout.ms as the limit.", minimum=0),
    row(
        "max.in.flight.requests.per.connection",
        _INT,
        5,
        "Requests in flight to one broker; at most 5 with idempotence.",
        minimum=1,
    ),
    row("enable.idempotence", _BOOLEAN, True, "No duplicates and no reordering by retries; off if acks is not all."),
    ConfigKey(
        name="transactional.id",
        type=_STRING,
        default=None,
        doc="Makes the producer transactional; a newer producer with the same id fences older ones.",
        check=non_empty,
    ),
    row("transaction.timeout.ms", _INT, 60_000, "The coordinator aborts a transaction that is open longer."),
    row(
        "compression.type",
        _STRING,
        "none",
        "Compression codec of batches.",
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
        doc=f"{ROUND_ROBIN}, or Java's class name of it; default: the key's hash, or sticky partitions without a key.",
        check=_check_partitioner,
    ),
    row("partitioner.ignore.keys", _BOOLEAN, False, "Partition records with a key like those without."),
    row(
        "partitioner.adaptive.partitioning.enable",
        _BOOLEAN,
        True,
        "Send more records without a key to faster brokers.",
        effective=False,
    ),
    row(
        "partitioner.availability.timeout.ms",
        _LONG,
        0,
        "Send no records without a key to a partition whose broker accepts nothing for this long; 0: off.",
        minimum=0,
        effective=False,
    ),
    row("metadata.max.idle.ms", _LONG, 300_000, "Drop the metadata of a topic without sends.", minimum=5000),
    row("receive.buffer.bytes", _INT, 32_768, "Size of a socket's receive buffer; -1: the system's.", minimum=-1),
    unsupported_row(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        False,
        doc="Transactions that take part in an external two-phase commit (KIP-939).",
        reason="two-phase commit is not supported",
    ),
    unsupported_row(
        "key.serializer",
        _CLASS,
        None,
        doc="Java class that serializes keys.",
        reason="pass the serializer itself, as the producer's keyword argument key_serializer",
    ),
    unsupported_row(
        "value.serializer",
        _CLASS,
        None,
        doc="Java class that serializes values.",
        reason="pass the serializer itself, as the producer's keyword argument value_serializer",
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
        """Parse a mapping with Kafka's names. Raises ConfigError, which names every invalid key."""
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
    # Kafka 4 rejects this even if enable.idempotence is not set, whatever acks and retries are.
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
    """Like Kafka: conflicting keys turn idempotence off, unless it was set explicitly (`_idempotence_conflicts`)."""
    return (
        values.boolean("enable.idempotence")
        and _ACKS[values.text("acks")] is Acks.ALL
        and values.integer("retries") > 0
    )


def _shortest_delivery_ms(values: Values) -> int:
    return min(values.integer("linger.ms") + values.integer("request.timeout.ms"), INT_MAX)


def _delivery_timeout_ms(values: Values) -> int:
    """Return the time-out; the default is raised to the minimum that linger.ms and request.timeout.ms require."""
    return max(values.integer("delivery.timeout.ms"), _shortest_delivery_ms(values))


def _level(values: Values, codec: Codec) -> int | None:
    """Return the level for `codec` if it was set; None leaves the choice to the codec."""
    name = f"compression.{codec.name.lower()}.level"
    if name not in PRODUCER_KEYS or values.value(name) == PRODUCER_KEYS[name].default:
        return None
    return values.integer(name)


def _client_id(values: Values) -> str:
    if values.is_given("client.id"):
        return values.text("client.id")
    transactional_id = values.optional_text("transactional.id")
    return f"producer-{next_number('producer') if transactional_id is None else transactional_id}"
