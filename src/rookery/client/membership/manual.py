"""Partitions that the user assigned, in a consumer with a group.id: it joins nothing and commits like a member."""

import asyncio

from rookery.client.membership.committer import Committer
from rookery.client.membership.interfaces import AssignmentHost, ConsumerGroupMetadata
from rookery.client.membership.settings import GroupSettings


class ManualMembership:
    def __init__(self, settings: GroupSettings, *, host: AssignmentHost, committer: Committer) -> None:
        self.wake = asyncio.Event()
        self.group_metadata = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        self._host = host
        self._committer = committer

    async def poll(self) -> None:
        self.wake.clear()
        self._committer.auto_commit_when_due(self._host.positions_to_commit)

    def note_poll(self) -> None:
        return

    def request_rejoin(self, reason: str) -> None:
        return

    async def close(self, *, timeout_s: float) -> None:
        await self._committer.auto_commit_now(self._host.positions_to_commit(), timeout_s=timeout_s)
        self._host.replace_assignment(())
