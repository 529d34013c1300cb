"""`rookery doctor`: what is wrong with a cluster, why it matters, and the command that mends it."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.option_values import parse_words
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, Timeout
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.client.admin import Admin
    from rookery.doctor import Check, ClusterSnapshot

EXAMPLES = (
    "Examples:"
    "\n\nrookery doctor"
    "\n\nrookery doctor --json --for 0 --fail-on error     (for CI: quick, and 1 only for errors)"
    "\n\nrookery doctor --only under-replicated --only disk-space"
)
# Shorter than that of other commands: a cluster in trouble lets parts of the examination wait.
_TIMEOUT_S = 10.0
_SEVERITIES = ("note", "warning", "error")

Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="CHECK", help="Run this check only. Repeatable.", autocompletion=completion.doctor_checks
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        "--skip", metavar="CHECK", help="Leave this check out. Repeatable.", autocompletion=completion.doctor_checks
    ),
]
For = Annotated[
    float,
    typer.Option("--for", metavar="SECONDS", min=0, help="Observe groups this long, to find those that are stuck."),
]
FailOn = Annotated[
    str, typer.Option("--fail-on", metavar="SEVERITY", help="Exit with 1 from this on: note, warning or error.")
]
Machine = Annotated[
    bool | None,
    typer.Option("--machine/--no-machine", help="Examine this machine. Default: if a broker runs on it."),
]


def doctor(
    only: Only = None,
    skip: Skip = None,
    for_s: For = 30,
    fail_on: FailOn = "warning",
    machine: Machine = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = _TIMEOUT_S,
) -> None:
    """Examine a cluster: what is wrong, why it matters, and the command that mends it. Changes nothing."""
    from rookery.cli.doctor_tables import as_json_value, print_findings
    from rookery.cli.errors import FAILED
    from rookery.cli.output import print_json
    from rookery.doctor import Severity, examine

    (threshold,) = parse_words([fail_on], _SEVERITIES, "--fail-on")
    checks = _chosen(only or [], skip or [])
    snapshot = _gather(bootstrap_server, timeout_s, for_s, machine)
    findings = examine(snapshot, checks)
    if as_json:
        print_json(as_json_value(snapshot, checks, findings))
    else:
        print_findings(snapshot, checks, findings)
    if any(finding.severity >= Severity[threshold.upper()] for finding in findings):
        raise typer.Exit(FAILED)


def _gather(bootstrap_server: str, timeout_s: float, for_s: float, machine: bool | None) -> "ClusterSnapshot":
    from rookery.cli.client_configs import admin_config
    from rookery.cli.progress import working
    from rookery.doctor import gather

    uses_tls = str(admin_config(bootstrap_server, timeout_s).get("security.protocol", "")).upper() in (
        "SSL",
        "SASL_SSL",
    )

    async def work(admin: "Admin") -> "ClusterSnapshot":
        with working(f"examining the cluster, and its groups for {for_s:g} s"):
            return await gather(admin, observe_s=for_s, uses_tls=uses_tls, machine=machine)

    return with_admin(bootstrap_server, timeout_s, work)


def _chosen(only: list[str], skip: list[str]) -> "list[Check]":
    from rookery.doctor import CHECKS

    known = [check.id for check in CHECKS]
    for name in (*only, *skip):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ": docs/doctor-checks.md lists them"
            raise typer.BadParameter(f"there is no check '{name}'{hint}")
    return [check for check in CHECKS if (not only or check.id in only) and check.id not in skip]
