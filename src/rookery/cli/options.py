"""Options that several commands share."""

from typing import Annotated

import typer

from rookery.cli import completion
from rookery.cli.command_config import brokers_of_file
from rookery.cli.platform import BROKER, REGISTRY

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="ROOKERY_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,...]",
        help="Brokers to ask first.",
        callback=brokers_of_file,
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
        help="The registry, with user and password where it asks for them: http://user:password@host:8081",
    ),
]

Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Give up on the cluster after this time.")
]
DEFAULT_TIMEOUT_S = 30.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the client, by Kafka's name. Repeatable.",
        autocompletion=completion.client_settings,
    ),
]
