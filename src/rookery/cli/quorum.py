"""`rookery quorum`: status, add, remove."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli.app import App
from rookery.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapController,
    BootstrapServer,
    Json,
    Timeout,
)
from rookery.cli.session import with_cluster

if TYPE_CHECKING:
    from rookery.client.admin import Admin, Quorum

app = App(help="Show the quorum of controllers; add and remove voters.")

Node = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The id of the node.")]
_CHECK_S = 5.0


@app.command(
    "status", epilog="Examples:\n\nrookery quorum status --replication\n\nrookery quorum status --check && echo works"
)
def status(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Exit with 1 unless metadata is committed and all voters are caught up. Waits up to 5 seconds.",
        ),
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Show each voter and observer, with its lag.")
    ] = False,
    as_json: Json = False,
    controllers: BootstrapController = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show leader, epoch, high watermark and voters of the quorum that holds the cluster's metadata."""
    from rookery.base.clock import SystemClock
    from rookery.cli.errors import FAILED
    from rookery.cli.output import print_json
    from rookery.cli.quorum_tables import check_quorum, print_replicas, print_summary, quorum_as_json

    async def work(admin: "Admin") -> "tuple[str, Quorum, list[str]]":
        cluster_id = (await admin.describe_cluster()).cluster_id
        quorum, problems = await check_quorum(admin, wait_s=_CHECK_S) if check else (await admin.describe_quorum(), [])
        return cluster_id, quorum, problems

    cluster_id, quorum, problems = with_cluster(controllers, bootstrap_server, timeout_s, work)
    described = quorum_as_json(quorum)
    if as_json:
        checked = {"problems": problems} if check else {}
        print_json({"cluster_id": cluster_id, **described, **checked})
    else:
        print_summary(cluster_id, described)
        if replication:
            typer.echo("")
            print_replicas(described, now_ms=SystemClock().now_ms())
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(FAILED)


@app.command(
    "add", epilog="Examples:\n\nrookery quorum add 4\n\nrookery quorum add 4 --endpoint controller4.example.com:9093"
)
def add(
    node: Node,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="[LISTENER://]HOST:PORT",
            help="The node's address for other controllers. Default: the address that it registered.",
        ),
    ] = None,
    controllers: BootstrapController = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Make a running controller a voter. Its directory id and its address are looked up."""
    from rookery.cli.voters import add_voter

    typer.echo(
        with_cluster(
            controllers, bootstrap_server, timeout_s, lambda admin: add_voter(admin, node, endpoint, timeout_s)
        )
    )


@app.command("remove", epilog="Example: rookery quorum remove 4")
def remove(
    node: Node,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if the other voters that answer are no majority.")
    ] = False,
    controllers: BootstrapController = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove a voter, running or not. Its directory id is looked up."""
    from rookery.cli.voters import remove_voter

    typer.echo(
        with_cluster(controllers, bootstrap_server, timeout_s, lambda admin: remove_voter(admin, node, force=force))
    )
