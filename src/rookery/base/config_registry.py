"""The keys of the schema registry, under Confluent's names, and their names in a broker's configuration.

A separate registry (`rookery registry`) uses them as they are. In a broker's process each is called
`schema.registry.<name>`; a name that already begins so keeps it. `schema.registry.listeners` enables the registry.
`kafkastore.<key>` passes any key that Kafka's clients share to the registry's own clients: `registry.settings` has the
list. Types, defaults and limits are Confluent's, except where the text of a row says so.
"""

from dataclasses import replace
from typing import Final

from rookery.base.config_access import SUPER_USERS_ROW
from rookery.base.config_key import INT_MAX, ConfigKey, ConfigType
from rookery.base.config_key import broker_row as _row

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_PASSWORD = ConfigType.PASSWORD
_STRING = ConfigType.STRING

REGISTRY_PREFIX: Final = "schema.registry."
CLIENT_PREFIX: Final = "kafkastore."
LISTENERS: Final = "schema.registry.listeners"

_LEVELS = ("none", "backward", "backward_transitive", "forward", "forward_transitive", "full", "full_transitive")

REGISTRY_ROWS: tuple[ConfigKey, ...] = (
    _row("listeners", _LIST, ("http://0.0.0.0:8081",), "Where to listen: http://HOST:PORT, https://HOST:PORT."),
    _row(
        "host.name",
        _STRING,
        None,
        "Name under which the other nodes reach this one; if unset, the first listener's host, or this machine's name "
        "if that is every interface.",
    ),
    _row(
        "inter.instance.protocol",
        _STRING,
        None,
        "The listener that other nodes use: the first with this scheme. If unset, http if there is one.",
        choices=("http", "https"),
        any_case=True,
    ),
    _row(
        "kafkastore.bootstrap.servers", _LIST, (), "Brokers that store the schemas; in a broker's process that broker."
    ),
    _row("kafkastore.topic", _STRING, "_schemas", "The topic that stores the schemas."),
    _row(
        "kafkastore.topic.replication.factor",
        _INT,
        3,
        "Replicas of that topic, when it is created; fewer if there are fewer brokers.",
        minimum=1,
    ),
    _row(
        "kafkastore.topic.skip.validation",
        _BOOLEAN,
        False,
        "Use the topic as it is: do not create it, and do not check its partitions and its cleanup policy.",
    ),
    _row(
        "kafkastore.timeout.ms",
        _INT,
        10_000,
        "Time for a write to be stored and read back. 500 in Confluent's registry.",
        minimum=1,
    ),
    _row(
        "kafkastore.init.timeout.ms",
        _INT,
        60_000,
        "Time for the start: to read all schemas, and to agree on a leader.",
        minimum=1,
    ),
    _row("schema.registry.group.id", _STRING, "schema-registry", "Nodes with the same group id elect one leader."),
    _row(
        "kafkagroup.rebalance.timeout.ms",
        _INT,
        300_000,
        "Time for all nodes to rejoin when one joins or leaves.",
        minimum=1,
    ),
    _row(
        "kafkagroup.session.timeout.ms",
        _INT,
        10_000,
        "Time without heartbeats after which a node is removed.",
        minimum=1,
    ),
    _row("kafkagroup.heartbeat.interval.ms", _INT, 3000, "Time between heartbeats.", minimum=1),
    _row("leader.eligibility", _BOOLEAN, True, "Whether this node may become the leader, which writes."),
    _row(
        "leader.connect.timeout.ms", _INT, 60_000, "Time to connect to the leader, for a forwarded request.", minimum=1
    ),
    _row("leader.read.timeout.ms", _INT, 60_000, "Time for the leader's response to a forwarded request.", minimum=1),
    _row(
        "inter.instance.headers.whitelist",
        _LIST,
        (),
        "Names of further request headers that are forwarded to the leader.",
    ),
    _row(
        "schema.compatibility.level",
        _STRING,
        "backward",
        "Compatibility level where none is set.",
        choices=_LEVELS,
        any_case=True,
    ),
    _row("mode.mutability", _BOOLEAN, True, "Whether the mode can be changed."),
    _row(
        "size.limit.filter.max.request.body.size",
        _INT,
        2 * 1024 * 1024,
        "Largest body of a request, in bytes of JSON, where a schema's text is longer than it is stored. 1 MiB in "
        "Confluent's registry, where the limit must be enabled.",
        minimum=1,
    ),
    _row("schema.search.default.limit", _INT, 1000, "Default number of schemas in a list.", minimum=1),
    _row("schema.search.max.limit", _INT, 1000, "Largest number of schemas in a list.", minimum=1),
    _row("subject.search.default.limit", _INT, INT_MAX, "Default number of subjects in a list.", minimum=1),
    _row("subject.search.max.limit", _INT, INT_MAX, "Largest number of subjects in a list.", minimum=1),
    _row(
        "subject.version.search.default.limit",
        _INT,
        INT_MAX,
        "Default number of versions in a list.",
        minimum=1,
    ),
    _row("subject.version.search.max.limit", _INT, INT_MAX, "Largest number of versions in a list.", minimum=1),
    _row("context.search.default.limit", _INT, INT_MAX, "Default number of contexts in a list.", minimum=1),
    _row("context.search.max.limit", _INT, INT_MAX, "Largest number of contexts in a list.", minimum=1),
    _row(
        "authentication.method",
        _STRING,
        "NONE",
        "BASIC requires a user and a password in every request.",
        choices=("NONE", "BASIC"),
    ),
    _row("authentication.realm", _STRING, "", "Realm in the challenge to a client that must authenticate."),
    _row(
        "authentication.roles",
        _LIST,
        ("*",),
        "Roles that may use the registry; * means every user, also without a role.",
    ),
    _row(
        "authentication.credentials.file",
        _STRING,
        None,
        "File with a line for each user: name: password[,role...]. Confluent's registry gets it by a JAAS "
        "configuration. Without it, the users are those of the brokers, if kafkastore.sasl.mechanism is PLAIN or "
        "SCRAM.",
    ),
    _row(
        "authorization.rules",
        _STRING,
        None,
        "Roles on subjects, as User:NAME=ROLE:SUBJECT, separated by semicolons; a subject may end in *. Without rules, "
        "every user may do everything. Not a key of Confluent's registry.",
    ),
    _row(
        "authorization.rules.file",
        _STRING,
        None,
        "File with a rule per line, which is read again when it changes. Not a key of Confluent's registry.",
    ),
    replace(SUPER_USERS_ROW, doc="Principals with every role, as User:name, separated by semicolons."),
    _row("ssl.keystore.location", _STRING, None, "PEM file with the private key and the certificate chain, for https."),
    _row("ssl.keystore.type", _STRING, "PEM", "Format of that file. JKS in Confluent's registry.", choices=("PEM",)),
    _row("ssl.key.password", _PASSWORD, None, "Password of the private key."),
    _row("ssl.truststore.location", _STRING, None, "PEM file with the trusted certificate authorities."),
    _row("ssl.truststore.type", _STRING, "PEM", "Format of that file. JKS in Confluent's registry.", choices=("PEM",)),
    _row(
        "ssl.client.authentication",
        _STRING,
        "NONE",
        "Whether clients must present a certificate.",
        choices=("NONE", "REQUESTED", "REQUIRED"),
    ),
)


def broker_name(name: str) -> str:
    """Return the name of a registry key in a broker's configuration."""
    return name if name.startswith(REGISTRY_PREFIX) else REGISTRY_PREFIX + name


def _in_broker(row: ConfigKey) -> ConfigKey:
    if row.name == "listeners":
        return replace(row, name=LISTENERS, default=(), doc=f"Enables the schema registry. {row.doc}")
    if row.name == SUPER_USERS_ROW.name:
        row = replace(row, doc=f"{row.doc} If unset, those of the broker.")
    return replace(row, name=broker_name(row.name), doc=f"Schema registry: {row.doc}")


REGISTRY_BROKER_ROWS: tuple[ConfigKey, ...] = tuple(_in_broker(row) for row in REGISTRY_ROWS)

# Not shown when a broker's configuration is described: some of these keys are passwords.
PASSED_ON: Final = ConfigKey(
    name=REGISTRY_PREFIX + CLIENT_PREFIX + "*",
    type=_PASSWORD,
    default=None,
    doc="Schema registry: A key of the registry's Kafka clients.",
)
