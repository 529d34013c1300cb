"""The keys of authorization. Those of the authorizer are Kafka's."""

from collections.abc import Iterator
from typing import Final

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue
from rookery.base.config_key import broker_row as _row

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
AUDIT_SINK: Final = "rookery.audit.sink"
AUDIT_DECISIONS: Final = "rookery.audit.decisions"
AUDIT_FILE: Final = "rookery.audit.file"
AUDIT_FILE_BYTES: Final = "rookery.audit.file.max.bytes"
AUDIT_FILE_COUNT: Final = "rookery.audit.file.count"
AUDIT_INTERVAL: Final = "rookery.audit.interval.ms"
AUDIT_QUEUE: Final = "rookery.audit.queue.events"
AUDIT_TOPIC: Final = "rookery.audit.topic"
AUDIT_TOPIC_FACTOR: Final = "rookery.audit.topic.replication.factor"
AUDIT_TOPIC_RETENTION: Final = "rookery.audit.topic.retention.ms"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def principals_of(text: str) -> Iterator[str]:
    """Yield the principals of a `super.users` text. Names may contain commas, so semicolons separate them."""
    return (each.strip() for each in text.split(";") if each.strip())


def _authorizer_problem(value: ConfigValue) -> str | None:
    if value in ("", STANDARD_AUTHORIZER):
        return None
    return f"it must be {STANDARD_AUTHORIZER}, or empty for no authorizer"


def _super_users_problem(value: ConfigValue) -> str | None:
    assert isinstance(value, str)
    for principal in principals_of(value):
        kind, _, name = principal.partition(":")
        if not kind or not name:
            return f"{principal} must be Type:name, for example User:admin. Separate several with semicolons"
        if ",User:" in principal:
            return f"{principal} would be one principal. Separate several with semicolons"
    return None


SUPER_USERS_ROW: Final = _row(
    SUPER_USERS,
    ConfigType.STRING,
    "",
    "Principals that may do everything, as User:name, separated by semicolons. The nodes of a cluster must be "
    "among them, or have the permission ClusterAction.",
    check=_super_users_problem,
)
ACCESS_ROWS: Final[tuple[ConfigKey, ...]] = (
    _row(
        ALLOW_IF_NO_ACL,
        ConfigType.BOOLEAN,
        False,
        "With an authorizer: allow every operation on resources that no ACL is about.",
    ),
    _row(
        AUTHORIZER,
        ConfigType.STRING,
        "",
        f"{STANDARD_AUTHORIZER} asks for permission by ACLs; empty allows everything.",
        check=_authorizer_problem,
    ),
    SUPER_USERS_ROW,
    _row(
        AUDIT_SINK,
        ConfigType.STRING,
        "none",
        "Where the audit log goes: none, a file, or a topic that only super users read. Not a key of Kafka.",
        choices=("none", "file", "topic"),
    ),
    _row(
        AUDIT_DECISIONS,
        ConfigType.STRING,
        "denied",
        "Which decisions of the authorizer are in the audit log. Logins and changes always are. Not a key of Kafka.",
        choices=("none", "denied", "all"),
    ),
    _row(AUDIT_FILE, ConfigType.STRING, None, "The file of the audit log. Not a key of Kafka."),
    _row(
        AUDIT_FILE_BYTES,
        ConfigType.LONG,
        104_857_600,
        "Size at which the file is renamed and a new one begins; 0 is no limit. Not a key of Kafka.",
        minimum=0,
    ),
    _row(
        AUDIT_FILE_COUNT,
        ConfigType.INT,
        5,
        "How many files are kept, with the present one. Not a key of Kafka.",
        minimum=1,
        maximum=1000,
    ),
    _row(
        AUDIT_INTERVAL,
        ConfigType.INT,
        10_000,
        "Equal events within this time are one line with their number. Not a key of Kafka.",
        minimum=0,
    ),
    _row(
        AUDIT_QUEUE,
        ConfigType.INT,
        10_000,
        "Events that wait to be written; more are dropped, and a line says how many. Not a key of Kafka.",
        minimum=1,
    ),
    _row(AUDIT_TOPIC, ConfigType.STRING, "__audit_log", "The topic of the audit log. Not a key of Kafka."),
    _row(
        AUDIT_TOPIC_FACTOR,
        ConfigType.SHORT,
        3,
        "Replicas of the topic, as far as there are brokers when it is created. Not a key of Kafka.",
        minimum=1,
    ),
    _row(
        AUDIT_TOPIC_RETENTION,
        ConfigType.LONG,
        604_800_000,
        "How long the topic keeps its lines. Not a key of Kafka.",
        minimum=-1,
    ),
)


def audit_problem(sink: str, file: str | None, authorizer: str | None, *, is_broker: bool) -> str | None:
    """Return what is wrong with the audit log's settings together, in one sentence."""
    if sink == "file" and not file:
        return f"{AUDIT_SINK}=file needs {AUDIT_FILE}: set it to the path of a file"
    if sink == "topic" and not authorizer:
        return (
            f"{AUDIT_SINK}=topic needs an authorizer, or everyone could read it: set {AUTHORIZER}={STANDARD_AUTHORIZER}"
        )
    if sink == "topic" and not is_broker:
        return f"{AUDIT_SINK}=topic works on brokers only: set it to file on this controller"
    return None
