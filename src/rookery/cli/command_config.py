"""`rookery --command-config FILE ...`: what commands say to a cluster besides its address, above all how to log in.

The file is one of Kafka's tools, in Java's properties syntax. A command takes the keys that its client knows, so that
one file serves all of them; what no client knows is an error. What is given on the command line wins, and what is
merely its default does not. The parts of a client that the file has no say in are `session`'s to choose.
"""

from collections.abc import Collection
from contextvars import ContextVar
from pathlib import Path

import typer

_FILE: ContextVar[Path | None] = ContextVar("command_config", default=None)


def remember(path: Path | None) -> None:
    """For the command that follows."""
    _FILE.set(path)


def settings_for(keys: Collection[str]) -> dict[str, str]:
    """Those of the file that a client with these keys has; nothing without a file."""
    path = _FILE.get()
    if path is None:
        return {}
    from rookery.base.errors import ConfigError
    from rookery.base.properties import parse_properties, read_config
    from rookery.client.settings import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS

    found = parse_properties(read_config(path), str(path))
    for name, written in found.items():
        if not any(name in known for known in (ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS)):
            raise ConfigError(f"{written.place}: no client has a setting {name}")
    return {name: written.value for name, written in found.items() if name in keys}


def brokers_of_file(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """The value of an option for brokers: the file's if nobody gave it another."""
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source.name != "DEFAULT":
        return value
    return settings_for(("bootstrap.servers",)).get("bootstrap.servers", value)
