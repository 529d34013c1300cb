"""Delivering the markers of one ended transaction to all of its partitions, again and again until all have them.

A transaction that is prepared must be completed: whoever reads its partitions waits for it. So nothing here gives up,
but for a coordinator that has been replaced, or whose state was let go of; the next one begins anew.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.records.control import Marker

logger = structlog.get_logger(__name__)

_RETRY_FIRST_S = 0.05
_RETRY_LONGEST_S = 1.0

_WRITTEN = frozenset(
    {
        ErrorCode.NONE,
        # The topic was deleted: there is nothing left to end.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # The partition has heard of a later epoch of the producer, which begins only after this transaction's end.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class Writer(Protocol):
    def write(self, partition: TopicPartition, marker: Marker) -> "asyncio.Future[ErrorCode]": ...


class Delivery:
    """`start` it once. `is_wanted` is asked before each try; `done` is called when all partitions have the marker."""

    def __init__(
        self,
        writer: Writer,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        *,
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._marker = marker
        self._remaining = set(partitions)
        self._is_wanted = is_wanted
        self._done = done
        self._under_way = 0
        self._is_fenced = False
        self._retry_s = _RETRY_FIRST_S

    def start(self) -> None:
        if not self._is_wanted():
            return
        # One more than there are partitions, so that the end is found once, after all of them were asked.
        self._under_way = len(self._remaining) + 1
        for partition in sorted(self._remaining):
            self._write(partition)
        self._settle()

    def _write(self, partition: TopicPartition) -> None:
        def answered(future: "asyncio.Future[ErrorCode]") -> None:
            if not future.cancelled():
                self._note(partition, future.result())
                self._settle()

        answer = self._writer.write(partition, self._marker)
        if answer.done():
            answered(answer)
        else:
            answer.add_done_callback(answered)

    def _note(self, partition: TopicPartition, code: ErrorCode) -> None:
        if code in _WRITTEN:
            self._remaining.discard(partition)
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._is_fenced = True
        elif self._retry_s == _RETRY_FIRST_S:
            logger.warning("a transaction's marker must wait", partition=str(partition), reason=code.name)

    def _settle(self) -> None:
        self._under_way -= 1
        if self._under_way:
            return
        if not self._remaining:
            self._done()
        elif self._is_fenced:
            logger.warning("another coordinator ends this transaction", producer_id=self._marker.producer_id)
        else:
            asyncio.get_running_loop().call_later(self._retry_s, self.start)
            self._retry_s = min(2 * self._retry_s, _RETRY_LONGEST_S)
