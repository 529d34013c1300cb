"""Partitions change hands: commit, tell the listener, change the assignment, always in this order.

Both kinds of membership use it inside `poll` and `close`. The assignment changes even if the listener raises, which it
does to its own poll: otherwise two members would read the same partitions.
"""

import asyncio
from collections.abc import Collection

from rookery.base.types import TopicPartition
from rookery.client.membership.committer import Committer
from rookery.client.membership.interfaces import AssignmentHost, GroupMetrics


class Handover:
    def __init__(self, host: AssignmentHost, committer: Committer, *, metrics: GroupMetrics | None) -> None:
        self._host = host
        self._committer = committer
        self._metrics = metrics

    async def give_up(
        self, partitions: Collection[TopicPartition], *, timeout_s: float, commit_all: bool = False
    ) -> None:
        """While we may still commit them. `commit_all`: also what is kept. The listener has its own time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        self._host.stop_fetching(partitions)
        positions = self._host.positions_to_commit()
        due = positions if commit_all else {tp: position for tp, position in positions.items() if tp in partitions}
        await self._committer.auto_commit_now(due, timeout_s=timeout_s)
        if not partitions:
            return
        try:
            await self._host.call_listener("revoked", sorted(partitions))
            # Also what the user, or the listener, committed without waiting.
            await self._committer.drain(timeout_s=max(deadline_s - loop.time(), 0))
        finally:
            self._replace(self._host.assigned() - frozenset(partitions))

    async def lose_all(self) -> None:
        """Others may read them already."""
        lost = self._host.assigned()
        if not lost:
            return
        self._host.stop_fetching(lost)
        try:
            await self._host.call_listener("lost", sorted(lost))
        finally:
            self._replace(())

    async def take(self, target: Collection[TopicPartition]) -> None:
        """From now on exactly these; the listener hears of the new ones, also if there are none."""
        new = set(target) - self._host.assigned()
        self._replace(target)
        await self._host.call_listener("assigned", sorted(new))

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        # In order: partitions are read, and asked for, in the order in which they were assigned.
        self._host.replace_assignment(sorted(partitions))
        if self._metrics is not None:
            self._metrics.assigned(len(partitions))
