"""`rookery start`: run a broker in the foreground until SIGTERM or Ctrl-C."""

from pathlib import Path
from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.broker import StartOptions, run_broker


def start(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", exists=True, dir_okay=False, help="A server.properties file."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting; overrides the file. Repeatable.",
            autocompletion=completion.broker_settings,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", file_okay=False, help="The directory of the logs.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="The address to listen on.")
    ] = None,
) -> None:
    """Run a broker. Prints 'ready on HOST:PORT' when it is ready; SIGTERM or Ctrl-C stops it cleanly.

    The settings are Kafka's: rookery start --set num.partitions=3 --data-dir ./data
    """
    run_broker(StartOptions(config, settings or (), data_dir, listen))
