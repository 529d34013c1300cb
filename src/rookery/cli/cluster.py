"""`rookery cluster describe`: the quorum, the brokers and the partitions that need attention, on one page."""

from typing import TYPE_CHECKING, Any

import typer

from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.cli.broker_states import ClusterState
    from rookery.client.admin import Admin, Quorum

# The whole list may have thousands of rows; --json has it.
_PROBLEMS_SHOWN = 20

app = App(help="Show the whole cluster on one page.")


@app.callback()
def cluster() -> None:
    """Handle the group's options. With a callback, typer keeps `describe` as a command of its own."""


@app.command("describe", epilog="Example: rookery cluster describe --json")
def describe(
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the quorum, the brokers with their leaders and replicas, and the partitions that need attention."""
    from rookery.cli.output import print_json

    described = with_admin(bootstrap_server, timeout_s, _describe)
    if as_json:
        print_json(described)
    else:
        _print(described)


async def _describe(admin: "Admin") -> dict[str, Any]:
    from rookery.cli.broker_states import load_cluster
    from rookery.cli.quorum_tables import quorum_as_json

    quorum = await _quorum(admin)
    state = await load_cluster(admin)
    return {
        "cluster_id": state.description.cluster_id,
        "quorum": None if quorum is None else quorum_as_json(quorum),
        "brokers": state.broker_rows(),
        "topics": len(state.topics),
        "partitions": _partitions(state),
    }


async def _quorum(admin: "Admin") -> "Quorum | None":
    from rookery.base.errors import ApiError, ErrorCode
    from rookery.cli.output import note

    try:
        return await admin.describe_quorum()
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        note(f"the quorum is not shown: {error.message}")
        return None


def _partitions(state: "ClusterState") -> dict[str, Any]:
    partitions = state.partitions
    return {
        "total": len(partitions),
        "offline": sum(each.is_offline for each in partitions),
        "under_min_isr": sum(each.is_under_min_in_sync for each in partitions),
        "at_min_isr": sum(each.is_at_min_in_sync for each in partitions),
        "under_replicated": sum(each.is_under_replicated for each in partitions),
        "reassigning": sum(each.reassignment is not None for each in partitions),
        "problems": [{"topic": each.partition.topic, **each.as_json()} for each in partitions if each.problems()],
    }


def _print(described: dict[str, Any]) -> None:
    from rookery.base.clock import SystemClock
    from rookery.cli.broker_states import print_brokers
    from rookery.cli.output import print_table
    from rookery.cli.quorum_tables import print_replicas
    from rookery.cli.topic_tables import partition_cells, problem_cell

    quorum, counts = described["quorum"], described["partitions"]
    typer.echo(f"cluster {described['cluster_id']}\n")
    if quorum is not None:
        leader = "none" if quorum["leader"] is None else quorum["leader"]
        title = (
            f"Quorum: leader {leader}, epoch {quorum['leader_epoch']}, high watermark {quorum['high_watermark']}, "
            f"{len(quorum['voters'])} voters"
        )
        print_replicas(quorum, now_ms=SystemClock().now_ms(), title=title)
        typer.echo("")
    fenced = sum(row["fenced"] for row in described["brokers"])
    print_brokers(described["brokers"], title=f"Brokers: {len(described['brokers'])}, {fenced} fenced")
    typer.echo("")
    title = (
        f"Partitions: {counts['total']} of {described['topics']} topics, {counts['offline']} offline, "
        f"{counts['under_min_isr']} under min ISR, {counts['under_replicated']} under-replicated, "
        f"{counts['reassigning']} moving"
    )
    if not counts["problems"]:
        typer.echo(title)
        return
    columns = ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "ELR", "PROBLEM"]
    # The more is wrong with a partition, the earlier it is shown; offline ones have all problems.
    worst = sorted(counts["problems"], key=lambda row: -len(row["problems"]))
    rows = [(row["topic"], *partition_cells(row), problem_cell(row["problems"])) for row in worst[:_PROBLEMS_SHOWN]]
    print_table(columns, rows, title=title)
    if len(worst) > len(rows):
        more = len(worst) - len(rows)
        typer.echo(f"... and {more} more: rookery topics describe --under-replicated --under-min-isr --unavailable")
