"""The broker keys of Kafka 4 that have an effect here; see `config_key` for the columns of a row.

Kafka can change more of them at run time; here only keys whose change takes effect immediately are marked so.
"""

from rookery.base.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, ConfigValue, Update
from rookery.base.config_key import broker_row as _row

_BOOLEAN = ConfigType.BOOLEAN
_DOUBLE = ConfigType.DOUBLE
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_STRING = ConfigType.STRING
_CLUSTER_WIDE = Update.CLUSTER_WIDE


def parse_connection_limits(text: str) -> dict[str, int]:
    """Parse limits by address, such as `127.0.0.1:10,[::1]:5`; raises ValueError with the first malformed item."""
    limits: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        address, _, count = item.rpartition(":")
        if not address or not (count.isascii() and count.isdigit()):
            raise ValueError(item)
        limits[address.strip("[]")] = int(count)
    return limits


def _connection_limits_problem(value: ConfigValue) -> str | None:
    try:
        parse_connection_limits(str(value))
    except ValueError as error:
        return f"expected address:count, got {error.args[0]!r}"
    return None


BROKER_ROWS: tuple[ConfigKey, ...] = (
    _row(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that clients connect to, if they differ from listeners.",
    ),
    _row(
        "auto.create.topics.enable",
        _BOOLEAN,
        True,
        "Create a topic when a client requests metadata of one that does not exist.",
    ),
    _row(
        "compression.gzip.level",
        _INT,
        -1,
        "Default of the topic config compression.gzip.level.",
        minimum=1,
        maximum=9,
        also=-1,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "compression.lz4.level",
        _INT,
        9,
        "Default of the topic config compression.lz4.level.",
        minimum=1,
        maximum=17,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "compression.type",
        _STRING,
        "producer",
        "Default of the topic config compression.type.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        update=_CLUSTER_WIDE,
    ),
    _row(
        "compression.zstd.level",
        _INT,
        3,
        "Default of the topic config compression.zstd.level.",
        minimum=-131_072,
        maximum=22,
        update=_CLUSTER_WIDE,
    ),
    _row("connections.max.idle.ms", _LONG, 600_000, "Idle time after which a connection is closed."),
    _row("default.replication.factor", _INT, 1, "Replicas of topics that are created without a replication factor."),
    _row("delete.topic.enable", _BOOLEAN, True, "Allow topics to be deleted."),
    _row("fetch.max.bytes", _INT, 57_671_680, "Most bytes of one fetch response.", minimum=1024),
    _row(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name.",
    ),
    _row(
        "listeners",
        _LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, as NAME://host:port; an empty host means every interface, which is Kafka's default.",
    ),
    _row(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "Sleep of the cleaner when there is nothing to clean.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        134_217_728,
        "Memory for the cleaner's map of keys; a change takes effect with the next log that is cleaned.",
        minimum=1_048_577,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86_400_000,
        "Default of the topic config delete.retention.ms.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row("log.cleaner.enable", _BOOLEAN, True, "Run the cleaner; without it compacted topics grow without limit."),
    _row(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "Default of the topic config max.compaction.lag.ms.",
        minimum=1,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Default of the topic config min.cleanable.dirty.ratio.",
        minimum=0,
        maximum=1,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "Default of the topic config min.compaction.lag.ms.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.cleanup.policy",
        _LIST,
        ("delete",),
        "Default of the topic config cleanup.policy.",
        choices=("compact", "delete"),
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.dir",
        _LIST,
        ("rookery-data",),
        "Directory for data, if log.dirs is not set. Kafka's own default lies below the system's temporary directory.",
    ),
    _row("log.dirs", _LIST, None, "Directories for data; new partitions go to the one with the fewest."),
    _row(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "Default of the topic config flush.messages.",
        minimum=1,
        update=_CLUSTER_WIDE,
    ),
    _row("log.flush.interval.ms", _LONG, None, "Default of the topic config flush.ms.", update=_CLUSTER_WIDE),
    _row(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "How often the recovery points are written to disk.",
        minimum=0,
    ),
    _row("log.flush.scheduler.interval.ms", _LONG, LONG_MAX, "How often logs are checked for a flush that is due."),
    _row(
        "log.index.interval.bytes",
        _INT,
        4096,
        "Default of the topic config index.interval.bytes.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.index.size.max.bytes",
        _INT,
        10_485_760,
        "Default of the topic config segment.index.bytes.",
        minimum=4,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "Default of the topic config message.timestamp.after.max.ms.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "Default of the topic config message.timestamp.before.max.ms.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Default of the topic config message.timestamp.type.",
        choices=("CreateTime", "LogAppendTime"),
        update=_CLUSTER_WIDE,
    ),
    _row("log.retention.bytes", _LONG, -1, "Default of the topic config retention.bytes.", update=_CLUSTER_WIDE),
    _row("log.retention.check.interval.ms", _LONG, 300_000, "How often logs are checked for retention.", minimum=1),
    _row("log.retention.hours", _INT, 168, "Default of the topic config retention.ms, in hours."),
    _row("log.retention.minutes", _INT, None, "Default of the topic config retention.ms, in minutes."),
    _row("log.retention.ms", _LONG, None, "Default of the topic config retention.ms.", update=_CLUSTER_WIDE),
    _row("log.roll.hours", _INT, 168, "Default of the topic config segment.ms, in hours.", minimum=1),
    _row("log.roll.jitter.hours", _INT, 0, "Default of the topic config segment.jitter.ms, in hours.", minimum=0),
    _row("log.roll.jitter.ms", _LONG, None, "Default of the topic config segment.jitter.ms.", update=_CLUSTER_WIDE),
    _row("log.roll.ms", _LONG, None, "Default of the topic config segment.ms.", update=_CLUSTER_WIDE),
    _row(
        "log.segment.bytes",
        _INT,
        1_073_741_824,
        "Default of the topic config segment.bytes.",
        minimum=1_048_576,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "log.segment.delete.delay.ms",
        _LONG,
        60_000,
        "Default of the topic config file.delete.delay.ms.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "max.connections",
        _INT,
        INT_MAX,
        "Most connections of a listener at a time; in total never more than a quarter of the files that the process "
        "may open. Also for one listener: listener.name.<listener>.max.connections.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        "Most connections of one address at a time.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        "Other limits for single addresses, as address:count pairs.",
        check=_connection_limits_problem,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "Most incremental fetch sessions that are kept.",
        minimum=0,
    ),
    _row(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "Most partitions in one DescribeTopicPartitions response.",
        minimum=1,
    ),
    _row(
        "message.max.bytes",
        _INT,
        1_048_588,
        "Default of the topic config max.message.bytes.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row("metadata.log.dir", _STRING, None, "Directory of the metadata log, if it is not the first of log.dirs."),
    _row(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20_971_520,
        "Bytes of metadata records after which a snapshot is written.",
        minimum=1,
    ),
    _row(
        "metadata.log.max.snapshot.interval.ms",
        _LONG,
        3_600_000,
        "Longest time between two metadata snapshots, if there were changes; 0 leaves it to the bytes.",
        minimum=0,
    ),
    _row("metadata.log.segment.bytes", _INT, 1_073_741_824, "Segment size of the metadata log.", minimum=8_388_608),
    _row("metadata.log.segment.ms", _LONG, 604_800_000, "Segment age of the metadata log."),
    _row(
        "metadata.max.retention.bytes",
        _LONG,
        104_857_600,
        "Size of metadata log and snapshots beyond which the oldest are removed; -1 is no limit.",
    ),
    _row(
        "metadata.max.retention.ms",
        _LONG,
        604_800_000,
        "Age beyond which old metadata snapshots, and the log before them, are removed; -1 is no limit.",
    ),
    _row(
        "min.insync.replicas",
        _INT,
        1,
        "Default of the topic config min.insync.replicas.",
        minimum=1,
        update=_CLUSTER_WIDE,
    ),
    _row("num.partitions", _INT, 1, "Partitions of topics that are created without a partition count.", minimum=1),
    _row(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "Threads that recover logs after an unclean stop, and close them at a clean one; a change at run time takes "
        "effect at the next stop.",
        minimum=1,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        "Idle time after which a producer's sequence numbers are dropped.",
        minimum=1,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "How often the high watermarks are written to disk.",
    ),
    _row(
        "request.timeout.ms",
        _INT,
        30_000,
        "Longest wait for replicas in requests that brokers make themselves.",
        minimum=1,
    ),
    _row(
        "queued.max.request.bytes",
        _LONG,
        -1,
        "Bytes of partially received requests, over all connections of a listener. Beyond them the connection "
        "whose request has been incomplete for longest is closed (Kafka stops reading); -1 means 268435456 here, no "
        "limit in Kafka.",
    ),
    _row("socket.listen.backlog.size", _INT, 50, "Connections that may wait to be accepted.", minimum=1),
    _row("socket.receive.buffer.bytes", _INT, -1, "SO_RCVBUF of client sockets; -1 lets the system tune it."),
    _row("socket.request.max.bytes", _INT, 104_857_600, "Largest request.", minimum=1),
    _row("socket.send.buffer.bytes", _INT, -1, "SO_SNDBUF of client sockets; -1 lets the system tune it."),
)
