"""The driver's half of the sink: passes Spark's commit messages to the `Committer`, in a process that Spark starts.

The process lives as long as the query and serves one batch after the other. It keeps the ledger that it has taken
over, so that a batch need not read the ledger topic first. The most recently used ledgers are kept, the others closed.
A ledger that is in use belongs to one call: a concurrent call for the same sink takes over from it, as any other driver
would. With at-least-once delivery there is nothing to commit.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from rookery.base.errors import ApiError, ConfigError
from rookery.client.sync.loop import shared_loop
from rookery.spark.options import WriteOptions
from rookery.spark.sink.committer import Committer
from rookery.spark.sink.ledger import Ledger, StepHook, no_step_hook
from rookery.spark.sink.task_writer import TaskMessage, explain_error

# Spark waits for the abort before it shows the error to the user. The error may be that no broker responds.
_ABORT_TIMEOUT_S: Final = 20
LEDGERS_MAX: Final = 16
_LOG: Final = logging.getLogger(__name__)
_Key = tuple[int, frozenset[tuple[str, str]], str, str]
# The ledgers that no call is using, the most recently used at the end.
_ledgers: Final[dict[_Key, Ledger]] = {}


class SinkDriver:
    """Commits or aborts the batches of one sink.

    `sink` is the sink's name, if the driver has it; for a stream, the messages of the tasks contain it. `is_one_off`:
    the name belongs to a single write and is never used again.
    """

    def __init__(
        self,
        options: WriteOptions,
        *,
        sink: str | None = None,
        is_streaming: bool = False,
        is_one_off: bool = False,
        on_step: StepHook = no_step_hook,
    ) -> None:
        self._options = options
        self._sink = sink
        self._is_streaming = is_streaming
        self._is_one_off = is_one_off
        self._on_step = on_step

    def commit(self, messages: Iterable[object], batch: int) -> None:
        self._run(messages, batch, commit=True)

    def abort(self, messages: Iterable[object], batch: int) -> None:
        self._run(messages, batch, commit=False)

    def _run(self, messages: Iterable[object], batch: int, *, commit: bool) -> None:
        received = [message for message in messages if isinstance(message, TaskMessage)]
        sink = received[0].sink if received else self._sink
        # Without a finished task there is nothing to commit, but killed tasks may have left transactions to abort.
        if sink is None or (commit and not received) or self._options.delivery != "exactly-once":
            return
        try:
            shared_loop().run(self._carry_out(sink, batch, received, commit=commit))
        except (ApiError, ConfigError) as error:
            raise explain_error(error, self._options) from error

    async def _carry_out(self, sink: str, batch: int, received: Iterable[TaskMessage], *, commit: bool) -> None:
        pieces = [message.piece for message in received if message.piece is not None]
        async with self._ledger(sink) as ledger:
            committer = Committer(
                ledger, is_streaming=self._is_streaming, is_one_off=self._is_one_off, on_step=self._on_step
            )
            if commit:
                await committer.commit(batch, pieces)
                return
            try:
                async with asyncio.timeout(_ABORT_TIMEOUT_S):
                    await committer.abort(batch, pieces)
            except TimeoutError:
                _LOG.warning(
                    "%s: batch %d was not aborted in time; its transactions will be aborted by their time-out",
                    sink,
                    batch,
                )

    @asynccontextmanager
    async def _ledger(self, sink: str) -> AsyncIterator[Ledger]:
        config = frozenset(self._options.client_config.items())
        key = os.getpid(), config, self._options.ledger_topic, sink
        ledger = _ledgers.pop(key, None) or Ledger(self._options.client_config, self._options.ledger_topic, sink)
        try:
            yield ledger
        finally:
            too_many = [ledger] if self._is_one_off else _keep(key, ledger)
            for each in too_many:
                await each.close()


def _keep(key: _Key, ledger: Ledger) -> list[Ledger]:
    """Keep the ledger and return those to close. Ledgers inherited from a parent process are never closed here."""
    same = _ledgers.pop(key, None)
    _ledgers[key] = ledger
    mine = [each for each in _ledgers if each[0] == os.getpid()]
    return [*([same] if same else []), *(_ledgers.pop(each) for each in mine[:-LEDGERS_MAX])]
