"""`rookery groups lag`: the lag of groups in records and seconds, once or again and again."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.client.admin import Admin
    from rookery.lag import LagMonitor, LagReport

EXAMPLES = (
    "Examples:"
    "\n\nrookery groups lag                                  (all groups, once)"
    "\n\nrookery groups lag billing --partitions --for 30    (with trend and state, after 30 seconds)"
    "\n\nrookery groups lag --watch"
    "\n\nrookery groups lag billing --max-lag-seconds 300    (exit code 1 above 5 minutes)"
)

Groups = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP]...", help="Groups; all if none is named.", autocompletion=completion.groups),
]
Partitions = Annotated[bool, typer.Option("--partitions", "-p", help="A row for each partition, not for each group.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show the lag again and again, until Ctrl-C.")]
For = Annotated[
    float,
    typer.Option("--for", metavar="SECONDS", min=0, help="Observe the groups this long: trend and state need it."),
]
Interval = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="The pause between two looks at the cluster.")
]
Window = Annotated[
    float,
    typer.Option(
        "--window",
        metavar="SECONDS",
        min=1,
        help="With --watch, how far back trend and state look. Longer than between two commits of a group.",
    ),
]
ReadCommitted = Annotated[
    bool,
    typer.Option("--read-committed", help="Up to the last stable offset, without aborted records."),
]
MaxLag = Annotated[
    int | None, typer.Option("--max-lag", metavar="N", min=0, help="Exit with 1 if a group's lag is larger.")
]
MaxLagSeconds = Annotated[
    float | None,
    typer.Option("--max-lag-seconds", metavar="S", min=0, help="Exit with 1 if a group's lag in time is larger."),
]


def lag(
    names: Groups = None,
    partitions: Partitions = False,
    watch: Watch = False,
    for_s: For = 0,
    interval_s: Interval = 5,
    window_s: Window = 60,
    read_committed: ReadCommitted = False,
    lag_max: MaxLag = None,
    lag_s_max: MaxLagSeconds = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show how far groups are behind, in records and in time. Exit code 1: a group is stuck, or above a limit."""
    from rookery.cli.errors import FAILED
    from rookery.cli.lag_tables import as_json_value, exceeds, print_lags
    from rookery.cli.output import note, print_json
    from rookery.lag import LagMonitor

    if watch and for_s:
        raise typer.BadParameter("give --watch or --for, not both")

    async def work(admin: "Admin") -> "LagReport | None":
        monitor = LagMonitor(admin, group_ids=names or None, read_committed=read_committed, window_s=for_s or window_s)
        if watch:
            await _watch(monitor, interval_s, partitions=partitions, as_json=as_json)
        return await _observe(monitor, for_s, interval_s)

    try:
        report = with_admin(bootstrap_server, timeout_s, work)
    except KeyboardInterrupt:
        if watch:
            return
        raise
    assert report is not None
    if as_json:
        print_json(as_json_value(report))
    else:
        print_lags(report, partitions=partitions)
        if not for_s and any(group.lag for group in report.groups):
            note("trend and state need some time: add --for 30, or --watch")
    if exceeds(report, lag_max=lag_max, lag_s_max=lag_s_max):
        raise typer.Exit(FAILED)


async def _observe(monitor: "LagMonitor", for_s: float, interval_s: float) -> "LagReport":
    """Return the last report of `for_s` seconds."""
    from rookery.cli.progress import working

    with working(f"observing for {for_s:g} s"):
        return await monitor.observe_for(for_s, interval_s)


async def _watch(monitor: "LagMonitor", interval_s: float, *, partitions: bool, as_json: bool) -> None:
    from rookery.cli.lag_tables import shown_again

    with shown_again(partitions=partitions, as_json=as_json) as show:
        async for report in monitor.watch(interval_s):
            show(report)
