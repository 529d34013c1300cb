"""The topic configurations of Kafka 4: the table for CreateTopics, DescribeConfigs and AlterConfigs of topics.

`synonyms` are the broker keys that provide a topic's value if the topic itself has none; the first that is set counts.
`SYNONYM_UNIT_MS` has the factors for those in hours and minutes.

The checks of schema ids are not Kafka's but Confluent's, under their names there and under plain ones. `FALLBACKS` says
which key provides the value of a plain one that is not set.
"""

import re

from rookery.base.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, ConfigValue

SYNONYM_UNIT_MS = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}

SEGMENT_BYTES_MIN = 1_048_576
SUBJECT_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
FALLBACKS = {f"{part}.subject.name.strategy": f"confluent.{part}.subject.name.strategy" for part in ("key", "value")}
_STRATEGY_CLASSES = tuple(f"io.confluent.kafka.serializers.subject.{name}" for name in SUBJECT_STRATEGIES)
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def throttled_replicas_problem(value: ConfigValue) -> str | None:
    items = value if isinstance(value, tuple) else ()
    if items == ("*",) or all(_THROTTLED_REPLICA.fullmatch(item) for item in items):
        return None
    return "must be * or a list of partition:broker pairs"


def _whole(
    name: str,
    default: int | None,
    doc: str,
    *,
    synonyms: tuple[str, ...] = (),
    minimum: int | None = 0,
    maximum: int | None = None,
    also: int | None = None,
    kind: ConfigType = ConfigType.LONG,
    effective: bool = True,
    internal: bool = False,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        doc=doc,
        synonyms=synonyms,
        minimum=minimum,
        maximum=maximum,
        also=also,
        effective=effective,
        internal=internal,
    )


def _text(name: str, default: str, doc: str, *, synonym: str, choices: tuple[str, ...]) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.STRING, default=default, doc=doc, synonyms=(synonym,), choices=choices)


def _flag(name: str, doc: str, *, synonyms: tuple[str, ...] = (), effective: bool = False) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.BOOLEAN, default=False, doc=doc, synonyms=synonyms, effective=effective)


def _throttled(name: str, role: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.LIST,
        default=(),
        doc=f"Replicas whose {role} traffic is throttled: * or partition:broker pairs.",
        check=throttled_replicas_problem,
    )


def _schema_check_rows(part: str) -> tuple[ConfigKey, ...]:
    """Return the rows for schema ids; `part` is key or value."""
    return (
        ConfigKey(
            name=f"confluent.{part}.schema.validation",
            type=ConfigType.BOOLEAN,
            default=False,
            doc=f"Reject records whose {part} has no schema id that is registered for its subject.",
        ),
        ConfigKey(
            name=f"{part}.schema.validation",
            type=ConfigType.BOOLEAN,
            default=False,
            doc=f"Another name of confluent.{part}.schema.validation: either of the two enables the check.",
        ),
        ConfigKey(
            name=f"confluent.{part}.subject.name.strategy",
            type=ConfigType.STRING,
            default=_STRATEGY_CLASSES[0],
            choices=(*_STRATEGY_CLASSES, *SUBJECT_STRATEGIES),
            doc=f"Which subject a checked {part} belongs to: that of the topic (topic-{part}), of the record's full "
            "name, or of both.",
        ),
        ConfigKey(
            name=f"{part}.subject.name.strategy",
            type=ConfigType.STRING,
            default=None,
            choices=(*_STRATEGY_CLASSES, *SUBJECT_STRATEGIES),
            doc=f"Another name of confluent.{part}.subject.name.strategy; takes precedence over it.",
        ),
    )


_INT = ConfigType.INT

_ROWS = (
    ConfigKey(
        name="cleanup.policy",
        type=ConfigType.LIST,
        default=("delete",),
        choices=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
        doc="What happens to old records: delete drops old segments, compact keeps the last record of each key; both "
        "may be given. Empty keeps everything.",
    ),
    _whole(
        "compression.gzip.level",
        -1,
        "Level for gzip when compression.type=gzip; -1 means the library's default.",
        kind=_INT,
        minimum=1,
        maximum=9,
        also=-1,
        synonyms=("compression.gzip.level",),
    ),
    _whole(
        "compression.lz4.level",
        9,
        "Level for lz4 when compression.type=lz4.",
        kind=_INT,
        minimum=1,
        maximum=17,
        synonyms=("compression.lz4.level",),
    ),
    _text(
        "compression.type",
        "producer",
        "How stored batches are compressed; producer keeps them as they arrive, anything else recompresses batches "
        "that differ.",
        synonym="compression.type",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _whole(
        "compression.zstd.level",
        3,
        "Level for zstd when compression.type=zstd.",
        kind=_INT,
        minimum=-131072,
        maximum=22,
        synonyms=("compression.zstd.level",),
    ),
    _whole(
        "delete.retention.ms",
        86_400_000,
        "How long tombstones stay in a compacted topic after the first cleaning that finds them.",
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    _whole(
        "file.delete.delay.ms",
        60_000,
        "Time between the removal of a segment from the log and the removal of its files.",
        synonyms=("log.segment.delete.delay.ms",),
    ),
    _whole(
        "flush.messages",
        LONG_MAX,
        "Records that may be unsynced before an fsync is forced; 1 syncs every produce before it is acknowledged.",
        minimum=1,
        synonyms=("log.flush.interval.messages",),
    ),
    _whole(
        "flush.ms",
        LONG_MAX,
        "Longest time that a record may be unsynced.",
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    _throttled("follower.replication.throttled.replicas", "follower"),
    _whole(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of the offset index.",
        kind=_INT,
        synonyms=("log.index.interval.bytes",),
    ),
    _whole(
        "internal.segment.bytes",
        None,
        "Segment size without the lower limit of segment.bytes, for tests; takes precedence over it.",
        kind=_INT,
        minimum=None,
        internal=True,
    ),
    _throttled("leader.replication.throttled.replicas", "leader"),
    _whole(
        "local.retention.bytes",
        -2,
        "With tiered storage: bytes kept locally; -2 means retention.bytes.",
        minimum=-2,
        synonyms=("log.local.retention.bytes",),
        effective=False,
    ),
    _whole(
        "local.retention.ms",
        -2,
        "With tiered storage: time that segments stay local; -2 means retention.ms.",
        minimum=-2,
        synonyms=("log.local.retention.ms",),
        effective=False,
    ),
    _whole(
        "max.compaction.lag.ms",
        LONG_MAX,
        "Longest time that a record may wait for compaction.",
        minimum=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    _whole(
        "max.message.bytes",
        1_048_588,
        "Largest record batch that is accepted, after compression.",
        kind=_INT,
        synonyms=("message.max.bytes",),
    ),
    _whole(
        "message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's timestamp may lie in the future of the broker's clock.",
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    _whole(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's timestamp may lie in the past of the broker's clock.",
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    _text(
        "message.timestamp.type",
        "CreateTime",
        "Which clock sets a record's timestamp: the producer's, or the broker's when it is appended.",
        synonym="log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.DOUBLE,
        default=0.5,
        minimum=0,
        maximum=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Share of the log that must be dirty before the cleaner processes it.",
    ),
    _whole(
        "min.compaction.lag.ms",
        0,
        "Shortest time that a record stays uncompacted.",
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    _whole(
        "min.insync.replicas",
        1,
        "In-sync replicas that acks=all needs.",
        kind=_INT,
        minimum=1,
        synonyms=("min.insync.replicas",),
    ),
    _flag("preallocate", "Reserve a new segment's space on disk when it is created.", synonyms=("log.preallocate",)),
    _flag("remote.log.copy.disable", "With tiered storage: stop copying segments to it."),
    _flag("remote.log.delete.on.disable", "With tiered storage: delete the remote data when it is turned off."),
    _flag("remote.storage.enable", "Tiered storage for this topic; rejected, since there is none here."),
    _whole(
        "retention.bytes",
        -1,
        "Size of a partition beyond which its oldest segments are deleted; negative means no limit.",
        minimum=None,
        synonyms=("log.retention.bytes",),
    ),
    _whole(
        "retention.ms",
        604_800_000,
        "Age beyond which segments are deleted, by their newest record's timestamp; -1 means no limit.",
        minimum=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    _whole(
        "segment.bytes",
        1_073_741_824,
        "Size at which a new segment begins.",
        kind=_INT,
        minimum=SEGMENT_BYTES_MIN,
        synonyms=("log.segment.bytes",),
    ),
    _whole(
        "segment.index.bytes",
        10_485_760,
        "Largest size of an offset or time index; when one is full, a new segment begins.",
        kind=_INT,
        minimum=4,
        maximum=INT_MAX,
        synonyms=("log.index.size.max.bytes",),
    ),
    _whole(
        "segment.jitter.ms",
        0,
        "Random time subtracted from segment.ms, so that not all partitions roll at the same time.",
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    _whole(
        "segment.ms",
        604_800_000,
        "Age at which a new segment begins even if the current one is not full.",
        minimum=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    _flag(
        "unclean.leader.election.enable",
        "Allow a replica that is not in sync to lead when no other is left, which loses records.",
        synonyms=("unclean.leader.election.enable",),
        effective=True,
    ),
)

TOPIC_KEYS: dict[str, ConfigKey] = {
    row.name: row
    for row in sorted(_ROWS + _schema_check_rows("key") + _schema_check_rows("value"), key=lambda row: row.name)
}
