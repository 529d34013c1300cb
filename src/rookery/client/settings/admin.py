"""The admin client's settings: Kafka 4's keys and defaults, and the conflicts between them."""

from collections.abc import Iterator, Mapping

from rookery.base.config_key import INT_MAX, ConfigKey, ConfigType
from rookery.base.values import value_class
from rookery.client.settings.common import (
    API_TIMEOUT_ROW,
    BOOTSTRAP_CONTROLLERS,
    BOOTSTRAP_ROW,
    COMMON_ROWS,
    CommonSettings,
    check_addresses,
    next_number,
    read_common,
    row,
)
from rookery.client.settings.parser import Values, check_together, table

_INT = ConfigType.INT
_LONG = ConfigType.LONG

_ADMIN_ROWS: tuple[ConfigKey, ...] = (
    API_TIMEOUT_ROW,
    row(
        "connections.max.idle.ms",
        _LONG,
        300_000,
        "Close a connection that is idle for this long; -1: never.",
        minimum=-1,
    ),
    row(
        "retries",
        _INT,
        INT_MAX,
        "Retries of the admin client; here limited by default.api.timeout.ms only.",
        minimum=0,
        effective=False,
    ),
    row("enable.metrics.push", ConfigType.BOOLEAN, False, "Send metrics to the cluster (KIP-714).", effective=False),
    ConfigKey(
        name=BOOTSTRAP_ROW.name,
        type=ConfigType.LIST,
        default=None,
        doc="Brokers to connect to first: host:port, separated by commas. Required, or bootstrap.controllers.",
        check=check_addresses,
    ),
    ConfigKey(
        name=BOOTSTRAP_CONTROLLERS,
        type=ConfigType.LIST,
        default=(),
        doc="Controllers to connect to instead of brokers, for requests about the quorum and the cluster (KIP-919).",
        check=check_addresses,
    ),
)
ADMIN_KEYS: dict[str, ConfigKey] = table(COMMON_ROWS, _ADMIN_ROWS)


@value_class(kw_only=True)
class AdminSettings:
    common: CommonSettings
    retries: int

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> "AdminSettings":
        """Parse a mapping with Kafka's names. Raises ConfigError, which names every invalid key."""
        values = Values(ADMIN_KEYS, config)
        check_together(_conflicts(values))
        given = values.text("client.id")
        return cls(
            common=read_common(
                values,
                client_id=given or f"adminclient-{next_number('adminclient')}",
                # If it was not set, at least the time-out of one request.
                api_timeout_ms=max(values.integer("default.api.timeout.ms"), values.integer("request.timeout.ms")),
                bootstrap_key=BOOTSTRAP_CONTROLLERS if _has_controllers(values) else BOOTSTRAP_ROW.name,
            ),
            retries=values.integer("retries"),
        )


def _has_controllers(values: Values) -> bool:
    return bool(values.items(BOOTSTRAP_CONTROLLERS))


def _conflicts(values: Values) -> Iterator[str]:
    api_ms, request_ms = values.integer("default.api.timeout.ms"), values.integer("request.timeout.ms")
    if values.is_given(BOOTSTRAP_ROW.name) and _has_controllers(values):
        yield "set either bootstrap.servers or bootstrap.controllers, not both: an admin talks to one kind of nodes"
    if values.is_given("default.api.timeout.ms") and api_ms < request_ms:
        yield f"default.api.timeout.ms ({api_ms}) must be at least request.timeout.ms ({request_ms})"
