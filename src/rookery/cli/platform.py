"""The work of `rookery up`; does not import typer, for the reason given in `cli.broker`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rookery.cli.broker import StartOptions, plain_values, run_broker

DATA_DIR = "rookery-data"
BROKER = "127.0.0.1:9092"
REGISTRY = "http://127.0.0.1:8081"


class UpOptions(NamedTuple):
    data_dir: Path = Path(DATA_DIR)
    listen: str = BROKER
    registry: str = REGISTRY
    settings: Sequence[str] = ()


def plain_up_options(arguments: Sequence[str]) -> UpOptions | None:
    """Parse the options if each is a full name with a value; None means that typer must parse them."""
    given = plain_values(arguments, ("--data-dir", "--listen", "--registry", "--set"))
    if given is None or any(Path(path).is_file() for path in given["--data-dir"]):
        return None
    data_dir, listen, registry = (given[name][-1:] for name in ("--data-dir", "--listen", "--registry"))
    return UpOptions(
        data_dir=Path(*data_dir or [DATA_DIR]),
        listen=(listen or [BROKER])[0],
        registry=(registry or [REGISTRY])[0],
        settings=given["--set"],
    )


def run_platform(options: UpOptions) -> None:
    """Run broker and registry in the foreground until SIGTERM or Ctrl-C."""
    settings = (f"schema.registry.listeners={options.registry}", *options.settings)
    run_broker(
        StartOptions(None, settings, options.data_dir, options.listen),
        announce=lambda address: _announce(address, options),
        log_level="warning",
    )


def _announce(address: str, options: UpOptions) -> None:
    broker_option = "" if address == BROKER else f" -b {address}"
    registry_option = "" if options.registry == REGISTRY else f" -r {options.registry}"
    width = max(len(address), len(options.registry))
    sys.stdout.write(
        f"""Rookery is running. Ctrl-C stops it; its data is in {options.data_dir}.

  broker            {address:{width}}  bootstrap.servers of any Kafka client
  schema registry   {options.registry:{width}}  schema.registry.url of Confluent's serializers and ours

Try, in another terminal:

  echo hello | rookery produce greetings{broker_option}
  rookery consume greetings --from beginning{broker_option}
  rookery schemas list{registry_option}
"""
    )
    sys.stdout.flush()
