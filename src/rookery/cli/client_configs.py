"""Builds the client configuration of a command from defaults, `--command-config`, the command's options and `--set`."""

from typing import TYPE_CHECKING

from rookery.cli.command_config import settings_for
from rookery.cli.option_values import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

CLIENT_ID = "rookery-cli"
_LINGER_MS = 5
_INT_MAX = 2**31 - 1
# Groups and transactions are named by options of the command: reading a topic must not move the committed offsets of
# an application's group, nor fence its member or its producer. `--timeout` is also the time-out of deliveries.
# Controllers are named by --bootstrap-controller, for the commands that can talk to them.
_IGNORED_FILE_KEYS = frozenset(
    {"group.id", "group.instance.id", "transactional.id", "delivery.timeout.ms", "bootstrap.controllers"}
)


def consumer_config(
    bootstrap_server: str,
    timeout_s: float,
    settings: "Iterable[str] | None" = None,
    options: "Mapping[str, object] | None" = None,
) -> dict[str, object]:
    """Return a consumer's configuration. Later ones override: the file, `options` that are not None, `--set`."""
    from rookery.client.settings import CONSUMER_KEYS

    return {
        **_config_with_timeouts(CONSUMER_KEYS.keys(), bootstrap_server, timeout_s),
        # Only `consume --group` commits, whatever the file says.
        "enable.auto.commit": False,
        **_without_none(options),
        **parse_pairs(settings or (), "--set"),
    }


def admin_config(bootstrap_server: str, timeout_s: float) -> dict[str, object]:
    """Return the configuration of an Admin, from the file and the time-out."""
    from rookery.client.settings import ADMIN_KEYS

    return _config_with_timeouts(ADMIN_KEYS.keys(), bootstrap_server, timeout_s)


def controllers_config(controllers: str, timeout_s: float) -> dict[str, object]:
    """Return the configuration of an Admin that talks to controllers instead of brokers."""
    config = admin_config("", timeout_s)
    del config["bootstrap.servers"]
    return config | {"bootstrap.controllers": controllers}


def _config_with_timeouts(keys: "Set[str]", bootstrap_server: str, timeout_s: float) -> dict[str, object]:
    timeout_ms = round(timeout_s * 1000)
    return {
        **_shared_config(keys, bootstrap_server),
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
    }


def _shared_config(keys: "Set[str]", bootstrap_server: str) -> dict[str, object]:
    return {"client.id": CLIENT_ID, **settings_for(keys - _IGNORED_FILE_KEYS), "bootstrap.servers": bootstrap_server}


def _without_none(options: "Mapping[str, object] | None") -> dict[str, object]:
    return {name: value for name, value in (options or {}).items() if value is not None}


def producer_config(
    bootstrap_server: str,
    timeout_s: float,
    settings: "Iterable[str] | None" = None,
    options: "Mapping[str, object] | None" = None,
) -> dict[str, object]:
    """Return a producer's configuration, with the same precedence as a consumer's."""
    from rookery.client.settings import PRODUCER_KEYS

    timeout_ms = round(timeout_s * 1000)
    config: dict[str, object] = {
        "linger.ms": _LINGER_MS,
        **_shared_config(PRODUCER_KEYS.keys(), bootstrap_server),
        "request.timeout.ms": timeout_ms,
        "max.block.ms": timeout_ms,
        **_without_none(options),
        **parse_pairs(settings or (), "--set"),
    }
    parts = [str(config[name]).strip() for name in ("request.timeout.ms", "linger.ms")]
    if all(part.isdecimal() for part in parts):
        # The lowest value that the producer accepts. A value that is no number is left for the producer to report.
        config.setdefault("delivery.timeout.ms", min(sum(map(int, parts)), _INT_MAX))
    return config
