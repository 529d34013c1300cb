"""`rookery up`: the whole platform in one process, on its usual ports, for people who try it out."""

from pathlib import Path
from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.platform import BROKER, DATA_DIR, REGISTRY, UpOptions, run_platform


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", file_okay=False, help="Where everything is kept.")
    ] = Path(DATA_DIR),
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where the broker listens.")] = BROKER,
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="Where the schema registry listens.")
    ] = REGISTRY,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the broker. Repeatable.",
            autocompletion=completion.broker_settings,
        ),
    ] = None,
) -> None:
    """Run the platform: a broker and a schema registry. Ctrl-C stops it; the data stays for the next time."""
    run_platform(UpOptions(data_dir, listen, registry, settings or ()))
