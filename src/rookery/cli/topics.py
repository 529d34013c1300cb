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


@app.command("describe", epilog="Example: rookery topics describe orders payments")
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Topics; all if none is named.", autocompletion=completion.topics),
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show partitions, leaders, replicas, offsets, and the configs that were set."""
    from rookery.cli.output import print_json

    described = with_admin(bootstrap_server, timeout_s, lambda admin: _describe(admin, names or []))
    if as_json:
        print_json(described)
        return
    for topic in described:
        _print_description(topic)


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


async def _describe(admin: "Admin", names: list[str]) -> list[dict[str, Any]]:
    from rookery.base.errors import ApiError, ErrorCode

    topics = await (admin.describe_topics(names) if names else admin.list_topics())
    for topic in topics:
        if topic.error != ErrorCode.NONE:
            raise ApiError(topic.error, f"topic {topic.name}")
    return [await _describe_one(admin, topic) for topic in topics]


async def _describe_one(admin: "Admin", topic: "Topic") -> dict[str, Any]:
    from rookery.base.codes import ConfigSource, ResourceType
    from rookery.base.types import TopicPartition
    from rookery.client.admin import EARLIEST, LATEST, ConfigResource

    led = [TopicPartition(topic.name, partition.index) for partition in topic.partitions if partition.leader >= 0]
    earliest = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    latest = await admin.list_offsets(dict.fromkeys(led, LATEST))
    (configs,) = await admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic.name)])
    own = {
        entry.name: entry.value
        for entry in configs.check().entries
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }

    def offset(found: Any, index: int) -> int | None:
        result = found.get(TopicPartition(topic.name, index))
        return None if result is None or result.offset < 0 else result.offset

    rows = [
        {
            "partition": partition.index,
            "leader": partition.leader if partition.leader >= 0 else None,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "in_sync_replicas": list(partition.in_sync_replicas),
            "earliest_offset": offset(earliest, partition.index),
            "latest_offset": offset(latest, partition.index),
        }
        for partition in topic.partitions
    ]
    return _summary(topic) | {"configs": own, "partitions": rows}


def _print_description(topic: dict[str, Any]) -> None:
    from rookery.cli.output import Styled, print_table

    configs = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "none set"
    title = f"{topic['topic']}  (id {topic['topic_id']}, configs: {configs})"
    rows = [
        (
            row["partition"],
            Styled("none", "bold red") if row["leader"] is None else row["leader"],
            ",".join(map(str, row["replicas"])),
            Styled(
                ",".join(map(str, row["in_sync_replicas"])),
                "" if len(row["in_sync_replicas"]) == len(row["replicas"]) else "yellow",
            ),
            row["earliest_offset"],
            row["latest_offset"],
        )
        for row in topic["partitions"]
    ]
    print_table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "EARLIEST", "LATEST"], rows, title=title)
