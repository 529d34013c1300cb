"""`rookery transactions`: list, describe, describe-producers, abort, find-hanging."""

from typing import TYPE_CHECKING, Annotated

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.option_values import parse_words
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout, Yes
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from rookery.base.types import TopicPartition
    from rookery.client.admin import Admin, OpenTransaction, PartitionProducers

app = App(help="List and describe transactions, find hanging ones, and abort them.")

Topic = Annotated[
    str,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", help="The topic.", show_default=False, autocompletion=completion.topics
    ),
]
OptionalTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.", autocompletion=completion.topics),
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, metavar="P", help="Only this partition.")]
BrokerId = Annotated[
    int | None, typer.Option("--broker-id", min=0, metavar="ID", help="Ask this broker about its replicas.")
]

_MS_PER_MINUTE = 60_000


@app.command(
    "list",
    epilog="Examples:\n\nrookery transactions list --state ongoing --running-longer-than-ms 60000"
    "\n\nrookery transactions list --id-pattern 'billing-.*' --json",
)
def list_(
    states: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only transactions in this state. Repeatable.")
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only transactions of this producer id. Repeatable."),
    ] = None,
    running_longer_than_ms: Annotated[
        int | None,
        typer.Option("--running-longer-than-ms", min=0, metavar="MS", help="Only transactions that have run longer."),
    ] = None,
    id_pattern: Annotated[
        str | None,
        typer.Option("--id-pattern", metavar="REGEX", help="Only transactional ids that match as a whole (RE2)."),
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List transactional ids with their coordinators, producer ids and states."""
    from rookery.cli.transaction_tables import print_listings
    from rookery.client.admin import TRANSACTION_STATES

    wanted = parse_words(states or [], TRANSACTION_STATES, "--state")
    found = with_admin(
        bootstrap_server,
        timeout_s,
        lambda admin: admin.list_transactions(
            states=wanted,
            producer_ids=producer_ids or [],
            running_longer_than_ms=running_longer_than_ms,
            id_pattern=id_pattern,
        ),
    )
    print_listings(found, as_json=as_json)


@app.command("describe", epilog="Example: rookery transactions describe billing-1 billing-2")
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...", help="One or more transactional ids.")],
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the coordinator's state of transactional ids: producer, state, duration, partitions."""
    from rookery.base.clock import SystemClock
    from rookery.cli.transaction_tables import print_descriptions

    found = with_admin(bootstrap_server, timeout_s, lambda admin: admin.describe_transactions(ids))
    print_descriptions([description.check() for description in found], now_ms=SystemClock().now_ms(), as_json=as_json)


@app.command("describe-producers", epilog="Example: rookery transactions describe-producers --topic orders")
def describe_producers(
    topic: Topic,
    partition: Partition = None,
    broker_id: BrokerId = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the producers of a topic's partitions, and where their open transactions begin."""
    from rookery.cli.transaction_tables import print_producers
    from rookery.client.admin import Scope

    scope = Scope(node=broker_id, topic=topic, partition=partition)

    async def work(admin: "Admin") -> "dict[TopicPartition, PartitionProducers]":
        return await admin.describe_producers(await admin.partitions_in(scope), node=broker_id)

    found = with_admin(bootstrap_server, timeout_s, work)
    print_producers({tp: row.check().producers for tp, row in found.items()}, as_json=as_json)


@app.command(
    "abort",
    epilog="Examples:\n\nrookery transactions abort --topic orders --partition 0 --start-offset 1500"
    "\n\nrookery transactions abort -t orders -p 0 --producer-id 9 --producer-epoch 2 --coordinator-epoch 0 --yes"
    "\n\nrookery transactions abort --transactional-id billing-1",
)
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id", metavar="ID", help="Fence its producer and abort its transaction on all partitions."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Abort on one partition of this topic.",
            autocompletion=completion.topics,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, metavar="P", help="The partition to abort on.")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, metavar="N", help="The offset at which the transaction begins."),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            "--producer-id", min=0, metavar="ID", help="Its producer id, with both epochs, instead of --start-offset."
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", min=0, metavar="N", help="The producer's epoch.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option("--coordinator-epoch", min=-1, metavar="N", help="The coordinator's epoch; -1 if unknown."),
    ] = None,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Abort the transaction of a transactional id, or a hanging one on a partition. Asks first."""
    from rookery.cli.aborts import AbortOptions, plan_abort
    from rookery.cli.output import confirm

    options = AbortOptions(
        transactional_id, topic, partition, start_offset, producer_id, producer_epoch, coordinator_epoch
    )
    question, work = plan_abort(options)
    confirm(question, yes=yes)
    typer.echo(with_admin(bootstrap_server, timeout_s, work))


@app.command(
    "find-hanging",
    epilog="Examples:\n\nrookery transactions find-hanging\n\nrookery transactions find-hanging --topic orders",
)
def find_hanging(
    broker_id: BrokerId = None,
    max_transaction_timeout_minutes: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            min=0,
            metavar="MINUTES",
            help="The longest time-out of transactions; only those without a write for longer are examined.",
        ),
    ] = 15,
    topic: OptionalTopic = None,
    partition: Partition = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Find transactions that are open on partitions, but that no coordinator will end."""
    from rookery.base.clock import SystemClock
    from rookery.cli.progress import counted
    from rookery.cli.transaction_tables import print_hanging
    from rookery.client.admin import Scope

    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    scope = Scope(node=broker_id, topic=topic, partition=partition)
    now_ms = SystemClock().now_ms()

    async def work(admin: "Admin") -> "list[OpenTransaction]":
        partitions = await admin.partitions_in(scope)
        with counted("examining partitions", len(partitions)) as on_progress:
            return await admin.find_hanging_transactions(
                partitions,
                node=broker_id,
                longer_than_ms=max_transaction_timeout_minutes * _MS_PER_MINUTE,
                now_ms=now_ms,
                on_progress=on_progress,
            )

    print_hanging(with_admin(bootstrap_server, timeout_s, work), now_ms=now_ms, as_json=as_json)
