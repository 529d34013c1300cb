"""A metadata log whose records are committed, or lost, when a test says so."""

import asyncio
from collections import deque
from collections.abc import Sequence

from rookery.base.errors import NotControllerError, StorageError
from rookery.base.types import Offset
from rookery.metadata.publisher import MetadataPublisher
from tests.controller.cluster import StaticVoters


class ManualLog(StaticVoters):
    """The log of the leader of `epoch`. Appended batches wait for `commit`; `lose` begins the next epoch without them.

    With `commits_at_once`, a batch is committed and published before `propose` returns.
    """

    def __init__(self, metadata: MetadataPublisher, *, commits_at_once: bool = False) -> None:
        self.epoch = 1
        self.is_broken = False
        self.commits_at_once = commits_at_once
        self.next_offset: Offset = 0
        self.committed: list[Sequence[bytes]] = []
        self._metadata = metadata
        self._pending: deque[tuple[Offset, Sequence[bytes], asyncio.Future[None]]] = deque()

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    async def propose(self, values: Sequence[bytes], *, epoch: int) -> "tuple[Offset, asyncio.Future[None]]":
        if self.is_broken:
            raise StorageError("offline")
        if epoch != self.epoch:
            raise NotControllerError
        published: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((self.next_offset, values, published))
        self.next_offset += len(values)
        last_offset = self.next_offset - 1
        if self.commits_at_once:
            await self.commit()
        return last_offset, published

    async def commit(self) -> None:
        """Commit and publish the oldest batch that is not committed."""
        base_offset, values, published = self._pending.popleft()
        self.committed.append(values)
        await self._metadata.commit(base_offset, values)
        published.set_result(None)

    def lose(self) -> None:
        """Let another leader remove what is not committed, and this node lead the epoch after."""
        self.epoch += 1
        while self._pending:
            self.next_offset, _, published = self._pending.pop()
            published.set_exception(NotControllerError())
