"""Writing end markers of transactions to the partitions that this node leads.

The transaction's coordinator calls it, on this node or, by WriteTxnMarkers, from another one. The future of a marker is
done when the marker is committed. For a topic that stores a coordinator's state, that coordinator writes the marker,
because its state changes with it.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from rookery.base.clock import Clock
from rookery.base.errors import ErrorCode
from rookery.base.types import PartitionIndex, TopicName, TopicPartition
from rookery.coordinators.runtime import Replicas
from rookery.records.control import Marker
from rookery.replication.commitment import when_committed
from rookery.replication.pending import Pending


class EndsTransactions(Protocol):
    """The part of a coordinator's runtime that writes markers to its own topic."""

    def end_transaction(self, index: PartitionIndex, marker: Marker) -> "asyncio.Future[ErrorCode]": ...


class MarkerWriter:
    """`coordinators` maps the topics that store a coordinator's state to that coordinator."""

    def __init__(
        self,
        replicas: Replicas,
        pending: Pending,
        clock: Clock,
        *,
        coordinators: Mapping[TopicName, EndsTransactions],
        timeout_ms: int,
    ) -> None:
        self._replicas = replicas
        self._pending = pending
        self._clock = clock
        self._coordinators = coordinators
        self._timeout_ms = timeout_ms

    def write(self, partition: TopicPartition, marker: Marker) -> "asyncio.Future[ErrorCode]":
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            return coordinator.end_transaction(partition.partition, marker)
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        replica = self._replicas.find(partition)
        if isinstance(replica, ErrorCode):
            future.set_result(replica)
            return future
        appended = replica.append_marker(marker, now_ms=self._clock.now_ms())
        if appended.error_code is not ErrorCode.NONE:
            future.set_result(appended.error_code)
            return future
        when_committed(
            self._pending,
            replica,
            appended.end_offset,
            leader_epoch=replica.state.leader_epoch,
            timeout_ms=self._timeout_ms,
            is_wanted=lambda: self._replicas.find(partition) is replica,
            done=lambda code: None if future.done() else future.set_result(code),
        )
        return future
