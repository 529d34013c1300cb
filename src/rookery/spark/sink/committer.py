"""Carries out the plans of `commit_protocol`: reads and writes the ledger, describes and ends transactions.

The order of the steps is the protocol. The driver may die after each of them, and does so in the tests: `on_step` is
called with the name of each step. The steps of a commit are: took over, checked, written (in the middle of writing to
the ledger), decided, ended (once for each piece), listed, written, done, swept. Those of an abort are: took over,
written, abandoned, aborted, ended.

Transactions of killed tasks, of superfluous speculative copies and of dead drivers would block readers until their
time-out. They are listed before the batch is recorded as done and aborted afterwards. At that point no entry can ever
list them: as long as no newer driver has taken over, all running tasks belong to this batch or an earlier one, and if
one has taken over, the write of the entry fails. For a batch write, only transactions of its own version are listed.
Neither listing nor aborting them can fail a committed batch.
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

# Ends drivers that take a sink over from each other again and again.
_TAKE_OVERS_MAX: Final = 5
# How often the pieces are ended. The client itself retries for `default.api.timeout.ms`; one more round makes it less
# likely that a decided batch is left unfinished.
_END_ROUNDS_MAX: Final = 2
_LISTING_TIMEOUT_S: Final = 2.0
_SWEEP_INTERVAL_S: Final = 0.25
_LOG: Final = logging.getLogger(__name__)


class Committer:
    """Commits and aborts the batches of one sink.

    `is_streaming`: Spark starts a batch only when the one before is committed. `is_one_off`: the sink's name is never
    used again, so its entry is deleted at the end.
    """

    concurrent_requests: ClassVar = 32
    # Tasks of a failed job run for up to two more seconds (spark.python.task.killTimeout).
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
        """Commit the batch. Returns when all its rows are committed, by this or an earlier run.

        Raises SinkError and ApiError.
        """
        await self._with_ledger(batch, lambda: self._commit(batch, fresh))

    async def abort(self, batch: int, fresh: Sequence[Piece]) -> None:
        """Abort the batch. Decided pieces are committed; the others are aborted once the ledger lists them."""
        await self._with_ledger(batch, lambda: self._abort_batch(batch, fresh))

    async def _with_ledger(self, batch: int, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`; repeat it if another driver has taken over, because its decisions hold for this driver too."""
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
            # A skip writes no entry, and so would not notice that another driver has taken over and written a newer
            # one. Read the ledger again: the cached entry could be out of date.
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
        """Delete the entry. Errors are only logged: all rows are committed, and a caller that got an error would write
        them again."""
        try:
            await self._ledger.write(None, self._on_step)
        except (ApiError, LockedOutError) as error:
            _LOG.warning("%s: was written, but its entry remains in the ledger: %s", self._ledger.sink, error)

    async def _entry(self, batch: int) -> Entry | None:
        """Return the sink's last entry, after ending the pieces of an unfinished earlier batch write.

        The entry may then be replaced by one of this batch. If its pieces were not ended first, the decision about them
        would be lost: they would time out, and a repetition of that batch would be skipped as already written.
        """
        entry = await self._ledger.entry()
        if entry is None or self._is_streaming or not is_unsettled(entry, batch):
            return entry
        found = settled(entry, await self._end_all(entry))
        _LOG.warning(
            "%s: batch %d was unfinished: %s",
            self._ledger.sink,
            entry.batch,
            "it is committed now" if found.is_done else "the broker has aborted all of it, so it was never written",
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
        """Abort the transactions of tasks that finish only now. No later batch would abort them, because the name of
        this write is never used again."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        while loop.time() - started_s < self.late_tasks_s:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            await self._abort_transactions(await self._open_transactions(batch) or ())

    # Transactions

    async def _check_open(self, batch: int, pieces: Sequence[Piece]) -> None:
        """Raise SinkError unless all pieces are open. Deciding with a piece that was aborted would tear the batch."""
        described = await self._each(pieces, lambda piece: self._describe(piece.transaction))
        for piece, found in zip(pieces, described, strict=True):
            name = piece.transaction.transactional_id
            if found.error is ErrorCode.UNSUPPORTED_VERSION:
                raise SinkError(
                    "delivery=exactly-once needs brokers of Kafka 3.0 or newer, which describe transactions (KIP-664): "
                    f"{found.message}. delivery=at-least-once works with older brokers"
                )
            if found.error not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                found.check()
            identity = (piece.transaction.producer_id, piece.transaction.producer_epoch)
            if found.state != ONGOING or (found.producer_id, found.producer_epoch) != identity:
                raise SinkError(
                    f"batch {batch}: the transaction {name} of task {piece.partition} was aborted before the batch was "
                    f"committed (its state is {found.state or 'unknown'}). Either another driver has written the same "
                    "batch at the same time and aborted it; or the batch took longer than "
                    "kafka.transaction.timeout.ms: then raise it, and the broker's transaction.max.timeout.ms"
                )

    async def _describe(self, transaction: PreparedTransaction) -> TransactionDescription:
        (found,) = await self._admin.describe_transactions([transaction.transactional_id])
        return found

    async def _end_all(self, entry: Entry) -> dict[PreparedTransaction, EndOutcome]:
        """Commit all pieces of the entry and return the outcomes.

        An error for one piece does not stop the others; it is raised at the end if it persists.
        """

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
        """Abort transactions. Errors are logged: the time-out aborts the transaction later, and only delays readers."""
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
        """Return the open transactions of the batch's tasks, of any driver, and those of `known` that are open.

        None if they cannot be listed.
        """
        try:
            async with asyncio.timeout(_LISTING_TIMEOUT_S):
                listed = await self._list_ongoing(batch)
                names = sorted({*listed, *(each.transactional_id for each in known)})
                found = await self._each(names, lambda name: self._admin.describe_transactions([name]))
        except (ApiError, TimeoutError) as error:
            _LOG.warning("open transactions of %s cannot be listed: %r", self._ledger.sink, error)
            return None
        return [
            # is_v2 by default: where the broker supports it, the newer protocol fences a task that is still writing.
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
        """Run `work` for each thing, some concurrently; return the results in order.

        All calls that were started finish before an error is raised.
        """
        results: list[Result] = []
        for start in range(0, len(things), self.concurrent_requests):
            some = things[start : start + self.concurrent_requests]
            for result in await asyncio.gather(*map(work, some), return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
                results.append(result)
        return results
