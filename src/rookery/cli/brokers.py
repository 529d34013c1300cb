"""`rookery brokers`: list, describe, drain, unregister."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.base.types import TopicPartition
    from rookery.cli.broker_states import ClusterState
    from rookery.client.admin import Admin, Broker

app = App(help="List, describe, drain and unregister brokers.")

_DIRECTORIES_S = 5.0

NodeArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="The id of the broker.")]


@app.command("list", epilog="Example: rookery brokers list --json")
def list_(
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the brokers, fenced ones included, with their leaders and replicas."""
    from rookery.cli.broker_states import load_cluster, print_brokers
    from rookery.cli.output import print_json

    rows = with_admin(bootstrap_server, timeout_s, load_cluster).broker_rows()
    if as_json:
        print_json(rows)
    else:
        print_brokers(rows)


@app.command("describe", epilog="Example: rookery brokers describe 2")
def describe(
    node: NodeArgument,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show a broker's log directories, and the partitions that would suffer if it stopped."""
    from rookery.cli.output import print_json

    described = with_admin(bootstrap_server, timeout_s, lambda admin: _describe(admin, node))
    if as_json:
        print_json(described)
    else:
        _print(described)


@app.command(
    "drain", epilog="Examples:\n\nrookery brokers drain 4 --dry-run\n\nrookery brokers drain 4 --partitions-at-once 20"
)
def drain(
    node: NodeArgument,
    at_once: Annotated[
        int, typer.Option("--partitions-at-once", min=1, metavar="N", help="How many partitions move at the same time.")
    ] = 50,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves without starting them.")] = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Move all replicas away from a broker and wait for it. If it is interrupted, run it again: it continues."""
    from rookery.cli.errors import CommandError
    from rookery.cli.output import some_partitions
    from rookery.cli.reassign_tables import print_moves

    async def work(admin: "Admin") -> "list[TopicPartition]":
        from rookery.cli.broker_states import load_cluster
        from rookery.cli.reassign_runs import bytes_to_copy, plan_drain, start_moves, wait_for_moves

        state = await load_cluster(admin)
        _find(state, node)
        current, planned = await plan_drain(admin, node)
        # A partition without a leader has no replica to copy from: its move would never end.
        offline = {each.partition for each in state.partitions if each.is_offline} & planned.keys()
        targets = {tp: nodes for tp, nodes in planned.items() if tp not in offline}
        print_moves(current, targets, await bytes_to_copy(admin, current, targets), as_json=as_json)
        ordered = sorted(targets)
        for start in range(0, 0 if dry_run else len(ordered), at_once):
            wave = ordered[start : start + at_once]
            await start_moves(admin, {tp: targets[tp] for tp in wave}, replace=True)
            await wait_for_moves(admin, wave)
        return sorted(offline)

    offline = with_admin(bootstrap_server, timeout_s, work)
    if offline:
        raise CommandError(
            f"{len(offline)} partitions are offline and cannot move ({some_partitions(offline)}): "
            "start the brokers that have their records, or delete their topics"
        )
    if not dry_run:
        typer.echo(f"broker {node} has no replicas left: stop it, then run rookery brokers unregister {node}", err=True)


@app.command("unregister", epilog="Example: rookery brokers unregister 4")
def unregister(
    node: NodeArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Unregister it even if it runs, or if partitions have replicas there.")
    ] = False,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove a broker that will not return from the cluster. Asks first; refuses one that still has replicas."""
    from rookery.cli.output import confirm

    confirm(f"Remove broker {node} from the cluster?", yes=yes)

    async def work(admin: "Admin") -> None:
        if not force:
            await _check_unused(admin, node)
        await admin.unregister_broker(node)

    with_admin(bootstrap_server, timeout_s, work)
    typer.echo(f"unregistered broker {node}")


async def _check_unused(admin: "Admin", node: int) -> None:
    """Raise CommandError if the broker runs (it would register again) or has replicas (they could not return)."""
    from rookery.cli.broker_states import load_cluster
    from rookery.cli.errors import CommandError
    from rookery.cli.output import some_partitions

    state = await load_cluster(admin)
    broker = _find(state, node)
    held = [each.partition for each in state.partitions if node in each.details.replicas]
    if held:
        raise CommandError(
            f"broker {node} has replicas of {len(held)} partitions ({some_partitions(held)}): move them away first "
            f"with rookery brokers drain {node}, or add --force to leave these partitions without them"
        )
    if broker.node_id not in state.description.fenced:
        raise CommandError(f"broker {node} is running: stop it first, or add --force")


def _find(state: "ClusterState", node: int) -> "Broker":
    from rookery.cli.errors import CommandError

    for broker in state.description.brokers:
        if broker.node_id == node:
            return broker
    known = ", ".join(str(broker.node_id) for broker in state.description.brokers)
    raise CommandError(f"there is no broker {node}; the brokers are {known}")


async def _describe(admin: "Admin", node: int) -> dict[str, Any]:
    from rookery.cli.broker_states import load_cluster, out_of_sync

    state = await load_cluster(admin)
    row = state.broker_row(_find(state, node))
    partitions = state.partitions
    return row | {
        "log_directories": None if row["fenced"] else await _log_directories(admin, node),
        "out_of_sync": [str(each.partition) for each in out_of_sync(partitions, node)],
        "only_in_sync_here": [str(each.partition) for each in partitions if each.details.in_sync_replicas == (node,)],
        "at_min_isr_here": [
            str(each.partition)
            for each in partitions
            if each.is_at_min_in_sync and node in each.details.in_sync_replicas
        ],
    }


async def _log_directories(admin: "Admin", node: int) -> list[dict[str, Any]] | None:
    """Return the broker's log directories; None if it does not answer, because it has just died."""
    import asyncio

    from rookery.base.errors import ApiError, ErrorCode

    try:
        async with asyncio.timeout(_DIRECTORIES_S):
            directories = await admin.describe_log_dirs([node])
    except (ApiError, TimeoutError):
        return None
    return [
        {
            "path": directory.path,
            "error": None if directory.error is ErrorCode.NONE else directory.error.name,
            "partitions": len(directory.partition_sizes),
            "size_bytes": sum(directory.partition_sizes.values()),
            "usable_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
            "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
        }
        for directory in directories
    ]


def _print(described: dict[str, Any]) -> None:
    from rookery.cli.broker_states import print_brokers
    from rookery.cli.output import Styled, print_table
    from rookery.cli.sizes import size_text

    print_brokers([described])
    typer.echo("")
    rows = [
        (
            directory["path"],
            Styled(directory["error"], "bold red") if directory["error"] else Styled("online", "green"),
            directory["partitions"],
            size_text(directory["size_bytes"]),
            size_text(directory["usable_bytes"]),
            size_text(directory["total_bytes"]),
        )
        for directory in described["log_directories"] or ()
    ]
    if described["log_directories"] is None:
        typer.echo("log directories: not known, the broker does not answer")
    if rows:
        print_table(["LOG DIRECTORY", "STATE", "PARTITIONS", "SIZE", "USABLE", "TOTAL"], rows)
        typer.echo("")
    _print_partitions("replicas that are not in sync", described["out_of_sync"])
    _print_partitions("partitions that would go offline without this broker", described["only_in_sync_here"])
    _print_partitions("partitions that would refuse acks=all without this broker", described["at_min_isr_here"])


def _print_partitions(what: str, partitions: list[str]) -> None:
    listed = ", ".join(partitions[:10]) + (f" and {len(partitions) - 10} more" if len(partitions) > 10 else "")
    typer.echo(f"{what}: {listed or 'none'}")
