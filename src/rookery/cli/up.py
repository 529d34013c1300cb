"""`rookery up`: the whole platform in one process, on its usual ports, for people who try it out."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_REGISTRY

_DATA = Path("rookery-data")


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", file_okay=False, help="Where everything is kept.")
    ] = _DATA,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the broker listens.")
    ] = DEFAULT_BOOTSTRAP_SERVER,
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="Where the schema registry listens.")
    ] = DEFAULT_REGISTRY,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the broker. Repeatable.")
    ] = None,
) -> None:
    """Run the platform: a broker and a schema registry. Ctrl-C stops it; the data stays for the next time."""
    from rookery.node.main import run
    from rookery.node.settings import Settings

    assignments = [f"schema.registry.listeners={registry}", *(settings or ())]
    loaded = Settings.load(None, assignments, data_dir=data_dir, listen=listen)
    run(loaded, announce=lambda address: _announce(address, registry, data_dir), log_level="warning")


def _announce(address: str, registry: str, data_dir: Path) -> None:
    from rookery.cli.output import print_table

    broker_option = "" if address == DEFAULT_BOOTSTRAP_SERVER else f" -b {address}"
    registry_option = "" if registry == DEFAULT_REGISTRY else f" -r {registry}"
    typer.echo(f"Rookery is up. Ctrl-C stops it; its data is in {data_dir}.\n")
    rows = [
        ("broker", address, "bootstrap.servers of any Kafka client"),
        ("schema registry", registry, "schema.registry.url of Confluent's serializers"),
    ]
    print_table(["PART", "ADDRESS", "FOR"], rows)
    typer.echo("\nTry, in another terminal:\n")
    for command in (
        f"echo hello | rookery produce greetings{broker_option}",
        f"rookery consume greetings --from beginning{broker_option}",
        f"rookery schemas list{registry_option}",
    ):
        typer.echo(f"  {command}")
    sys.stdout.flush()
