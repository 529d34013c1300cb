"""Options that several commands share."""

from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.command_config import bootstrap_server_of_file, registry_of_file
from rookery.cli.platform import BROKER, REGISTRY

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="ROOKERY_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,...]",
        help="The brokers to connect to first.",
        callback=bootstrap_server_of_file,
    ),
]
BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT[,...]",
        help="Controllers to connect to instead of brokers; works while no broker runs.",
    ),
]
DEFAULT_BOOTSTRAP_SERVER = BROKER
DEFAULT_REGISTRY = REGISTRY

Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar="ROOKERY_SCHEMA_REGISTRY",
        metavar="URL[,...]",
        callback=registry_of_file,
        help="The schema registry, with user and password if it requires them: http://user:password@host:8081",
    ),
]

Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for the cluster.")
]
DEFAULT_TIMEOUT_S = 30.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A client setting, by its Kafka name. Repeatable.",
        autocompletion=completion.client_settings,
    ),
]
