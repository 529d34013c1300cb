"""The three ways in which `rookery transactions abort` names a transaction.

Each gives the question to ask before anything is done, and the work, which answers with the sentence to print.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import typer

from rookery.base.types import Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition
from rookery.cli.errors import CommandError
from rookery.client.admin import AbortTarget, Admin, OpenTransaction

Abort: TypeAlias = tuple[str, Callable[[Admin], Awaitable[str]]]


class Choice(NamedTuple):
    """The options that name the transaction."""

    transactional_id: str | None
    topic: TopicName | None
    partition: PartitionIndex | None
    start_offset: Offset | None
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch | None
    coordinator_epoch: int | None


def choose(choice: Choice) -> Abort:
    """The one transaction that the options name. BadParameter if they do not name one."""
    match choice:
        case Choice(str() as transactional_id, None, None, None, None, None, None):
            return _by_transactional_id(transactional_id)
        case Choice(str()):
            raise typer.BadParameter("--transactional-id stands alone: it is aborted wherever it is open")
        case Choice(None, str() as topic, int() as index, int() as start, None, None, None):
            return _by_start_offset(TopicPartition(topic, index), start)
        case Choice(None, str() as topic, int() as index, None, int() as producer, int() as epoch, int() as fence):
            return _by_producer(
                AbortTarget(
                    partition=TopicPartition(topic, index),
                    producer_id=producer,
                    producer_epoch=epoch,
                    # -1 is what a partition says that never heard of a coordinator; none is older than 0.
                    coordinator_epoch=max(0, fence),
                )
            )
        case _:
            raise typer.BadParameter(
                "which transaction? Give --transactional-id, or --topic and --partition with --start-offset or with "
                "--producer-id, --producer-epoch and --coordinator-epoch"
            )


def _by_transactional_id(transactional_id: str) -> Abort:
    async def work(admin: Admin) -> str:
        # Asked first, since fencing would create a transactional id that does not exist; and its time-out stays.
        (before,) = await admin.describe_transactions([transactional_id])
        (fenced,) = await admin.fence_producers([transactional_id], timeout_ms=before.check().timeout_ms)
        producer_id, epoch = fenced.check().producer_id, fenced.producer_epoch
        had = "its transaction is ended" if before.is_open else "it had no transaction open"
        return f"fenced {transactional_id} (producer id {producer_id}, now epoch {epoch}): {had}"

    return f"Lock out the producer of {transactional_id} and abort its transaction?", work


def _by_start_offset(tp: TopicPartition, start: Offset) -> Abort:
    async def work(admin: Admin) -> str:
        opened = await admin.open_transactions([tp])
        found = next((known for known in opened if known.producer.transaction_start == start), None)
        if found is None:
            raise CommandError(f"no transaction is open on {tp} that begins at offset {start}{_hint(opened)}")
        return await _abort(admin, AbortTarget.of(found))

    return f"Abort the transaction that begins at offset {start} of {tp}, and only there?", work


def _by_producer(target: AbortTarget) -> Abort:
    async def work(admin: Admin) -> str:
        return await _abort(admin, target)

    question = f"Abort the transaction of producer id {target.producer_id} on {target.partition}, and only there?"
    return question, work


async def _abort(admin: Admin, target: AbortTarget) -> str:
    await admin.abort_transaction(target)
    return f"aborted on {target.partition} (producer id {target.producer_id}, epoch {target.producer_epoch})"


def _hint(opened: list[OpenTransaction]) -> str:
    starts = ", ".join(str(known.producer.transaction_start) for known in opened)
    return f"; open there: {starts}" if starts else ""
