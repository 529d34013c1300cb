"""`rookery partitions elect`: elect the preferred leaders, or leaders that lose records."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.base.types import TopicPartition
    from rookery.cli.resets import TopicChoice
    from rookery.client.admin import Admin, Outcome

app = App(help="Elect the leaders of partitions.")


@app.callback()
def partitions() -> None:
    """Handle the group's options. With a callback, typer keeps `elect` as a command of its own."""


@app.command(
    "elect",
    epilog="Examples:\n\nrookery partitions elect --all\n\nrookery partitions elect orders:0,1 payments\n\n"
    "rookery partitions elect orders:0 --unclean",
)
def elect(
    choices: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:P,P...]]...", help="Topics, or some partitions.", autocompletion=completion.topics
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All partitions that need it.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect any replica that is alive where no replica in sync is. Records may be lost. Asks first.",
        ),
    ] = False,
    as_json: Json = False,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Make the preferred replica, the first in the list, the leader. Partitions that it leads are left alone."""
    from rookery.base.codes import ElectionType
    from rookery.cli.output import confirm

    if bool(choices) == all_:
        raise typer.BadParameter("give either topics or --all")
    wanted = _parse(choices or [])
    if unclean:
        confirm("Elect leaders that may lack records which were acknowledged, and lose these records?", yes=yes)
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

    async def work(admin: "Admin") -> "dict[TopicPartition, Outcome]":
        partitions = await _partitions(admin, wanted) if wanted else None
        return await admin.elect_leaders(kind, partitions)

    _report(with_admin(bootstrap_server, timeout_s, work), as_json=as_json)


def _parse(texts: list[str]) -> "list[TopicChoice]":
    from rookery.cli.resets import parse_topic

    try:
        return [parse_topic(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


async def _partitions(admin: "Admin", choices: "list[TopicChoice]") -> "list[TopicPartition]":
    from rookery.base.errors import ApiError, ErrorCode
    from rookery.base.types import TopicPartition

    topics = {topic.name: topic for topic in await admin.describe_topics([choice.topic for choice in choices])}
    for topic in topics.values():
        if topic.error is not ErrorCode.NONE:
            raise ApiError(topic.error, f"topic {topic.name}")
    return [
        TopicPartition(choice.topic, index)
        for choice in choices
        for index in choice.partitions or range(len(topics[choice.topic].partitions))
    ]


def _report(outcomes: "dict[TopicPartition, Outcome]", *, as_json: bool) -> None:
    from rookery.base.errors import ApiError, ErrorCode
    from rookery.cli.errors import FAILED, explain
    from rookery.cli.output import print_json

    needless = ErrorCode.ELECTION_NOT_NEEDED
    failed = {tp: each for tp, each in outcomes.items() if each.error not in (ErrorCode.NONE, needless)}
    if as_json:
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "elected": each.error is ErrorCode.NONE,
                "error": each.error.name if tp in failed else None,
                "message": each.message if tp in failed else None,
            }
            for tp, each in outcomes.items()
        ]
        print_json(rows)
    else:
        elected = [str(tp) for tp, each in outcomes.items() if each.error is ErrorCode.NONE]
        for name in elected:
            typer.echo(f"elected a leader for {name}")
        if not elected and not failed:
            typer.echo("all partitions have the right leader already")
    for tp, each in failed.items():
        typer.echo(f"error: {tp}: {each.message or explain(ApiError(each.error))}", err=True)
    if failed:
        raise typer.Exit(FAILED)
