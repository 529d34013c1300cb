"""`rookery topics`: create, list, describe, alter, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.option_values import parse_pairs
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.client.admin import Admin
    from rookery.client.metadata import Topic

app = App(help="Create, list, describe, alter and delete topics.")

Names = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.", autocompletion=completion.topics)
]
SetConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "--config",
        metavar="KEY=VALUE",
        help="Set a topic config. Repeatable.",
        autocompletion=completion.topic_settings,
    ),
]


@app.command("create", epilog="Example: rookery topics create orders -p 6 --set retention.ms=86400000")
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="The number of partitions. Default: the broker's num.partitions."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="The number of replicas. Default: the broker's."),
    ] = None,
    configs: SetConfigs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Ignore topics that already exist.")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check without making changes.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create topics."""
    from rookery.base.errors import ErrorCode
    from rookery.cli.output import report
    from rookery.client.admin import BROKER_DEFAULT, NewTopic

    values: dict[str, str | None] = dict(parse_pairs(configs or [], "--set"))
    new = [
        NewTopic(
            name=name,
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=values,
        )
        for name in names
    ]
    outcomes = with_admin(
        bootstrap_server, timeout_s, lambda admin: admin.create_topics(new, validate_only=validate_only)
    )
    done = "would create" if validate_only else "created"
    report(outcomes, done, tolerated=ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None)


@app.command("list", epilog="Example: rookery topics list --json")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Include the cluster's internal topics.")] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the topics."""
    from rookery.cli.output import print_json, print_table

    found = with_admin(bootstrap_server, timeout_s, lambda admin: admin.list_topics())
    shown = [topic for topic in found if internal or not topic.is_internal]
    if as_json:
        print_json([_summary(topic) for topic in shown])
    else:
        rows = [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in shown]
        print_table(["TOPIC", "PARTITIONS", "REPLICAS"], rows)


@app.command(
    "describe",
    epilog="Examples:\n\nrookery topics describe orders payments\n\nrookery topics describe --under-replicated",
)
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Topics; all if none is named.", autocompletion=completion.topics),
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with replicas that are not in sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions whose leader is missing or not alive.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions with fewer than min.insync.replicas in sync.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only partitions with exactly min.insync.replicas in sync.")
    ] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show partitions, leaders, replicas, offsets, and the configs that were set. Filters add up."""
    from rookery.cli.output import note, print_json
    from rookery.cli.topic_tables import Filter, print_description
    from rookery.cli.topic_tables import describe as describe_topics

    shown = Filter(under_replicated, unavailable, under_min_isr, at_min_isr)
    described = with_admin(bootstrap_server, timeout_s, lambda admin: describe_topics(admin, names or [], shown))
    if as_json:
        print_json(described)
        return
    if any(shown) and not described:
        note("no such partition")
    for topic in described:
        print_description(topic)


@app.command("alter", epilog="Example: rookery topics alter orders --partitions 12 --set retention.ms=3600000")
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The new total number of partitions.")
    ] = None,
    configs: SetConfigs = None,
    deleted: Annotated[
        list[str] | None, typer.Option("--delete", metavar="KEY", help="Reset a config to its default. Repeatable.")
    ] = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check without making changes.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Add partitions, and set or reset configs."""
    from rookery.base.codes import ResourceType
    from rookery.cli.configs import changes_of
    from rookery.client.admin import ConfigResource

    changes = changes_of(configs, deleted)
    if partitions is None and not changes:
        raise typer.BadParameter("nothing to change: give --partitions, --set or --delete")

    async def work(admin: "Admin") -> None:
        if changes:
            for outcome in await admin.alter_configs(
                {ConfigResource(ResourceType.TOPIC, name): changes}, validate_only=validate_only
            ):
                outcome.check()
        if partitions is not None:
            for enlarged in await admin.create_partitions({name: partitions}, validate_only=validate_only):
                enlarged.check()

    with_admin(bootstrap_server, timeout_s, work)
    typer.echo(f"{'would alter' if validate_only else 'altered'} {name}")


@app.command("delete", epilog="Example: rookery topics delete orders --yes")
def delete(
    names: Names,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete topics and all their records. Asks first."""
    from rookery.base.errors import ErrorCode
    from rookery.cli.output import confirm, report

    confirm(f"Delete {', '.join(names)} and all records in it?", yes=yes)
    outcomes = with_admin(bootstrap_server, timeout_s, lambda admin: admin.delete_topics(names))
    report(outcomes, "deleted", tolerated=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None)


def _replication_factor(topic: "Topic") -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _summary(topic: "Topic") -> dict[str, Any]:
    from rookery.base.types import encode_uuid

    return {
        "topic": topic.name,
        "topic_id": encode_uuid(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
        "internal": topic.is_internal,
    }
