"""`rookery --command-config FILE ...`: settings of the client, above all for encryption and authentication.

The file has the format of Kafka's tools, Java's properties syntax. A command uses the keys that its client has, so that
one file serves all commands; a key that no client has is an error. Keys of the schema registry's client begin with
`schema.registry.`, as in Spark's options and pipelines. Options on the command line override the file, and
the file overrides the defaults of options. `client_configs` lists the keys that commands ignore.
"""

from collections.abc import Collection
from contextvars import ContextVar
from pathlib import Path

import typer

_REGISTRY_PREFIX = "schema.registry."
_REGISTRY_URL = "schema.registry.url"
_FILE: ContextVar[Path | None] = ContextVar("command_config", default=None)


def use_command_config(path: Path | None) -> None:
    """Set the file that `settings_for` reads."""
    _FILE.set(path)


def settings_for(keys: Collection[str]) -> dict[str, str]:
    """Return the settings of the file whose names are in `keys`; an empty dict without a file."""
    return {name: value for name, value in _read().items() if name in keys}


def registry_settings() -> dict[str, str]:
    """Return the file's settings of a registry's client, except its url, without their prefix."""
    return {
        name.removeprefix(_REGISTRY_PREFIX): value
        for name, value in _read().items()
        if name.startswith(_REGISTRY_PREFIX) and name != _REGISTRY_URL
    }


def _read() -> dict[str, str]:
    path = _FILE.get()
    if path is None:
        return {}
    from rookery.base.errors import ConfigError
    from rookery.base.properties import parse_properties, read_config
    from rookery.client.settings import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS

    found = parse_properties(read_config(path), str(path))
    for name, written in found.items():
        if not any(name in known for known in (ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS)) and not _is_registry_s(name):
            raise ConfigError(f"{written.place}: no client has the setting {name}")
    return {name: written.value for name, written in found.items()}


def _is_registry_s(name: str) -> bool:
    if not name.startswith(_REGISTRY_PREFIX):
        return False
    from rookery.serdes.settings import REGISTRY_KEYS

    return name == _REGISTRY_URL or name.removeprefix(_REGISTRY_PREFIX) in REGISTRY_KEYS


def bootstrap_server_of_file(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Return the value of --bootstrap-server: the file's if neither option nor environment variable is given."""
    return _of_file(context, parameter, value, "bootstrap.servers")


def registry_of_file(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Return the value of --registry: the file's if neither option nor environment variable is given."""
    return _of_file(context, parameter, value, _REGISTRY_URL)


def _of_file(context: typer.Context, parameter: typer.CallbackParam, value: str, key: str) -> str:
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source.name != "DEFAULT":
        return value
    return settings_for((key,)).get(key, value)
