"""`rookery groups`: list, describe, lag, reset-offsets, delete, delete-offsets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion, group_lag
from rookery.cli.app import App
from rookery.cli.option_values import parse_words
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookery.base.types import TopicPartition
    from rookery.cli.resets import Change, Reset, TopicChoice
    from rookery.client.admin import Admin

app = App(help="List, describe, watch, reset and delete consumer groups.")

Names = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="One or more groups.", autocompletion=completion.groups)
]
Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=completion.groups)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:P,P...]",
        help="A topic, or some of its partitions. Repeatable.",
        autocompletion=completion.topics,
    ),
]


@app.command("list", epilog="Example: rookery groups list --state stable --type consumer")
def list_(
    states: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only groups in this state. Repeatable.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only classic, consumer, share or streams groups. Repeatable."),
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the groups with their types and states."""
    from rookery.cli.group_tables import state_cell
    from rookery.cli.output import print_json, print_table
    from rookery.client.admin import GROUP_STATES, GROUP_TYPES

    wanted_states = parse_words(states or [], GROUP_STATES, "--state")
    wanted_types = parse_words(types or [], GROUP_TYPES, "--type")
    found = with_admin(
        bootstrap_server, timeout_s, lambda admin: admin.list_groups(states=wanted_states, types=wanted_types)
    )
    if as_json:
        keys = ("group", "protocol_type", "state", "type")
        print_json([dict(zip(keys, (g.group_id, g.protocol_type, g.state, g.group_type), strict=True)) for g in found])
    else:
        rows = [(g.group_id, g.group_type or None, state_cell(g.state), g.protocol_type or None) for g in found]
        print_table(["GROUP", "TYPE", "STATE", "PROTOCOL"], rows)


@app.command("describe", epilog="Example: rookery groups describe billing --offsets")
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="Groups; all if none is named.", autocompletion=completion.groups),
    ] = None,
    members: Annotated[bool, typer.Option("--members", help="Show the members and their assignments.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show the offsets and the lag of each partition.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the state only.")] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show state, members, and for each partition its committed offset, end, lag and member."""
    from rookery.cli.group_tables import describe_groups, print_group
    from rookery.cli.output import print_json

    described = with_admin(bootstrap_server, timeout_s, lambda admin: describe_groups(admin, names or []))
    if as_json:
        print_json(described)
        return
    everything = not (members or offsets or state)
    for index, group in enumerate(described):
        if index:
            typer.echo()
        print_group(group, members=members or everything, offsets=offsets or everything)


app.command("lag", epilog=group_lag.EXAMPLES)(group_lag.lag)


@app.command(
    "reset-offsets",
    epilog="Examples:"
    "\n\nrookery groups reset-offsets billing --topic orders --to-earliest"
    "\n\nrookery groups reset-offsets billing --topic orders:0,2 --to-timestamp 2026-03-01T12:00Z --execute"
    "\n\nrookery groups reset-offsets billing --all-topics --shift-by -100 --execute",
)
def reset_offsets(
    name: Name,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions for which the group has committed an offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")] = False,
    to_timestamp: Annotated[
        str | None,
        typer.Option("--to-timestamp", metavar="TIME", help="To the first record from this time on: ISO 8601, or MS."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward by N records; backward if N is negative.")
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="To the offsets in a file: CSV (topic,partition,offset) or JSON.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the new offsets; without it, only show them.")
    ] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the offsets at which a group would continue; commit them with --execute. The group must have no members."""
    from rookery.cli.group_resets import ResetRun
    from rookery.cli.group_tables import print_changes

    reset = _reset(
        name,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_timestamp=to_timestamp,
        shift_by=shift_by,
        to_offset=to_offset,
        from_file=from_file,
    )
    choices = _choices(topics or [], all_topics=all_topics, optional=from_file is not None)

    async def work(admin: "Admin") -> "list[Change]":
        run = ResetRun(admin, name)
        changes = await run.plan(reset, choices)
        if execute:
            await run.execute(changes)
        return changes

    changes = with_admin(bootstrap_server, timeout_s, work)
    print_changes(name, changes, executed=execute, as_json=as_json)


@app.command("delete", epilog="Example: rookery groups delete billing --yes")
def delete(
    names: Names,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore groups that do not exist.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete groups without members, with their offsets. Asks first."""
    from rookery.base.errors import ErrorCode
    from rookery.cli.output import confirm, report

    confirm(f"Delete {', '.join(names)} and all offsets committed there?", yes=yes)
    outcomes = with_admin(bootstrap_server, timeout_s, lambda admin: admin.delete_groups(names))
    report(outcomes, "deleted", tolerated=ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None)


@app.command("delete-offsets", epilog="Example: rookery groups delete-offsets billing --topic orders --yes")
def delete_offsets(
    name: Name,
    topics: Topics = None,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete a group's offsets for topics to which no member is subscribed. Asks first."""
    from rookery.cli.errors import CommandError
    from rookery.cli.output import confirm, report
    from rookery.client.admin import Outcome

    choices = _choices(topics or [], all_topics=False, optional=False)
    confirm(f"Delete the offsets of group {name} for {', '.join(topics or [])}?", yes=yes)

    async def work(admin: "Admin") -> list[Outcome]:
        committed = await admin.committed_offsets(name)
        chosen = [tp for tp in sorted(committed) if _is_chosen(tp, choices)]
        if not chosen:
            raise CommandError(f"group {name} has no committed offsets for {', '.join(topics or [])}")
        deleted = await admin.delete_offsets(name, chosen)
        return [Outcome(str(tp), error, None) for tp, error in deleted.items()]

    report(with_admin(bootstrap_server, timeout_s, work), "deleted the offset of", tolerated=None)


def _is_chosen(tp: "TopicPartition", choices: "Sequence[TopicChoice]") -> bool:
    return any(
        tp.topic == choice.topic and (not choice.partitions or tp.partition in choice.partitions) for choice in choices
    )


def _choices(topics: list[str], *, all_topics: bool, optional: bool) -> "list[TopicChoice]":
    from rookery.cli.resets import parse_topic

    if all_topics and topics:
        raise typer.BadParameter("give --topic or --all-topics, not both")
    if not (topics or all_topics or optional):
        raise typer.BadParameter("the partitions are missing: give --topic or --all-topics")
    try:
        return [parse_topic(text) for text in topics]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from None


def _reset(
    group_id: str,
    *,
    to_earliest: bool,
    to_latest: bool,
    to_timestamp: str | None,
    shift_by: int | None,
    to_offset: int | None,
    from_file: Path | None,
) -> "Reset":
    """Return the one reset that the options request."""
    from rookery.cli.positions import parse_timestamp_ms
    from rookery.cli.resets import ShiftBy, ToEarliest, ToGiven, ToLatest, ToOffset, ToTimestamp, parse_file

    requested: list[Reset] = []
    try:
        if to_earliest:
            requested.append(ToEarliest())
        if to_latest:
            requested.append(ToLatest())
        if to_timestamp is not None:
            requested.append(ToTimestamp(parse_timestamp_ms(to_timestamp)))
        if shift_by is not None:
            requested.append(ShiftBy(shift_by))
        if to_offset is not None:
            requested.append(ToOffset(to_offset))
        if from_file is not None:
            requested.append(ToGiven(parse_file(from_file.read_text(encoding="utf-8"), group_id)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if len(requested) != 1:
        raise typer.BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-timestamp, --shift-by, --to-offset, --from-file"
        )
    return requested[0]
