"""What `rookery start` does, without the library that the other commands are described with.

That library takes as long to import as the broker itself, so `main` reads plainly spelt options with `plain_options`
and runs the broker directly. All else (help, short forms, mistakes) is left to `start`, which comes here too.
"""

import gc
import sys
from collections.abc import Sequence
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
    """The options if each is a full name with a value, and the files are there; None leaves them to `start`."""
    given: dict[str, list[str]] = {"--config": [], "--set": [], "--data-dir": [], "--listen": []}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            value = next(words, "")
        if name not in given or not value or value.startswith("-"):
            return None
        given[name].append(value)
    config, data_dir, listen = (given[name][-1:] for name in ("--config", "--data-dir", "--listen"))
    if not all(Path(path).is_file() for path in config) or any(Path(path).is_file() for path in data_dir):
        return None
    return StartOptions(
        config=Path(config[0]) if config else None,
        settings=given["--set"],
        data_dir=Path(data_dir[0]) if data_dir else None,
        listen=listen[0] if listen else None,
    )


def run_broker(options: StartOptions) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C."""
    # Modules live as long as the process: looking for garbage among them would only make importing slower.
    gc.disable()
    # structlog would load rich, for tracebacks on a terminal, and crc32c an e-mail parser, to learn its own version.
    with module_replaced("rich", None), module_replaced("importlib.metadata", _no_versions()):
        from rookery.node.main import run
        from rookery.node.settings import Settings
    gc.enable()
    loaded = Settings.load(options.config, options.settings, data_dir=options.data_dir, listen=options.listen)
    run(loaded, announce=announce)


def _no_versions() -> ModuleType:
    module = ModuleType("importlib.metadata")
    vars(module)["version"] = lambda _: "unknown"
    return module


def announce(address: str) -> None:
    """Whoever started us waits for this line, perhaps through a pipe."""
    sys.stdout.write(f"ready on {address}\n")
    sys.stdout.flush()
