"""The broker keys of quotas and throttles; see `config_key` for the columns of a row."""

from rookery.base.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, Update
from rookery.base.config_key import broker_row as _row

_INT = ConfigType.INT
_LONG = ConfigType.LONG
_CLUSTER_WIDE = Update.CLUSTER_WIDE

QUOTA_ROWS: tuple[ConfigKey, ...] = (
    _row("controller.quota.window.num", _INT, 11, "Samples kept for the controller mutation quota.", minimum=1),
    _row("controller.quota.window.size.seconds", _INT, 1, "Length of one such sample.", minimum=1),
    _row(
        "follower.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        "Bytes per second that a broker copies of follower.replication.throttled.replicas.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "leader.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        "Bytes per second that a broker sends to leader.replication.throttled.replicas.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row(
        "max.connection.creation.rate",
        _INT,
        INT_MAX,
        "New connections that are accepted per second; later ones wait. Also for one listener: "
        "listener.name.<listener>.max.connection.creation.rate.",
        minimum=0,
        update=_CLUSTER_WIDE,
    ),
    _row("quota.window.num", _INT, 11, "Samples kept for client quotas.", minimum=1),
    _row("quota.window.size.seconds", _INT, 1, "Length of one client quota sample.", minimum=1),
    _row("replication.quota.window.num", _INT, 11, "Samples kept for replication throttles.", minimum=1),
    _row("replication.quota.window.size.seconds", _INT, 1, "Length of one such sample.", minimum=1),
)
