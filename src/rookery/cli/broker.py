"""The work of `rookery start`; does not import typer.

Importing typer takes as long as importing the broker: `main` parses options in their plain form with `plain_options`
and runs the broker directly. Everything else (help, short options, mistakes) goes through typer to `start`, which
also calls `run_broker`.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from rookery.base.imports import module_replaced


class StartOptions(NamedTuple):
    config: Path | None
    settings: Sequence[str]
    data_dir: Path | None
    listen: str | None


def plain_options(arguments: Sequence[str]) -> StartOptions | None:
    """Parse the options if each is a full name with a value and files exist; None means that typer must parse them."""
    given = plain_values(arguments, ("--config", "--set", "--data-dir", "--listen"))
    if given is None:
        return None
    config, data_dir, listen = (given[name][-1:] for name in ("--config", "--data-dir", "--listen"))
    if not all(Path(path).is_file() for path in config) or any(Path(path).is_file() for path in data_dir):
        return None
    return StartOptions(
        config=Path(config[0]) if config else None,
        settings=given["--set"],
        data_dir=Path(data_dir[0]) if data_dir else None,
        listen=listen[0] if listen else None,
    )


def plain_values(arguments: Sequence[str], names: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the values of each option; None if the arguments have anything but these options with values."""
    given: dict[str, list[str]] = {name: [] for name in names}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            value = next(words, "")
        if name not in given or not value or value.startswith("-"):
            return None
        given[name].append(value)
    return given


def announce(address: str) -> None:
    """Print the line for which the process that started the broker waits, and flush it, since it may be a pipe."""
    sys.stdout.write(f"ready on {address}\n")
    sys.stdout.flush()


def run_broker(options: StartOptions, *, announce: Callable[[str], None] = announce, log_level: str = "info") -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C."""
    # Modules live as long as the process: garbage collection during the imports would only make them slower.
    gc.disable()
    # structlog would import rich (for tracebacks in a terminal), and crc32c an e-mail parser (for its own version).
    with module_replaced("rich", None), module_replaced("importlib.metadata", _no_versions()):
        from rookery.node.main import run
        from rookery.node.settings import Settings
    gc.enable()
    loaded = Settings.load(options.config, options.settings, data_dir=options.data_dir, listen=options.listen)
    run(loaded, announce=announce, log_level=log_level)


def _no_versions() -> ModuleType:
    module = ModuleType("importlib.metadata")
    vars(module)["version"] = lambda _: "unknown"
    return module
