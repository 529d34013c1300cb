"""The three ways in which `rookery transactions abort` names a transaction.

Each way is a question to ask the user first, and a coroutine that does the work and returns the sentence to print.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import typer

from rookery.base.types import Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition
from rookery.cli.errors import CommandError
from rookery.client.admin import AbortTarget, Admin, OpenTransaction

Abort: TypeAlias = tuple[str, Callable[[Admin], Awaitable[str]]]


class AbortOptions(NamedTuple):
    """The options that name the transaction."""

    transactional_id: str | None
    topic: TopicName | None
    partition: PartitionIndex | None
    start_offset: Offset | None
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch | None
    coordinator_epoch: int | None


def plan_abort(options: AbortOptions) -> Abort:
    """Return the abort of the transaction that the options name; raises BadParameter if they do not name one."""
    match options:
        case AbortOptions(str() as transactional_id, None, None, None, None, None, None):
            return _by_transactional_id(transactional_id)
        case AbortOptions(str()):
            raise typer.BadParameter(
                "--transactional-id cannot be combined with other options: it aborts the transaction on all partitions"
            )
        case AbortOptions(None, str() as topic, int() as index, int() as start, None, None, None):
            return _by_start_offset(TopicPartition(topic, index), start)
        case AbortOptions(
            None, str() as topic, int() as index, None, int() as producer, int() as epoch, int() as fence
        ):
            return _by_producer(
                AbortTarget(
                    partition=TopicPartition(topic, index),
                    producer_id=producer,
                    producer_epoch=epoch,
                    # A partition reports -1 until it has seen a coordinator's marker; coordinator epochs begin at 0.
                    coordinator_epoch=max(0, fence),
                )
            )
        case _:
            raise typer.BadParameter(
                "the options name no transaction: give --transactional-id, or --topic and --partition with either "
                "--start-offset or --producer-id, --producer-epoch and --coordinator-epoch"
            )


def _by_transactional_id(transactional_id: str) -> Abort:
    async def work(admin: Admin) -> str:
        # Describe it first: fencing an unknown transactional id would create it, and needs its time-out to keep it.
        (before,) = await admin.describe_transactions([transactional_id])
        (fenced,) = await admin.fence_producers([transactional_id], timeout_ms=before.check().timeout_ms)
        producer_id, epoch = fenced.check().producer_id, fenced.producer_epoch
        had = "its transaction is aborted" if before.is_open else "it had no open transaction"
        return f"fenced {transactional_id} (producer id {producer_id}, now epoch {epoch}): {had}"

    return f"Fence the producer of {transactional_id} and abort its transaction?", work


def _by_start_offset(tp: TopicPartition, start: Offset) -> Abort:
    async def work(admin: Admin) -> str:
        opened = await admin.open_transactions([tp])
        found = next((known for known in opened if known.producer.transaction_start == start), None)
        if found is None:
            raise CommandError(f"no open transaction on {tp} begins at offset {start}{_hint(opened)}")
        return await _abort(admin, AbortTarget.of(found))

    return f"Abort the transaction that begins at offset {start} of {tp}, on this partition only?", work


def _by_producer(target: AbortTarget) -> Abort:
    async def work(admin: Admin) -> str:
        return await _abort(admin, target)

    question = f"Abort the transaction of producer id {target.producer_id} on {target.partition} only?"
    return question, work


async def _abort(admin: Admin, target: AbortTarget) -> str:
    await admin.abort_transaction(target)
    return f"aborted on {target.partition} (producer id {target.producer_id}, epoch {target.producer_epoch})"


def _hint(opened: list[OpenTransaction]) -> str:
    starts = ", ".join(str(known.producer.transaction_start) for known in opened)
    return f"; the open transactions there begin at {starts}" if starts else ""
