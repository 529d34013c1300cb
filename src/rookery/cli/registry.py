"""`rookery registry`: run a schema registry for a cluster that is already running."""

from pathlib import Path
from typing import Annotated

import typer

from rookery.cli.option_values import parse_pairs
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_REGISTRY


def registry(
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            envvar="ROOKERY_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,...]",
            help="The brokers that store the schemas.",
            show_default=DEFAULT_BOOTSTRAP_SERVER,
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="URL", help="The address to listen on.", show_default=DEFAULT_REGISTRY),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", exists=True, dir_okay=False, help="A schema-registry.properties file."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting; overrides the file. Repeatable."),
    ] = None,
) -> None:
    """Run a schema registry. Prints 'ready on URL' when it is ready; SIGTERM or Ctrl-C stops it cleanly.

    The settings are Confluent's: rookery registry -b localhost:9092 --set schema.compatibility.level=FULL
    """
    from rookery.cli.broker import announce

    try:
        from rookery.registry.main import run
        from rookery.registry.settings import RegistrySettings
    except ImportError as error:
        from rookery.cli.errors import needs_extra

        raise needs_extra("registry", error) from None
    given = {"kafkastore.bootstrap.servers": DEFAULT_BOOTSTRAP_SERVER, "listeners": DEFAULT_REGISTRY, **_read(config)}
    given |= parse_pairs(settings or (), "--set")
    chosen = {"kafkastore.bootstrap.servers": bootstrap_server, "listeners": listen}
    given |= {name: value for name, value in chosen.items() if value is not None}
    run(RegistrySettings.parse(given), announce=announce)


def _read(config: Path | None) -> dict[str, str]:
    from rookery.base.properties import parse_properties, read_config

    properties = parse_properties(read_config(config), str(config or ""))
    return {name: found.value for name, found in properties.items()}
