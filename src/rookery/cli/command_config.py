"""`rookery --command-config FILE ...`: settings of the client, above all for encryption and authentication.

The file has the format of Kafka's tools, Java's properties syntax. A command uses the keys that its client has, so that
one file serves all commands; a key that no client has is an error. Options on the command line override the file, and
the file overrides the defaults of options. `client_configs` lists the keys that commands ignore.
"""

from collections.abc import Collection
from contextvars import ContextVar
from pathlib import Path

import typer

_FILE: ContextVar[Path | None] = ContextVar("command_config", default=None)


def use_command_config(path: Path | None) -> None:
    """Set the file that `settings_for` reads."""
    _FILE.set(path)


def settings_for(keys: Collection[str]) -> dict[str, str]:
    """Return the settings of the file whose names are in `keys`; an empty dict without a file."""
    path = _FILE.get()
    if path is None:
        return {}
    from rookery.base.errors import ConfigError
    from rookery.base.properties import parse_properties, read_config
    from rookery.client.settings import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS

    found = parse_properties(read_config(path), str(path))
    for name, written in found.items():
        if not any(name in known for known in (ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS)):
            raise ConfigError(f"{written.place}: no client has the setting {name}")
    return {name: written.value for name, written in found.items() if name in keys}


def bootstrap_server_of_file(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Return the value of --bootstrap-server: the file's if neither option nor environment variable is given."""
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source.name != "DEFAULT":
        return value
    return settings_for(("bootstrap.servers",)).get("bootstrap.servers", value)
