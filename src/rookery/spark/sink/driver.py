"""The driver's half of the sink: from Spark's messages to the `Committer`, in the process that Spark keeps for it.

The process lives as long as the query, and serves one batch after the other: the ledger that it has taken over stays
with it, so that a batch begins with a decision and not with reading. With at-least-once delivery there is nothing to
decide.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from typing import Final

from rookery.base.errors import ApiError, ConfigError
from rookery.client.sync.loop import shared_loop
from rookery.spark.options import WriteOptions
from rookery.spark.sink.commit_protocol import Piece
from rookery.spark.sink.committing import Committer
from rookery.spark.sink.ledger import Ledger, Steps, no_steps
from rookery.spark.sink.writing import TaskMessage, explained

# Spark waits for it before it tells the user what went wrong; perhaps that no broker answers.
_ABORT_TIMEOUT_S: Final = 20
_LOG: Final = logging.getLogger(__name__)
_Key = tuple[int, frozenset[tuple[str, str]], str, str]
_ledgers: Final[dict[_Key, Ledger]] = {}


class SinkDriver:
    """`sink` is its name, where that is known here; a stream's tasks tell it. `is_forgotten`: it is the name of one
    write, which leaves nothing behind."""

    def __init__(
        self, options: WriteOptions, *, sink: str | None = None, is_forgotten: bool = False, steps: Steps = no_steps
    ) -> None:
        self._options = options
        self._sink = sink
        self._is_forgotten = is_forgotten
        self._steps = steps

    def commit(self, messages: Iterable[object], batch: int) -> None:
        self._run(messages, batch, commit=True)

    def abort(self, messages: Iterable[object], batch: int) -> None:
        self._run(messages, batch, commit=False)

    def _run(self, messages: Iterable[object], batch: int, *, commit: bool) -> None:
        received = [message for message in messages if isinstance(message, TaskMessage)]
        sink = received[0].sink if received else self._sink
        # Without a finished task there is nothing to commit; but killed ones may have left something to abort.
        if sink is None or (commit and not received) or self._options.delivery != "exactly-once":
            return
        pieces = [message.piece for message in received if message.piece is not None]
        try:
            shared_loop().run(self._carry_out(sink, batch, pieces, commit=commit))
        except (ApiError, ConfigError) as error:
            raise explained(error, self._options) from error

    async def _carry_out(self, sink: str, batch: int, pieces: Sequence[Piece], *, commit: bool) -> None:
        ledger = self._ledger(sink)
        committer = Committer(ledger, is_forgotten=self._is_forgotten, steps=self._steps)
        try:
            if commit:
                await committer.commit(batch, pieces)
            else:
                async with asyncio.timeout(_ABORT_TIMEOUT_S):
                    await committer.abort(batch, pieces)
        except TimeoutError:
            _LOG.warning("%s: batch %d was not aborted in time; its transactions will be by theirs", sink, batch)
        finally:
            if self._is_forgotten:
                _ledgers.pop(self._key(sink), None)
                await ledger.close()

    def _key(self, sink: str) -> _Key:
        config = frozenset(self._options.client_config.items())
        return os.getpid(), config, self._options.ledger_topic, sink

    def _ledger(self, sink: str) -> Ledger:
        key = self._key(sink)
        if key not in _ledgers:
            _ledgers[key] = Ledger(self._options.client_config, self._options.ledger_topic, sink)
        return _ledgers[key]
