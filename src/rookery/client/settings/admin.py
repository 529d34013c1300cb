"""The admin client's settings: Kafka 4's keys and defaults, and which of them exclude each other."""

from collections.abc import Iterator, Mapping

from rookery.base.config_key import INT_MAX, ConfigKey, ConfigType
from rookery.base.values import value_class
from rookery.client.settings.common import (
    API_TIMEOUT_ROW,
    COMMON_ROWS,
    CommonSettings,
    next_number,
    read_common,
    row,
)
from rookery.client.settings.parser import Values, check_together, refused_row, table

_INT = ConfigType.INT
_LONG = ConfigType.LONG

_ADMIN_ROWS: tuple[ConfigKey, ...] = (
    API_TIMEOUT_ROW,
    row("connections.max.idle.ms", _LONG, 300_000, "A connection without traffic is closed; -1: never.", minimum=-1),
    row(
        "retries",
        _INT,
        INT_MAX,
        "Tries after the first, of the admin client: as many as default.api.timeout.ms allows.",
        minimum=0,
        effective=False,
    ),
    row("enable.metrics.push", ConfigType.BOOLEAN, False, "Send metrics to the cluster (KIP-714).", effective=False),
    refused_row(
        "bootstrap.controllers",
        ConfigType.LIST,
        (),
        doc="Controllers to talk to instead of brokers.",
        reason="give brokers in bootstrap.servers: they pass on what is for the controller",
    ),
)
ADMIN_KEYS: dict[str, ConfigKey] = table(COMMON_ROWS, _ADMIN_ROWS)


@value_class(kw_only=True)
class AdminSettings:
    common: CommonSettings
    retries: int

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> "AdminSettings":
        """Settings of a mapping with Kafka's names; ConfigError names every key that is wrong."""
        values = Values(ADMIN_KEYS, config)
        check_together(_conflicts(values))
        given = values.text("client.id")
        return cls(
            common=read_common(
                values,
                client_id=given or f"adminclient-{next_number('adminclient')}",
                # Raised, if it was not given, to the time that one request may take.
                api_timeout_ms=max(values.integer("default.api.timeout.ms"), values.integer("request.timeout.ms")),
            ),
            retries=values.integer("retries"),
        )


def _conflicts(values: Values) -> Iterator[str]:
    api_ms, request_ms = values.integer("default.api.timeout.ms"), values.integer("request.timeout.ms")
    if values.is_given("default.api.timeout.ms") and api_ms < request_ms:
        yield f"default.api.timeout.ms ({api_ms}) must be at least request.timeout.ms ({request_ms})"
