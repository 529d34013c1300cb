"""Carries out what `commit_protocol` decides: the ledger is read and written, transactions are looked at and ended.

The order of the steps is the protocol. After each of them the driver may die, and does so in the tests: `steps` is
called with the name of each, and does nothing otherwise. A commit comes by: took over, checked, written (in the middle
of writing to the ledger), decided, ended (once for each piece), listed, written, done, swept. An abort comes by: took
over, written, abandoned, aborted, ended.

Transactions that nobody ends would hold up readers until their time is over: of tasks that were killed, of copies that
came second, of drivers that died. They are listed before the batch is noted as done and aborted afterwards. By then no
entry can ever list them: all tasks that were running when a newer driver had not taken over belong to this batch or one
before, and if one has taken over, the note fails. Of a batch write only those of its own version are listed. Neither
listing nor aborting them can fail a batch that is committed.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, Final, TypeVar

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import ONGOING, Admin, EndOutcome, PreparedTransaction, TransactionDescription
from rookery.spark.sink.commit_protocol import (
    Decide,
    Done,
    Entry,
    Finish,
    Piece,
    RivalDriverError,
    SinkError,
    Skip,
    is_unsettled,
    plan_abort,
    plan_after_ends,
    plan_commit,
    settled,
    still_abandoned,
)
from rookery.spark.sink.ledger import Ledger, LockedOutError, StepHook, no_step_hook
from rookery.spark.sink.names import tasks_name, tasks_pattern

Thing = TypeVar("Thing")
Result = TypeVar("Result")

# Drivers that take a sink from each other come to an end, one of them by this.
_TAKE_OVERS_MAX: Final = 5
# Of ends that failed, after the client has tried for `default.api.timeout.ms`: what is decided should not be left.
_END_ROUNDS_MAX: Final = 2
_LISTING_TIMEOUT_S: Final = 2.0
_SWEEP_INTERVAL_S: Final = 0.25
_LOG: Final = logging.getLogger(__name__)


class Committer:
    """Of one sink. `is_streaming`: Spark begins a batch only when the one before is committed. `is_forgotten`: the
    sink's name is never used again, so nothing is to be remembered of it."""

    concurrent_requests: ClassVar = 32
    # Spark lets the tasks of a failed job run on for two seconds (spark.python.task.killTimeout).
    late_tasks_s: ClassVar = 3.0

    def __init__(
        self,
        ledger: Ledger,
        *,
        is_streaming: bool = False,
        is_one_off: bool = False,
        on_step: StepHook = no_step_hook,
    ) -> None:
        self._ledger = ledger
        self._is_streaming = is_streaming
        self._is_one_off = is_one_off
        self._on_step = on_step

    @property
    def _admin(self) -> Admin:
        return self._ledger.admin

    async def commit(self, batch: int, fresh: Sequence[Piece]) -> None:
        """Returns when all rows of the batch are committed, by this or an earlier run. Raises SinkError, ApiError."""
        await self._with_ledger(batch, lambda: self._commit(batch, fresh))

    async def abort(self, batch: int, fresh: Sequence[Piece]) -> None:
        """Spark gives the batch up. What is decided is committed; the rest is aborted once the ledger says so."""
        await self._with_ledger(batch, lambda: self._abort_batch(batch, fresh))

    async def _with_ledger(self, batch: int, work: Callable[[], Awaitable[None]]) -> None:
        """Again from the start if another driver has taken over: what it decided holds for this one, too."""
        reasons: list[str] = []
        while len(reasons) < _TAKE_OVERS_MAX:
            try:
                return await work()
            except LockedOutError as error:
                reasons.append(str(error))
            except BaseException:
                await self._ledger.release()
                raise
        raise RivalDriverError(
            f"batch {batch}: other drivers write to the sink {self._ledger.sink} at the same time ({reasons[-1]})"
        )

    async def _commit(self, batch: int, fresh: Sequence[Piece]) -> None:
        was_held = self._ledger.is_held
        plan = plan_commit(await self._entry(batch), batch, fresh, is_streaming=self._is_streaming)
        if was_held and isinstance(plan, Skip):
            # There is no write that would fail if another driver knows better.
            await self._ledger.release()
            plan = plan_commit(await self._entry(batch), batch, fresh, is_streaming=self._is_streaming)
        await self._on_step("took over")
        while isinstance(plan, Decide | Finish):
            if isinstance(plan, Decide):
                await self._check_open(batch, plan.unproven)
                await self._on_step("checked")
                await self._ledger.write(plan.entry, self._on_step)
                await self._on_step("decided")
            plan = plan_after_ends(plan.entry, await self._end_all(plan.entry), fresh)
        if isinstance(plan, Skip):
            if plan.reason:
                _LOG.warning("%s: %s", self._ledger.sink, plan.reason)
            await self._abort_transactions(piece.transaction for piece in fresh)
            return
        await self._finish(plan, fresh)

    async def _finish(self, plan: Done, fresh: Sequence[Piece]) -> None:
        listed = plan.entry.listed
        opened = await self._open_transactions(plan.entry.batch, plan.entry.abandoned)
        left = {piece.transaction for piece in fresh} | {*(opened or ())}
        await self._on_step("listed")
        if self._is_one_off:
            await self._delete_entry()
        else:
            await self._ledger.write(still_abandoned(plan.entry, opened), self._on_step)
        await self._on_step("done")
        await self._abort_transactions(left - listed)
        await self._on_step("swept")

    async def _delete_entry(self) -> None:
        """All rows are there: who hears of an error now would write them again."""
        try:
            await self._ledger.write(None, self._on_step)
        except (ApiError, LockedOutError) as error:
            _LOG.warning("%s: is written, but stays in the ledger: %s", self._ledger.sink, error)

    async def _entry(self, batch: int) -> Entry | None:
        """The sink's last, which may be replaced by one of this batch: what it decided is ended."""
        entry = await self._ledger.entry()
        if entry is None or self._is_streaming or not is_unsettled(entry, batch):
            return entry
        found = settled(entry, await self._end_all(entry))
        _LOG.warning(
            "%s: batch %d was left unfinished: %s",
            self._ledger.sink,
            entry.batch,
            "it is committed now" if found.is_done else "the broker has given up all of it, so it was never written",
        )
        return found

    async def _abort_batch(self, batch: int, fresh: Sequence[Piece]) -> None:
        entry = await self._entry(batch)
        await self._on_step("took over")
        transactions = [piece.transaction for piece in fresh]
        before = () if entry is None else entry.abandoned
        plan = plan_abort(entry, batch, transactions, await self._open_transactions(batch, before))
        if plan.entry is not None:
            await self._ledger.write(plan.entry, self._on_step)
            await self._on_step("abandoned")
        await self._abort_transactions(plan.to_abort)
        await self._on_step("aborted")
        await self._end_all(Entry(batch=batch, pieces=plan.decided))
        if self._is_one_off and not plan.decided:
            await self._ledger.write(None, self._on_step)
            await self._sweep_late_tasks(batch)

    async def _sweep_late_tasks(self, batch: int) -> None:
        """A task that finishes only now leaves its transaction open, and nobody will come by later: the name of this
        write is never used again."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        while loop.time() - started_s < self.late_tasks_s:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            await self._abort_transactions(await self._open_transactions(batch) or ())

    # Transactions

    async def _check_open(self, batch: int, pieces: Sequence[Piece]) -> None:
        """A decision about what is lost already would tear the batch."""
        described = await self._each(pieces, lambda piece: self._describe(piece.transaction))
        for piece, found in zip(pieces, described, strict=True):
            name = piece.transaction.transactional_id
            if found.error is ErrorCode.UNSUPPORTED_VERSION:
                raise SinkError(
                    "delivery=exactly-once needs brokers of Kafka 3.0 or newer, which describe transactions (KIP-664): "
                    f"{found.message}. With delivery=at-least-once any will do"
                )
            if found.error not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                found.check()
            identity = (piece.transaction.producer_id, piece.transaction.producer_epoch)
            if found.state != ONGOING or (found.producer_id, found.producer_epoch) != identity:
                raise SinkError(
                    f"batch {batch}: the transaction {name} of task {piece.partition} was aborted before the batch was "
                    f"committed (it is {found.state or 'unknown'}). Either the same batch was written by another "
                    "driver at the same time, which has swept it; or the batch took longer than "
                    "kafka.transaction.timeout.ms: then raise it, and the broker's transaction.max.timeout.ms"
                )

    async def _describe(self, transaction: PreparedTransaction) -> TransactionDescription:
        (found,) = await self._admin.describe_transactions([transaction.transactional_id])
        return found

    async def _end_all(self, entry: Entry) -> dict[PreparedTransaction, EndOutcome]:
        """An error of one keeps no other from being committed, and is raised when it stays."""

        outcomes: dict[PreparedTransaction, EndOutcome] = {}
        errors: list[ApiError] = []

        async def end(piece: Piece) -> None:
            try:
                outcomes[piece.transaction] = await self._admin.end_transaction(piece.transaction, commit=True)
            except ApiError as error:
                errors.append(error)
                return
            await self._on_step("ended")

        for _ in range(_END_ROUNDS_MAX):
            await self._each([piece for piece in entry.pieces or () if piece.transaction not in outcomes], end)
            if len(outcomes) == len(entry.listed):
                return outcomes
        raise errors[-1]

    async def _abort_transactions(self, transactions: Iterable[PreparedTransaction]) -> None:
        """What cannot be aborted now will be by the time-out, which holds up readers only."""
        wanted = sorted(transactions, key=lambda transaction: transaction.transactional_id)

        async def abort(transaction: PreparedTransaction) -> None:
            try:
                await self._admin.end_transaction(transaction, commit=False)
            except ApiError as error:
                _LOG.warning("%s was not aborted: %s", transaction.transactional_id, error)

        await self._each(wanted, abort)

    async def _open_transactions(
        self, batch: int, known: Iterable[PreparedTransaction] = ()
    ) -> list[PreparedTransaction] | None:
        """Of the batch's tasks, whoever began them, and those of `known` that are open. None if nobody can tell."""
        try:
            async with asyncio.timeout(_LISTING_TIMEOUT_S):
                listed = await self._list_ongoing(batch)
                names = sorted({*listed, *(each.transactional_id for each in known)})
                found = await self._each(names, lambda name: self._admin.describe_transactions([name]))
        except (ApiError, TimeoutError) as error:
            _LOG.warning("open transactions of %s cannot be listed: %r", self._ledger.sink, error)
            return None
        return [
            # By the newer protocol wherever the broker knows it: so the task that may still be writing is fenced.
            PreparedTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
            for (each,) in found
            if each.state == ONGOING
        ]

    async def _list_ongoing(self, batch: int) -> list[str]:
        pattern = tasks_pattern(tasks_name(self._ledger.sink, batch, is_streaming=self._is_streaming))
        try:
            found = await self._admin.list_transactions(states=[ONGOING], id_pattern=pattern)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            # Brokers before 4.1 do not filter by name.
            found = await self._admin.list_transactions(states=[ONGOING])
        return [each.transactional_id for each in found if re.match(pattern, each.transactional_id)]

    async def _each(self, things: Sequence[Thing], work: Callable[[Thing], Awaitable[Result]]) -> list[Result]:
        """In order, some at a time. All that were begun come to their end before an error is raised."""
        results: list[Result] = []
        for start in range(0, len(things), self.concurrent_requests):
            some = things[start : start + self.concurrent_requests]
            for result in await asyncio.gather(*map(work, some), return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
                results.append(result)
        return results
