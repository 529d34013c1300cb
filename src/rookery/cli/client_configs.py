"""The configuration of the client that a command works with: defaults, the file, the command's options, `--set`."""

from typing import TYPE_CHECKING

from rookery.cli.command_config import settings_for
from rookery.cli.option_values import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

CLIENT_ID = "rookery-cli"
_LINGER_MS = 5
_INT_MAX = 2**31 - 1
# Groups and transactions are named with the command: who looks at a topic must not move a group of the file's, nor
# push its member or its producer aside. And `--timeout` is the time for a delivery, too.
_NOT_OF_FILE = frozenset({"group.id", "group.instance.id", "transactional.id", "delivery.timeout.ms"})


def consumer_config(
    bootstrap_server: str,
    timeout_s: float,
    settings: "Iterable[str] | None" = None,
    options: "Mapping[str, object] | None" = None,
) -> dict[str, object]:
    """A consumer's configuration, the weakest first: the file, `options` of the command that are not None, `--set`."""
    from rookery.client.settings import CONSUMER_KEYS

    return {
        **_patient_config(CONSUMER_KEYS.keys(), bootstrap_server, timeout_s),
        # Only `consume --group` commits, whatever the file wants for a group of its own.
        "enable.auto.commit": False,
        **_given(options),
        **parse_pairs(settings or (), "--set"),
    }


def admin_config(bootstrap_server: str, timeout_s: float) -> dict[str, object]:
    """The same of an administrator."""
    from rookery.client.settings import ADMIN_KEYS

    return _patient_config(ADMIN_KEYS.keys(), bootstrap_server, timeout_s)


def _patient_config(keys: "Set[str]", bootstrap_server: str, timeout_s: float) -> dict[str, object]:
    timeout_ms = round(timeout_s * 1000)
    return {
        **_shared_config(keys, bootstrap_server),
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
    }


def _shared_config(keys: "Set[str]", bootstrap_server: str) -> dict[str, object]:
    return {"client.id": CLIENT_ID, **settings_for(keys - _NOT_OF_FILE), "bootstrap.servers": bootstrap_server}


def _given(options: "Mapping[str, object] | None") -> dict[str, object]:
    return {name: value for name, value in (options or {}).items() if value is not None}


def producer_config(
    bootstrap_server: str,
    timeout_s: float,
    settings: "Iterable[str] | None" = None,
    options: "Mapping[str, object] | None" = None,
) -> dict[str, object]:
    """The same of a producer, whose time-outs have other names."""
    from rookery.client.settings import PRODUCER_KEYS

    timeout_ms = round(timeout_s * 1000)
    config: dict[str, object] = {
        "linger.ms": _LINGER_MS,
        **_shared_config(PRODUCER_KEYS.keys(), bootstrap_server),
        "request.timeout.ms": timeout_ms,
        "max.block.ms": timeout_ms,
        **_given(options),
        **parse_pairs(settings or (), "--set"),
    }
    parts = [str(config[name]).strip() for name in ("request.timeout.ms", "linger.ms")]
    if all(part.isdecimal() for part in parts):
        # The least that the producer allows. What is no number it will name.
        config.setdefault("delivery.timeout.ms", min(sum(map(int, parts)), _INT_MAX))
    return config
