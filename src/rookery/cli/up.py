"""`rookery up`: broker and schema registry in one process, on the usual ports, to try Rookery out."""

from pathlib import Path
from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.platform import BROKER, DATA_DIR, REGISTRY, UpOptions, run_platform


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", file_okay=False, help="The directory of all data.")
    ] = Path(DATA_DIR),
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="The address of the broker.")] = BROKER,
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="The address of the schema registry.")
    ] = REGISTRY,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A broker setting. Repeatable.",
            autocompletion=completion.broker_settings,
        ),
    ] = None,
) -> None:
    """Run a broker and a schema registry in one process. Ctrl-C stops them; the data stays for the next run."""
    run_platform(UpOptions(data_dir, listen, registry, settings or ()))
