"""The keys of metrics and health checks."""

from typing import Final
from urllib.parse import urlsplit

from rookery.base.config_key import ConfigKey, ConfigType, ConfigValue
from rookery.base.config_key import broker_row as _row

METRICS_LISTENERS: Final = "metrics.listeners"
METRICS_TOPICS_MAX: Final = "metrics.topics.max"


def _listener_problem(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    for text in value:
        try:
            url = urlsplit(text)
            is_valid = url.scheme == "http" and url.port is not None and not (url.path.strip("/") or url.query)
        except ValueError:
            is_valid = False
        if not is_valid:
            return f"expected http://HOST:PORT, such as http://0.0.0.0:9404, got {text!r}"
    return None


METRICS_ROWS: Final[tuple[ConfigKey, ...]] = (
    _row(
        METRICS_LISTENERS,
        ConfigType.LIST,
        (),
        "Where /metrics, /healthz and /readyz are served: http://HOST:PORT. Not a key of Kafka.",
        check=_listener_problem,
    ),
    _row(
        METRICS_TOPICS_MAX,
        ConfigType.INT,
        1000,
        "How many topics have metrics of their own, in the order of their names; all others are shown as one. "
        "Not a key of Kafka.",
        minimum=0,
    ),
)
