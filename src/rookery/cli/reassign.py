"""`rookery reassign`: plan, execute, list, verify, cancel."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.base.types import NodeId, TopicPartition
    from rookery.cli.reassign_runs import Choice
    from rookery.cli.reassignment_plans import Assignment
    from rookery.cli.resets import TopicChoice
    from rookery.client.admin import Admin

app = App(help="Move replicas to other brokers.")

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        "--topic",
        "-t",
        metavar="TOPIC[:P,P...]",
        help="A topic, or some of its partitions. Repeatable. Default: all topics.",
        autocompletion=completion.topics,
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option("--brokers", metavar="ID,ID...", help="The brokers for the replicas. Default: all that are alive."),
]
Factor = Annotated[
    int | None, typer.Option("--replication-factor", "-r", min=1, help="The new number of replicas. Default: as now.")
]
PlanFile = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A plan, as Kafka's tool writes it.")
]
OptionalFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]", exists=True, dir_okay=False, help="A plan, as `plan --json` and Kafka's tool write it."
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the moves have ended, and show their progress.")]


@app.command(
    "plan",
    epilog="Examples:\n\nrookery reassign plan --topics orders --brokers 1,2,3\n\n"
    "rookery reassign plan --replication-factor 3 --json > plan.json",
)
def plan(
    topics: Topics = None,
    brokers: Brokers = None,
    replication_factor: Factor = None,
    current: Annotated[
        bool, typer.Option("--current", help="Print the present replicas as a plan, to return to them later.")
    ] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show a plan that spreads replicas evenly over brokers and racks, and moves as few of them as possible."""
    from rookery.cli.output import print_json
    from rookery.cli.reassign_runs import bytes_to_copy, plan_choice
    from rookery.cli.reassign_tables import print_moves
    from rookery.cli.reassignment_plans import format_plan

    choice = _choice(topics, brokers, replication_factor)

    async def work(admin: "Admin") -> "tuple[Assignment, Assignment, int | None]":
        present, targets = await plan_choice(admin, choice)
        return present, targets, await bytes_to_copy(admin, present, targets)

    present, targets, copied = with_admin(bootstrap_server, timeout_s, work)
    if current:
        print_json(format_plan(present))
    else:
        print_moves(present, targets, copied, as_json=as_json)


@app.command(
    "execute",
    epilog="Examples:\n\nrookery reassign execute plan.json --wait\n\n"
    "rookery reassign execute --topics orders --brokers 1,2,3 --rollback before.json",
)
def execute(
    path: OptionalFile = None,
    topics: Topics = None,
    brokers: Brokers = None,
    replication_factor: Factor = None,
    rollback: Annotated[
        Path | None,
        typer.Option("--rollback", metavar="FILE", dir_okay=False, help="Write the present replicas to this file."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Give a new target to partitions that are moving already.")
    ] = False,
    wait: Wait = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Start the moves of a plan, or of the options of `plan`."""
    from rookery.cli.reassign_runs import start_moves, wait_for_moves

    options = [topics, brokers, replication_factor]
    if (path is None) == (options == [None, None, None]):
        raise typer.BadParameter("give either a plan's FILE, or --topics, --brokers or --replication-factor")

    async def work(admin: "Admin") -> int:
        present, targets = await _targets(admin, path, _choice(topics, brokers, replication_factor))
        if rollback is not None:
            _write_plan(rollback, {tp: present[tp] for tp in targets if tp in present})
        if targets:
            await start_moves(admin, targets, replace=replace)
        typer.echo(f"started to move {len(targets)} partitions" if targets else "nothing to move")
        if wait:
            await wait_for_moves(admin, targets)
        return len(targets)

    if with_admin(bootstrap_server, timeout_s, work) and wait:
        typer.echo("all moves have ended")


@app.command("list", epilog="Example: rookery reassign list")
def list_(
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the partitions that are moving, and how much of them is copied."""
    from rookery.cli.reassign_runs import copied_bytes
    from rookery.cli.reassign_tables import print_running

    async def work(admin: "Admin") -> None:
        moves = await admin.list_partition_reassignments()
        print_running(moves, await copied_bytes(admin, moves) if moves else {}, as_json=as_json)

    with_admin(bootstrap_server, timeout_s, work)


@app.command(
    "verify",
    epilog="Examples:\n\nrookery reassign verify plan.json\n\nrookery reassign verify plan.json --wait && echo moved",
)
def verify(
    path: PlanFile,
    wait: Wait = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Compare the replicas with a plan. Exits with 1 unless all partitions are as planned."""
    from rookery.cli.errors import FAILED
    from rookery.cli.reassign_runs import DONE, wait_for_moves
    from rookery.cli.reassign_runs import verify as verify_moves
    from rookery.cli.reassign_tables import print_states

    targets = _read_plan(path)

    async def work(admin: "Admin") -> "dict[TopicPartition, str]":
        if wait:
            await wait_for_moves(admin, targets)
        return await verify_moves(admin, targets)

    states = with_admin(bootstrap_server, timeout_s, work)
    print_states(states, as_json=as_json)
    if any(state != DONE for state in states.values()):
        raise typer.Exit(FAILED)


@app.command(
    "cancel", epilog="Examples:\n\nrookery reassign cancel --all\n\nrookery reassign cancel --topic orders:0,1"
)
def cancel(
    path: OptionalFile = None,
    topics: Topics = None,
    all_: Annotated[bool, typer.Option("--all", help="Cancel all moves.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Stop moves and return to the replicas before them. Moves that have ended stay."""
    from rookery.cli.reassign_runs import cancel_moves

    if sum((path is not None, bool(topics), all_)) != 1:
        raise typer.BadParameter("give a plan's FILE, or --topic, or --all")
    choices = _topics(topics)
    targets = None if path is None else _read_plan(path)

    async def work(admin: "Admin") -> "list[TopicPartition]":
        if targets is not None:
            return list(await cancel_moves(admin, list(targets)))
        running = await admin.list_partition_reassignments()
        chosen = [
            tp
            for tp in running
            if all_
            or any(tp.topic == topic and tp.partition in (indexes or [tp.partition]) for topic, indexes in choices)
        ]
        return list(await cancel_moves(admin, chosen)) if chosen else []

    cancelled = with_admin(bootstrap_server, timeout_s, work)
    for tp in cancelled:
        typer.echo(f"cancelled {tp}")
    if not cancelled:
        typer.echo("nothing is moving there")


def _choice(topics: list[str] | None, brokers: str | None, replication_factor: int | None) -> "Choice":
    from rookery.cli.reassign_runs import Choice

    return Choice(_topics(topics), _brokers(brokers), replication_factor)


def _topics(texts: list[str] | None) -> "list[TopicChoice]":
    from rookery.cli.resets import parse_topic

    try:
        return [parse_topic(text) for text in texts or []]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--topics") from None


def _brokers(text: str | None) -> "list[NodeId]":
    words = [] if text is None else text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise typer.BadParameter(f"'{text}' must have the form ID,ID,ID", param_hint="--brokers")
    return list(dict.fromkeys(int(word) for word in words))


def _read_plan(path: Path) -> "dict[TopicPartition, tuple[NodeId, ...]]":
    from rookery.cli.reassignment_plans import parse_plan

    try:
        return parse_plan(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"{path} {error}", param_hint="FILE") from None


async def _targets(admin: "Admin", path: Path | None, choice: "Choice") -> "tuple[Assignment, Assignment]":
    """Return the present replicas of the partitions, and the plan of the file or of the options."""
    from rookery.cli.reassign_runs import current_assignment, plan_choice

    if path is None:
        return await plan_choice(admin, choice)
    targets = _read_plan(path)
    return await current_assignment(admin, {tp.topic for tp in targets}), targets


def _write_plan(path: Path, assignment: "Assignment") -> None:
    import json

    from rookery.cli.reassignment_plans import format_plan

    path.write_text(json.dumps(format_plan(assignment), indent=2) + "\n", encoding="utf-8")
