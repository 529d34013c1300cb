"""Carries out what `commit_protocol` decides: the ledger is read and written, transactions are looked at and ended.

The order of the steps is the protocol. After each of them the driver may die, and does so in the tests: `steps` is
called with the name of each, and does nothing otherwise. A commit comes by: took over, checked, written (in the middle
of writing to the ledger), decided, ended (once for each piece), listed, written, done, swept. An abort comes by: took
over, written, abandoned, aborted, ended.

Transactions that nobody ends would hold up readers until their time is over: of tasks that were killed, of copies that
came second, of drivers that died. They are listed before the batch is noted as done and aborted afterwards. By then no
entry can ever list them: all tasks that were running when a newer driver had not taken over belong to this batch or one
before, and if one has taken over, the note fails.
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
    Nothing,
    Piece,
    SinkError,
    plan_abort,
    plan_after_ends,
    plan_commit,
)
from rookery.spark.sink.ledger import Ledger, LockedOutError, Steps, no_steps
from rookery.spark.sink.names import tasks_pattern

Thing = TypeVar("Thing")
Result = TypeVar("Result")

# Drivers that take a sink from each other come to an end, one of them by this.
_TAKE_OVERS_MAX: Final = 5
_LOG: Final = logging.getLogger(__name__)


class Committer:
    """Of one sink. `is_forgotten`: the sink's name is never used again, so nothing is to be remembered of it."""

    requests_at_once: ClassVar = 32

    def __init__(
        self,
        ledger: Ledger,
        *,
        is_forgotten: bool = False,
        steps: Steps = no_steps,
    ) -> None:
        self._ledger = ledger
        self._is_forgotten = is_forgotten
        self._step = steps

    @property
    def _admin(self) -> Admin:
        return self._ledger.admin

    async def commit(self, batch: int, fresh: Sequence[Piece]) -> None:
        """Returns when all rows of the batch are committed, by this or an earlier run. Raises SinkError, ApiError."""
        await self._with_ledger(batch, lambda: self._commit(batch, fresh))

    async def abort(self, batch: int, fresh: Sequence[Piece]) -> None:
        """Spark gives the batch up. What is decided is committed; the rest is aborted once the ledger says so."""
        await self._with_ledger(batch, lambda: self._give_up(batch, fresh))

    async def _with_ledger(self, batch: int, work: Callable[[], Awaitable[None]]) -> None:
        """Again from the start if another driver has taken over: what it decided holds for this one, too."""
        reasons: list[str] = []
        while len(reasons) < _TAKE_OVERS_MAX:
            try:
                return await work()
            except LockedOutError as error:
                reasons.append(str(error))
            except BaseException:
                await self._ledger.let_go()
                raise
        raise SinkError(
            f"batch {batch}: other drivers write to the sink {self._ledger.sink} at the same time ({reasons[-1]})"
        )

    async def _commit(self, batch: int, fresh: Sequence[Piece]) -> None:
        plan = plan_commit(await self._ledger.entry(), batch, fresh)
        await self._step("took over")
        while isinstance(plan, Decide | Finish):
            if isinstance(plan, Decide):
                await self._check_open(batch, plan.unproven)
                await self._step("checked")
                await self._ledger.write(plan.entry, self._step)
                await self._step("decided")
            plan = plan_after_ends(plan.entry, await self._end_all(plan.entry), fresh)
        if isinstance(plan, Nothing):
            if plan.reason:
                _LOG.warning("%s", plan.reason)
            await self._abort(piece.transaction for piece in fresh)
            return
        await self._finish(plan, fresh)

    async def _finish(self, plan: Done, fresh: Sequence[Piece]) -> None:
        listed = plan.entry.listed
        left = {piece.transaction for piece in fresh} | {*await self._open_transactions()}
        await self._step("listed")
        await self._ledger.write(None if self._is_forgotten else plan.entry, self._step)
        await self._step("done")
        await self._abort(left - listed)
        await self._step("swept")

    async def _give_up(self, batch: int, fresh: Sequence[Piece]) -> None:
        entry = await self._ledger.entry()
        await self._step("took over")
        transactions = [piece.transaction for piece in fresh]
        plan = plan_abort(entry, batch, transactions, await self._open_transactions())
        if plan.entry is not None:
            await self._ledger.write(plan.entry, self._step)
            await self._step("abandoned")
        await self._abort(plan.given_up)
        await self._step("aborted")
        await self._end_all(Entry(batch=batch, pieces=plan.decided))
        if self._is_forgotten and not plan.decided:
            await self._ledger.write(None, self._step)

    # Transactions

    async def _check_open(self, batch: int, pieces: Sequence[Piece]) -> None:
        """A decision about what is lost already would tear the batch."""
        described = await self._each(pieces, lambda piece: self._describe(piece.transaction))
        for piece, found in zip(pieces, described, strict=True):
            name = piece.transaction.transactional_id
            if found.error not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                found.check()
            identity = (piece.transaction.producer_id, piece.transaction.producer_epoch)
            if found.state != ONGOING or (found.producer_id, found.producer_epoch) != identity:
                raise SinkError(
                    f"batch {batch}: the transaction {name} of task {piece.partition} was given up by the broker "
                    f"before the batch was committed (it is {found.state or 'unknown'}). If the batch took longer than "
                    "kafka.transaction.timeout.ms, raise it, and the broker's transaction.max.timeout.ms"
                )

    async def _describe(self, transaction: PreparedTransaction) -> TransactionDescription:
        (found,) = await self._admin.describe_transactions([transaction.transactional_id])
        return found

    async def _end_all(self, entry: Entry) -> dict[PreparedTransaction, EndOutcome]:
        async def end(piece: Piece) -> EndOutcome:
            outcome = await self._admin.end_transaction(piece.transaction, commit=True)
            await self._step("ended")
            return outcome

        pieces = entry.pieces or ()
        outcomes = await self._each(pieces, end)
        return {piece.transaction: outcome for piece, outcome in zip(pieces, outcomes, strict=True)}

    async def _abort(self, transactions: Iterable[PreparedTransaction]) -> None:
        """What cannot be aborted now will be by the time-out, which holds up readers only."""
        wanted = sorted(transactions, key=lambda transaction: transaction.transactional_id)

        async def abort(transaction: PreparedTransaction) -> None:
            try:
                await self._admin.end_transaction(transaction, commit=False)
            except ApiError as error:
                _LOG.warning("%s was not aborted: %s", transaction.transactional_id, error)

        await self._each(wanted, abort)

    async def _open_transactions(self) -> list[PreparedTransaction]:
        """Of this sink's tasks, whoever began them."""
        try:
            listed = await self._list_ongoing()
        except ApiError as error:
            _LOG.warning("open transactions of %s cannot be listed: %s", self._ledger.sink, error)
            return []
        found = await self._each(listed, lambda name: self._admin.describe_transactions([name]))
        return [
            # By the newer protocol wherever the broker knows it: so the task that may still be writing is fenced.
            PreparedTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
            for (each,) in found
            if each.state == ONGOING
        ]

    async def _list_ongoing(self) -> list[str]:
        pattern = tasks_pattern(self._ledger.sink)
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
        for start in range(0, len(things), self.requests_at_once):
            some = things[start : start + self.requests_at_once]
            for result in await asyncio.gather(*map(work, some), return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
                results.append(result)
        return results
