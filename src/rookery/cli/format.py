"""`rookery format` and `rookery random-uuid`: prepare the directories of a cluster's node, as kafka-storage does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

_SALT_BYTES = 24

EXAMPLES = (
    "Examples:\n\nrookery format --cluster-id $(rookery random-uuid) --config server.properties"
    "\n\nrookery format -t ID -c server.properties --standalone"
    "\n\nrookery format -t ID -c server.properties --feature group.version=1"
    "\n\nrookery format -t ID -c server.properties --add-scram 'SCRAM-SHA-512=[name=admin,password=secret]'"
)


Config = Annotated[
    Path,
    typer.Option("--config", "-c", metavar="FILE", exists=True, dir_okay=False, help="A server.properties file."),
]
ClusterId = Annotated[
    str, typer.Option("--cluster-id", "-t", metavar="ID", help="The id of the cluster, the same on all its nodes.")
]
Standalone = Annotated[bool, typer.Option("--standalone", "-s", help="This controller is the first and only voter.")]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY-ID,...",
        help="The first voters, the same on all nodes.",
    ),
]
NoInitialControllers = Annotated[
    bool, typer.Option("--no-initial-controllers", "-N", help="This controller joins the voters later.")
]
IgnoreFormatted = Annotated[bool, typer.Option("--ignore-formatted", "-g", help="Skip directories that are formatted.")]
ReleaseVersion = Annotated[
    str | None,
    typer.Option(
        "--release-version", "-r", metavar="VERSION", help="The Kafka release whose features the cluster has."
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="The level of a feature. Repeatable."),
]
AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="MECHANISM=[name=...,password=...] | @FILE",
        help="A SCRAM user that exists from the first start on, the same on all controllers; a file has one per line. "
        "Repeatable.",
    ),
]


def format_directories(
    config: Config,
    cluster_id: ClusterId,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
    ignore_formatted: IgnoreFormatted = False,
    release_version: ReleaseVersion = None,
    features: Features = None,
    add_scram: AddScram = None,
) -> None:
    """Format the log directories of a node before its first start in a cluster, with the meaning of kafka-storage.

    A node that is a cluster by itself needs no format: rookery start formats it.
    """
    from secrets import token_bytes
    from uuid import uuid4

    from rookery.base.clock import SystemClock
    from rookery.base.errors import ConfigError
    from rookery.base.files import OsFiles
    from rookery.node.format import FormatOptions, format_node
    from rookery.node.settings import Settings
    from rookery.security.scram_arguments import parse_scram_user

    if standalone + no_initial_controllers + (initial_controllers is not None) > 1:
        raise ConfigError("give only one of --standalone, --initial-controllers and --no-initial-controllers")
    users = [parse_scram_user(text, lambda: token_bytes(_SALT_BYTES)) for text in _credentials(add_scram or [])]
    options = FormatOptions(
        cluster_id=cluster_id,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
        ignore_formatted=ignore_formatted,
        release_version=release_version,
        features=features or (),
        scram={(user, mechanism): credential for user, mechanism, credential in users},
    )
    lines = format_node(OsFiles(), Settings.load(config), options, new_uuid=uuid4, now_ms=SystemClock().now_ms())
    for line in lines or ["all log directories are already formatted"]:
        typer.echo(line)


def _credentials(texts: list[str]) -> "Iterator[str]":
    """Yield the credentials, for `@FILE` those in its lines: a password in a file is in no list of processes."""
    from rookery.base.properties import read_config

    for text in texts:
        if text.startswith("@"):
            yield from filter(None, map(str.strip, read_config(Path(text[1:])).splitlines()))
        else:
            yield text


def random_uuid() -> None:
    """Print a random id, for a new cluster or for a directory of --initial-controllers."""
    from uuid import uuid4

    from rookery.base.types import encode_uuid

    # A word that begins with a dash would be an option.
    ids = (encode_uuid(uuid4()) for _ in iter(int, 1))
    typer.echo(next(text for text in ids if not text.startswith("-")))
