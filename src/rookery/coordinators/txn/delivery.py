"""Delivery of the markers of one ended transaction to all of its partitions, with retries until all have them.

A prepared transaction must be completed: consumers that read committed records wait at its first offset until the
partition has the marker. Retries therefore have no limit. They stop only when this node no longer coordinates the
transaction; the next coordinator finds it prepared in the log and delivers the markers again.
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
        # The partition has seen a later epoch of the producer, which is given out only after this transaction's end.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class Writer(Protocol):
    def write(
        self, partition: TopicPartition, marker: Marker, is_wanted: Callable[[], bool]
    ) -> "asyncio.Future[ErrorCode]":
        """Write the marker to a partition, wherever its leader is; `is_wanted` is that of the delivery."""
        ...


class Delivery:
    """Call `start` once. `is_wanted` is called before each attempt, `done` when all partitions have the marker.

    Each partition is retried separately: one whose leader does not respond delays no other.
    """

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
        self._is_fenced = False

    def start(self) -> None:
        if not self._is_wanted():
            return
        if not self._remaining:
            self._done()
        for partition in sorted(self._remaining):
            self._write(partition, _RETRY_FIRST_S)

    def _retry(self, partition: TopicPartition, retry_s: float) -> None:
        if not self._is_fenced and self._is_wanted():
            self._write(partition, retry_s)

    def _write(self, partition: TopicPartition, retry_s: float) -> None:
        def on_done(future: "asyncio.Future[ErrorCode]") -> None:
            if not future.cancelled():
                self._on_result(partition, future.result(), retry_s)

        written = self._writer.write(partition, self._marker, self._is_wanted)
        if written.done():
            on_done(written)
        else:
            written.add_done_callback(on_done)

    def _on_result(self, partition: TopicPartition, code: ErrorCode, retry_s: float) -> None:
        if code in _WRITTEN:
            self._remaining.discard(partition)
            if not self._remaining:
                self._done()
            return
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # The partition has a marker of a newer coordinator, which has taken over the delivery.
            logger.warning("another coordinator ends this transaction", producer_id=self._marker.producer_id)
            self._is_fenced = True
            return
        if retry_s == _RETRY_FIRST_S:
            logger.warning("transaction marker not written yet, retrying", partition=str(partition), reason=code.name)
        asyncio.get_running_loop().call_later(retry_s, self._retry, partition, min(2 * retry_s, _RETRY_LONGEST_S))
