"""The application with all commands.

Starting must be quick: this module and those of the groups import only what is needed to declare the commands; a
command imports everything else when it runs.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from rookery.base.distribution import version
from rookery.cli import (
    acls,
    brokers,
    cluster,
    configs,
    consume,
    dlq,
    doctor,
    features,
    format,
    groups,
    keys,
    log,
    partitions,
    perf,
    pipelines,
    plan,
    produce,
    quorum,
    quotas,
    reassign,
    registry,
    schemas,
    secure,
    start,
    topics,
    transactions,
    up,
    users,
)
from rookery.cli.app import App, Group
from rookery.cli.command_config import use_command_config
from rookery.cli.errors import failures_explained


class Commands(Group):
    """The top-level group: every command runs inside its `invoke`, which turns failures into sentences."""

    def invoke(self, ctx: Any) -> Any:
        with failures_explained():
            return super().invoke(ctx)


app = App(
    name="rookery",
    cls=Commands,
    help="A Kafka-compatible streaming platform: run a broker, and work with any Kafka-compatible cluster.",
    epilog="Exit codes: 0 success, 1 the operation failed, 2 wrong usage. Every command has its own --help.",
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("start")(start.start)
app.command("format", epilog=format.EXAMPLES)(format.format_directories)
app.command("random-uuid")(format.random_uuid)
app.command("registry")(registry.registry)
app.add_typer(topics.app, name="topics")
app.command("produce", epilog=produce.EXAMPLES)(produce.produce)
app.command("consume", epilog=consume.EXAMPLES)(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(schemas.app, name="schemas")
app.add_typer(dlq.app, name="dlq")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(perf.app, name="perf")
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.add_typer(configs.app, name="configs")
app.add_typer(cluster.app, name="cluster")
app.add_typer(brokers.app, name="brokers")
app.add_typer(partitions.app, name="partitions")
app.add_typer(reassign.app, name="reassign")
app.add_typer(quorum.app, name="quorum")
app.add_typer(features.app, name="features")
app.add_typer(secure.app, name="secure")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(keys.app, name="keys")
app.add_typer(quotas.app, name="quotas")
app.add_typer(log.app, name="log")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rookery {version()}")
        raise typer.Exit


@app.callback()
def rookery(
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            envvar="ROOKERY_COMMAND_CONFIG",
            metavar="FILE",
            help="A properties file of client settings, such as security.protocol and sasl.*.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Handle the options of `rookery` itself."""
    use_command_config(command_config)
