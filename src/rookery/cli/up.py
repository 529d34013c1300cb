"""`rookery up`: broker and schema registry on the usual ports, or a cluster of brokers, to try Rookery out."""

from pathlib import Path
from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.platform import BROKER, BROKERS_MAX, DATA_DIR, REGISTRY, UpOptions, run_platform


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", file_okay=False, help="The directory of all data.")
    ] = Path(DATA_DIR),
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            max=BROKERS_MAX,
            help="How many brokers; several are a cluster of processes.",
        ),
    ] = 1,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="The address of the first broker; the others have higher ports."
        ),
    ] = BROKER,
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="The address of the schema registry.")
    ] = REGISTRY,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="With encryption, logins and an authorizer, from files that the first start makes."
        ),
    ] = False,
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
    """Run a broker and a schema registry in one process, or a cluster. Ctrl-C stops it; the data stays."""
    run_platform(UpOptions(data_dir, listen, registry, settings or (), brokers, secure))
