"""The driver's half of the sink: from Spark's messages to the `Committer`, in the process that Spark keeps for it.

The process lives as long as the query, and serves one batch after the other: the ledger that it has taken over stays
with it, so that a batch begins with a decision and not with reading. With at-least-once delivery there is nothing to
decide.
"""

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

_Key = tuple[int, frozenset[tuple[str, str]], str, str]
_ledgers: Final[dict[_Key, Ledger]] = {}


class SinkDriver:
    """`is_forgotten`: the sink has a name of its own for one write, and leaves nothing behind."""

    def __init__(self, options: WriteOptions, *, is_forgotten: bool = False, steps: Steps = no_steps) -> None:
        self._options = options
        self._is_forgotten = is_forgotten
        self._steps = steps

    def commit(self, messages: Iterable[object], batch: int) -> None:
        self._run(messages, batch, commit=True)

    def abort(self, messages: Iterable[object], batch: int) -> None:
        self._run(messages, batch, commit=False)

    def _run(self, messages: Iterable[object], batch: int, *, commit: bool) -> None:
        received = [message for message in messages if isinstance(message, TaskMessage)]
        if not received or self._options.delivery != "exactly-once":
            return
        pieces = [message.piece for message in received if message.piece is not None]
        try:
            shared_loop().run(self._carry_out(received[0].sink, batch, pieces, commit=commit))
        except (ApiError, ConfigError) as error:
            raise explained(error, self._options) from error

    async def _carry_out(self, sink: str, batch: int, pieces: Sequence[Piece], *, commit: bool) -> None:
        ledger = self._ledger(sink)
        committer = Committer(ledger, is_forgotten=self._is_forgotten, steps=self._steps)
        try:
            await (committer.commit(batch, pieces) if commit else committer.abort(batch, pieces))
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
