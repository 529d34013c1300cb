"""The broker keys of Kafka 4 that make a node a member of a cluster: id and roles, quorum, leases, replication."""

from rookery.base.config_key import ConfigKey, ConfigType, Update
from rookery.base.config_key import broker_row as _row

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_STRING = ConfigType.STRING

CLUSTER_ROWS: tuple[ConfigKey, ...] = (
    _row("auto.leader.rebalance.enable", _BOOLEAN, True, "Return leadership to preferred replicas that are in sync."),
    _row("broker.heartbeat.interval.ms", _INT, 2000, "Time between a broker's heartbeats to the controller."),
    _row("broker.id", _INT, -1, "Older name of node.id."),
    _row("broker.rack", _STRING, None, "The rack of this broker; reported to clients and used to spread replicas."),
    _row("broker.session.timeout.ms", _INT, 9000, "Silence after which the controller fences a broker."),
    _row(
        "cluster.id",
        _STRING,
        None,
        "Id of a new cluster; if unset, that of the data directory or a random one. Not a key of Kafka.",
    ),
    _row(
        "controlled.shutdown.enable",
        _BOOLEAN,
        True,
        "Let the controller move leaderships to other brokers before this one stops; false: it stops at once.",
    ),
    _row(
        "controller.listener.names",
        _LIST,
        (),
        "Names of the listeners for controllers, which are not reported to clients; brokers connect to the first. "
        "A node that is a cluster by itself needs none.",
    ),
    _row("controller.quorum.auto.join.enable", _BOOLEAN, False, "Let a controller join the voters by itself."),
    _row(
        "controller.quorum.bootstrap.servers",
        _LIST,
        (),
        "Controllers as host:port, to find the leader of a quorum whose voters are in the metadata log.",
    ),
    _row(
        "controller.quorum.election.backoff.max.ms",
        _INT,
        1000,
        "Longest wait of a preferred successor before its election.",
        minimum=0,
    ),
    _row(
        "controller.quorum.election.timeout.ms",
        _INT,
        1000,
        "Wait for votes before a new election; up to twice as long.",
        minimum=0,
    ),
    _row(
        "controller.quorum.fetch.max.bytes", _INT, 1_048_576, "Most bytes of one fetch of the metadata log.", minimum=1
    ),
    _row(
        "controller.quorum.fetch.snapshot.max.bytes",
        _INT,
        1_048_576,
        "Most bytes of one fetch of a metadata snapshot.",
        minimum=1,
    ),
    _row(
        "controller.quorum.fetch.timeout.ms",
        _INT,
        2000,
        "Silence of the quorum leader after which an election begins.",
        minimum=0,
    ),
    _row("controller.quorum.request.timeout.ms", _INT, 2000, "Time-out of requests between controllers.", minimum=0),
    _row(
        "controller.quorum.retry.backoff.ms",
        _INT,
        20,
        "Wait before a request between controllers is retried.",
        minimum=0,
    ),
    _row(
        "controller.quorum.voters",
        _LIST,
        (),
        "The voters of the controller quorum as id@host:port, the same on all nodes; empty if they are in the metadata "
        "log (controller.quorum.bootstrap.servers), or if this node is a cluster by itself.",
    ),
    _row(
        "cordoned.log.dirs",
        _LIST,
        (),
        "Those of log.dirs that get no new partitions, * for all; a broker without others gets no new replicas. Kafka "
        "changes it at run time, here it needs a restart.",
    ),
    _row("inter.broker.listener.name", _STRING, None, "Listener between brokers, one of listeners."),
    _row(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        5,
        "How often the controller looks for partitions whose preferred replica could lead. It leads again if it could "
        "twice in a row. Kafka's default is 300.",
        minimum=1,
    ),
    _row(
        "log.dir.failure.timeout.ms",
        _LONG,
        30_000,
        "A node of a cluster ends if it could not inform the controller of a failed log directory in this time.",
        minimum=1,
    ),
    _row(
        "metadata.max.idle.interval.ms",
        _INT,
        500,
        "How often an idle controller writes a no-op record, if the quorum has other voters; 0 means never.",
        minimum=0,
    ),
    _row(
        "node.id",
        _INT,
        1,
        "Id of this node; unique in its cluster, and stored in the data directory. Kafka has no default.",
        minimum=0,
    ),
    _row(
        "num.replica.fetchers",
        _INT,
        1,
        "Connections to each broker over which partitions are copied from it; a change at run time takes effect at the "
        "next start.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
    ),
    _row(
        "process.roles",
        _LIST,
        ("broker", "controller"),
        "Roles of this node; a node that is a cluster by itself has both. Kafka has no default.",
        choices=("broker", "controller"),
    ),
    _row(
        "replica.fetch.backoff.ms",
        _INT,
        1000,
        "Longest wait of a follower after a failed fetch; the first wait is 20 ms, each later one twice as long.",
        minimum=0,
    ),
    _row("replica.fetch.max.bytes", _INT, 1_048_576, "Bytes per partition of a follower's fetch.", minimum=0),
    _row("replica.fetch.min.bytes", _INT, 1, "Least bytes of a follower's fetch."),
    _row("replica.fetch.response.max.bytes", _INT, 10_485_760, "Bytes of a follower's whole fetch.", minimum=0),
    _row("replica.fetch.wait.max.ms", _INT, 500, "Longest wait of a follower's fetch for new records."),
    _row("replica.lag.time.max.ms", _LONG, 30_000, "Lag after which a follower leaves the in-sync replicas."),
    _row(
        "replica.selector.class",
        _STRING,
        None,
        "Which replica consumers read from: the leader (default), or with RackAwareReplicaSelector one in their "
        "client.rack. Also accepted with the package of Kafka's class.",
        choices=(
            "LeaderSelector",
            "RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    ),
    _row("replica.socket.timeout.ms", _INT, 30_000, "Time-out of followers' requests."),
    _row(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "Security protocol between brokers, if inter.broker.listener.name is not set.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    _row(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        "Default of the topic config unclean.leader.election.enable.",
        update=Update.CLUSTER_WIDE,
    ),
    _row(
        "unclean.leader.election.interval.ms",
        _LONG,
        300_000,
        "How often the controller looks for partitions without leader that allow an unclean election.",
        minimum=1,
        internal=True,
    ),
)
