"""`rookery dlq`: list, show, redrive."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    Json,
    Timeout,
    Yes,
)

if TYPE_CHECKING:
    from rookery.dead_letters.letters import Selection

app = App(help="List and show dead letters, and send them again.")

_SHOWN = 20
# The default of `dead_letters.plan`, which is imported only when a command runs.
_MAX_ATTEMPTS = 3

Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="A dead-letter topic, such as orders.dlq.", autocompletion=completion.topics),
]
OriginTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="TOPIC",
        help="Only dead letters from this topic. Repeatable.",
        autocompletion=completion.topics,
    ),
]
ErrorClasses = Annotated[
    list[str] | None,
    typer.Option("--error", metavar="CLASS", help="Only this error class, with or without its package. Repeatable."),
]
Stages = Annotated[
    list[str] | None,
    typer.Option("--stage", metavar="STAGE", help="Only records that failed in this stage. Repeatable."),
]
Pipelines = Annotated[
    list[str] | None, typer.Option("--pipeline", metavar="NAME", help="Only dead letters of this pipeline. Repeatable.")
]
Offsets = Annotated[
    list[str] | None,
    typer.Option("--offset", metavar="P:N[-M]", help="Only these offsets of the dead-letter topic. Repeatable."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only failures from this time on: ISO 8601, or MS.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only failures before this time.")]


@app.command("list", epilog="Example: rookery dlq list")
def list_(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...", help="Without a name, all topics that end in .dlq.", autocompletion=completion.topics
        ),
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List dead-letter topics with their counts, the newest failure and the error classes."""
    from rookery.cli.dlq_runs import DeadLetterRun
    from rookery.cli.dlq_tables import print_summaries

    print_summaries(DeadLetterRun(bootstrap_server, timeout_s).summarize(names or []), as_json=as_json)


@app.command(
    "show",
    epilog="Examples:"
    "\n\nrookery dlq show orders.dlq --limit 5"
    "\n\nrookery dlq show orders.dlq --error SchemaError --since 2026-03-01T12:00Z --json",
)
def show(
    topic: Topic,
    origins: OriginTopics = None,
    errors: ErrorClasses = None,
    stages: Stages = None,
    pipelines: Pipelines = None,
    offsets: Offsets = None,
    since: Since = None,
    until: Until = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            "-r",
            envvar="ROOKERY_SCHEMA_REGISTRY",
            metavar="URL[,...]",
            help="Decode keys and values with the schemas of this registry.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show this many, the newest.")] = _SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="Print each as one line of JSON, with all headers.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show dead letters with their origins, errors, keys and values."""
    from rookery.cli.dlq_runs import DeadLetterRun
    from rookery.cli.dlq_tables import print_letters
    from rookery.cli.dlq_values import RegistryValues
    from rookery.cli.errors import needs_extra

    selection = _selection(origins, errors, stages, pipelines, offsets, since, until)
    letters = DeadLetterRun(bootstrap_server, timeout_s).find(topic, selection, count=limit)
    try:
        values = None if registry is None else RegistryValues(registry)
    except ImportError as error:
        raise needs_extra("registry", error) from None
    print_letters(letters, values=values, as_json=as_json)


@app.command(
    "redrive",
    epilog="Examples:"
    "\n\nrookery dlq redrive orders.dlq --dry-run"
    "\n\nrookery dlq redrive orders.dlq --error SchemaError --yes"
    "\n\nrookery dlq redrive orders.dlq --to orders-repaired --yes",
)
def redrive(
    topic: Topic,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Send all to this topic instead of the topic each came from.",
            autocompletion=completion.topics,
        ),
    ] = None,
    max_attempts: Annotated[
        int, typer.Option("--max-attempts", min=1, help="Skip records that have failed this many times.")
    ] = _MAX_ATTEMPTS,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="Send with the current time; without it, records older than the topic's retention are skipped.",
        ),
    ] = False,
    origins: OriginTopics = None,
    errors: ErrorClasses = None,
    stages: Stages = None,
    pipelines: Pipelines = None,
    offsets: Offsets = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent without sending it.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send dead letters again, each once. Asks first. A second run sends only those that were not sent yet.

    Exits with 1 if a record had to be skipped: it names no topic, or its topic does not exist or would delete it.
    """
    from rookery.cli.dlq_runs import DeadLetterRun
    from rookery.cli.dlq_tables import print_report
    from rookery.cli.errors import FAILED
    from rookery.cli.output import confirm
    from rookery.dead_letters.plan import RedriveRequest

    if to == topic:
        raise typer.BadParameter("the target must not be the dead-letter topic itself", param_hint="--to")
    selection = _selection(origins, errors, stages, pipelines, offsets, since, until)
    request = RedriveRequest(topic, selection, to, max_attempts, now)
    run = DeadLetterRun(bootstrap_server, timeout_s)
    executed = yes and not dry_run
    report = run.redrive(request) if executed else run.preview(request)
    if report.sent and not (executed or dry_run):
        targets = ", ".join(f"{count:,} to {name}" for name, count in sorted(report.sent.items()))
        confirm(f"Send {targets}?", yes=yes)
        report, executed = run.redrive(request), True
    print_report(report, executed=executed, as_json=as_json)
    if not (dry_run or report.is_complete):
        raise typer.Exit(FAILED)


def _selection(
    origins: list[str] | None,
    errors: list[str] | None,
    stages: list[str] | None,
    pipelines: list[str] | None,
    offsets: list[str] | None,
    since: str | None,
    until: str | None,
) -> "Selection":
    from rookery.cli.positions import parse_timestamp_ms
    from rookery.dead_letters.letters import Selection, parse_span

    try:
        return Selection(
            frozenset(origins or ()),
            frozenset(errors or ()),
            frozenset(stage.upper() for stage in stages or ()),
            frozenset(pipelines or ()),
            tuple(map(parse_span, offsets or ())),
            None if since is None else parse_timestamp_ms(since),
            None if until is None else parse_timestamp_ms(until),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
