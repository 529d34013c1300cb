"""Revokes and assigns partitions: commit, call the listener, change the assignment, always in this order.

Both kinds of membership use it in `poll` and `close`. The assignment changes even if the listener raises; its exception
propagates to the poll. Otherwise two members would read the same partitions.
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

    async def revoke(
        self, partitions: Collection[TopicPartition], *, timeout_s: float, commit_all: bool = False
    ) -> None:
        """Release `partitions` while this member may still commit for them.

        `commit_all` commits the positions of all assigned partitions, also of those that are kept. `timeout_s` bounds
        the commits, not the listener.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        # First of all: a record that a poll returned after the commit would be read again by the next owner.
        self._host.stop_fetching(partitions)
        positions = self._host.positions_to_commit()
        due = positions if commit_all else {tp: position for tp, position in positions.items() if tp in partitions}
        await self._committer.auto_commit_now(due, timeout_s=timeout_s)
        if not partitions:
            return
        try:
            await self._host.call_listener("revoked", sorted(partitions))
            # Wait also for asynchronous commits of the user and the listener: after the release they would fail, and
            # the next owner would read the records again.
            await self._committer.drain(timeout_s=max(deadline_s - loop.time(), 0))
        finally:
            self._replace(self._host.assigned() - frozenset(partitions))

    async def lose_all(self) -> None:
        """Drop the whole assignment without a commit: other members may read the partitions already."""
        lost = self._host.assigned()
        if not lost:
            return
        self._host.stop_fetching(lost)
        try:
            await self._host.call_listener("lost", sorted(lost))
        finally:
            self._replace(())

    async def assign(self, target: Collection[TopicPartition]) -> None:
        """Assign exactly `target`, and call the listener with the new partitions, also if there are none."""
        new = set(target) - self._host.assigned()
        self._replace(target)
        await self._host.call_listener("assigned", sorted(new))

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        # Sorted: partitions are fetched and returned in the order of the assignment.
        self._host.replace_assignment(sorted(partitions))
        if self._metrics is not None:
            self._metrics.assigned(len(partitions))
