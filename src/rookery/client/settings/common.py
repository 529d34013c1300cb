"""The settings that all three clients share: bootstrap servers, time-outs, backoff, sockets, metrics."""

import itertools
from collections import defaultdict
from collections.abc import Iterator

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue, broker_row
from rookery.base.errors import ConfigError
from rookery.base.values import value_class
from rookery.client.settings.parser import Values, unsupported_row
from rookery.client.settings.security import SECURITY_ROWS, read_security
from rookery.net.address import Address, parse_addresses
from rookery.security.settings import PLAINTEXT, SecuritySettings

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_STRING = ConfigType.STRING

# The rows of the clients' tables have the form of the broker's.
row = broker_row


def non_empty(value: ConfigValue) -> str | None:
    return None if value is None or str(value).strip() else "must not be empty"


def check_addresses(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    try:
        parse_addresses(",".join(value))
    except ConfigError as error:
        return str(error)
    return None


BOOTSTRAP_ROW = ConfigKey(
    name="bootstrap.servers",
    type=_LIST,
    default=None,
    doc="Brokers to connect to first: host:port, separated by commas; the default port is 9092. Required.",
    check=check_addresses,
)
BOOTSTRAP_CONTROLLERS = "bootstrap.controllers"
API_TIMEOUT_ROW = row(
    "default.api.timeout.ms", _INT, 60_000, "Time-out of a call without its own, including retries.", minimum=0
)
INTERCEPTORS_ROW = unsupported_row(
    "interceptor.classes",
    _LIST,
    (),
    doc="Java classes that see every record.",
    reason="pass the objects themselves, as the client's keyword argument interceptors",
)
COMMON_ROWS: tuple[ConfigKey, ...] = (
    *SECURITY_ROWS,
    BOOTSTRAP_ROW,
    row("client.id", _STRING, "", "Name of the client in logs, quotas and metrics; by default a generated one."),
    row("request.timeout.ms", _INT, 30_000, "Time for one request; then its connection is closed.", minimum=0),
    row("retry.backoff.ms", _LONG, 100, "Wait before the first retry of a request; it doubles each time.", minimum=0),
    row("retry.backoff.max.ms", _LONG, 1000, "Longest wait before a retry.", minimum=0),
    row("reconnect.backoff.ms", _LONG, 50, "Wait before the first reconnection to a broker; it doubles.", minimum=0),
    row(
        "reconnect.backoff.max.ms",
        _LONG,
        1000,
        "Longest wait before a reconnection to a broker; reconnect.backoff.ms if only that is set.",
        minimum=0,
    ),
    row(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        "Time-out for setting up a connection; it doubles with each attempt.",
        minimum=1,
    ),
    row("socket.connection.setup.timeout.max.ms", _LONG, 30_000, "Longest time-out for a connection.", minimum=1),
    row(
        "connections.max.idle.ms",
        _LONG,
        540_000,
        "Close a connection that is idle for this long; -1: never.",
        minimum=-1,
    ),
    row("metadata.max.age.ms", _LONG, 300_000, "Metadata is refreshed after this time.", minimum=0),
    row(
        "metadata.recovery.strategy",
        _STRING,
        "rebootstrap",
        "What to do when no known broker answers: use the bootstrap servers again, or fail.",
        choices=("rebootstrap", "none"),
        any_case=True,
    ),
    row(
        "metadata.recovery.rebootstrap.trigger.ms",
        _LONG,
        300_000,
        "Time without metadata after which the bootstrap servers are used again; here always immediately.",
        minimum=0,
        effective=False,
    ),
    row("send.buffer.bytes", _INT, 131_072, "Size of a socket's send buffer; -1: the system's.", minimum=-1),
    row("receive.buffer.bytes", _INT, 65_536, "Size of a socket's receive buffer; -1: the system's.", minimum=-1),
    row("metrics.num.samples", _INT, 2, "Number of windows that a metric covers.", minimum=1),
    row("metrics.sample.window.ms", _LONG, 30_000, "Length of a metric's window.", minimum=0),
    row(
        "metrics.recording.level",
        _STRING,
        "INFO",
        "Level of detail of the metrics; here always INFO.",
        choices=("INFO", "DEBUG", "TRACE"),
        effective=False,
    ),
    row(
        "client.dns.lookup",
        _STRING,
        "use_all_dns_ips",
        "How host names are resolved; here all addresses of a name are always tried.",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        effective=False,
    ),
    row("enable.metrics.push", _BOOLEAN, True, "Send metrics to the cluster (KIP-714).", effective=False),
    unsupported_row(
        "metric.reporters",
        _LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        doc="Java classes that receive the metrics.",
        reason="use the client's metrics(), or rookery.client.metrics.prometheus",
    ),
    unsupported_row(
        "config.providers",
        _LIST,
        (),
        doc="Java classes that resolve values written as ${provider:path:key}.",
        reason="pass the values themselves in the mapping",
    ),
)

# Kafka numbers the clients of a process that have no client.id. A simulated client must have one, because the numbers
# depend on what ran before in the process.
_NUMBERS: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))


def next_number(kind: str) -> int:
    """Return the number of a client without a client.id, counted per kind: producer, consumer, adminclient."""
    return next(_NUMBERS[kind])


@value_class(kw_only=True)
class CommonSettings:
    """The settings of a connection to a cluster; initial backoffs and set-up times do not exceed their maxima."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str
    client_rack: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_rebootstrap: bool
    metadata_rebootstrap_trigger_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metrics_num_samples: int
    metrics_sample_window_ms: int
    security: SecuritySettings = PLAINTEXT
    # The bootstrap servers are controllers, not brokers (KIP-919).
    bootstrap_is_controllers: bool = False


def read_common(
    values: Values,
    *,
    client_id: str,
    client_rack: str = "",
    api_timeout_ms: int,
    bootstrap_key: str = BOOTSTRAP_ROW.name,
) -> CommonSettings:
    """Read the shared settings; `client_id`, `client_rack` and `api_timeout_ms` differ by client."""
    retry_max_ms = values.integer("retry.backoff.max.ms")
    reconnect_ms, reconnect_max_ms = _reconnect_backoff(values)
    setup_max_ms = values.integer("socket.connection.setup.timeout.max.ms")
    return CommonSettings(
        bootstrap_servers=_bootstrap(values, bootstrap_key),
        client_id=client_id,
        client_rack=client_rack,
        request_timeout_ms=values.integer("request.timeout.ms"),
        default_api_timeout_ms=api_timeout_ms,
        # If the initial backoff exceeds the maximum, Kafka always waits the maximum.
        retry_backoff_ms=min(values.integer("retry.backoff.ms"), retry_max_ms),
        retry_backoff_max_ms=retry_max_ms,
        reconnect_backoff_ms=reconnect_ms,
        reconnect_backoff_max_ms=reconnect_max_ms,
        socket_connection_setup_timeout_ms=min(values.integer("socket.connection.setup.timeout.ms"), setup_max_ms),
        socket_connection_setup_timeout_max_ms=setup_max_ms,
        connections_max_idle_ms=values.integer("connections.max.idle.ms"),
        metadata_max_age_ms=values.integer("metadata.max.age.ms"),
        metadata_rebootstrap=values.text("metadata.recovery.strategy").lower() == "rebootstrap",
        metadata_rebootstrap_trigger_ms=values.integer("metadata.recovery.rebootstrap.trigger.ms"),
        send_buffer_bytes=values.integer("send.buffer.bytes"),
        receive_buffer_bytes=values.integer("receive.buffer.bytes"),
        metrics_num_samples=values.integer("metrics.num.samples"),
        metrics_sample_window_ms=values.integer("metrics.sample.window.ms"),
        security=read_security(values),
        bootstrap_is_controllers=bootstrap_key == BOOTSTRAP_CONTROLLERS,
    )


def _bootstrap(values: Values, key: str) -> tuple[Address, ...]:
    if not values.is_given(key):
        raise ConfigError(f"{key} is required: host:port of one or more brokers")
    return tuple(dict.fromkeys(parse_addresses(",".join(values.items(key)))))


def _reconnect_backoff(values: Values) -> tuple[int, int]:
    start_ms = values.integer("reconnect.backoff.ms")
    if values.is_given("reconnect.backoff.ms") and not values.is_given("reconnect.backoff.max.ms"):
        return start_ms, start_ms
    maximum_ms = values.integer("reconnect.backoff.max.ms")
    return min(start_ms, maximum_ms), maximum_ms
