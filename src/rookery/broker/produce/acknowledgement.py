"""The appends of a Produce request that are not acknowledged yet, and the response that waits for them.

With `acks=all` an append is acknowledged when the high watermark has passed it, with `acks=1` when it is written, or
synced where `flush.messages` requests it. With one replica and no fsync, both are true before the append returns, and
nothing here is called.
"""

import asyncio
from collections.abc import Callable, Iterator, Set
from typing import Final, NamedTuple

from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, Offset, TopicPartition
from rookery.broker.delayed_response import delay_response
from rookery.net.send import Reply
from rookery.protocol.produce import ProducePartitionResult
from rookery.replication.manager import ReplicaManager
from rookery.replication.pending import Pending
from rookery.replication.replica import ACKS_ALL, Replica

_OK: Final = ErrorCode.NONE


class Unacknowledged(NamedTuple):
    """One append, the leader epoch that it was made in, and the place of its result: `results[slot]`."""

    partition: TopicPartition
    replica: Replica
    leader_epoch: LeaderEpoch
    end_offset: Offset
    results: list[ProducePartitionResult]
    slot: int


class Acknowledgements:
    """The appends of one request whose acknowledgement its response waits for."""

    __slots__ = ("_acks", "_replicas", "_waiting")

    def __init__(self, replicas: ReplicaManager, acks: int) -> None:
        self._replicas = replicas
        self._acks = acks
        self._waiting: list[Unacknowledged] = []

    def expect(
        self,
        partition: TopicPartition,
        replica: Replica,
        end_offset: Offset,
        results: list[ProducePartitionResult],
        slot: int,
    ) -> None:
        """Wait for an append that was made just now, in the current leader epoch."""
        epoch = replica.state.leader_epoch
        self._waiting.append(Unacknowledged(partition, replica, epoch, end_offset, results, slot))

    def are_settled(self, changed: Set[TopicPartition] = frozenset()) -> bool:
        """Return whether every append is acknowledged or has failed. `changed` are the partitions to check first."""
        # In most calls one partition has changed and its append still waits: then the others need no check.
        candidates = sorted(self._waiting, key=lambda each: each.partition not in changed)
        return all(self._outcome(each) is not None for each in candidates)

    def failures(self) -> Iterator[tuple[Unacknowledged, ErrorCode]]:
        """Yield the appends that are not acknowledged by now, with the error for their result."""
        for each in self._waiting:
            outcome = self._outcome(each)
            if outcome is not _OK:
                yield each, ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome

    def wait(self, pending: Pending, timeout_ms: int, finish: Callable[[], Reply]) -> "asyncio.Future[Reply]":
        """Return a future of `finish()`, called when all appends are settled, or after `timeout_ms`."""
        partitions = [each.partition for each in self._waiting]
        return delay_response(pending, partitions, timeout_ms=timeout_ms, is_ready=self.are_settled, finish=finish)

    def _outcome(self, waiting: Unacknowledged) -> ErrorCode | None:
        """Return NONE for an append that is acknowledged, an error for one that failed, None while it has to wait."""
        replica = self._replicas.find(waiting.partition)
        if isinstance(replica, ErrorCode):
            return replica
        # The epoch first: the offsets of a later epoch are those of other records (`Partition.still_leads`).
        if replica is not waiting.replica or not replica.state.still_leads(waiting.leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not replica.is_acknowledged(waiting.end_offset, self._acks):
            return None
        if self._acks == ACKS_ALL and not replica.had_enough_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _OK
