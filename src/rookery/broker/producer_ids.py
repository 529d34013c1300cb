"""Producer ids for idempotent producers, taken from blocks that the controller allocates."""

import asyncio
from typing import Final

from rookery.base.errors import ErrorCode
from rookery.base.types import NO_PRODUCER_ID, NodeId, ProducerId
from rookery.metadata.controller_link import BrokerRequests
from rookery.metadata.publisher import MetadataPublisher
from rookery.metadata.requests import ProducerIdBlock

# Errors of the way to the controller, or of this broker's registration. A producer would take them for its own, and
# stop; it gets one that makes it retry instead.
_TEMPORARY: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    )
)


class ProducerIds:
    """Never returns an id twice: a block belongs to this process, and its unused ids are lost with a restart."""

    def __init__(self, controller: BrokerRequests, metadata: MetadataPublisher, *, node_id: NodeId) -> None:
        self._controller = controller
        self._metadata = metadata
        self._node_id = node_id
        self._next: ProducerId = 0
        self._end: ProducerId = 0
        # One allocation at a time: the callers that wait for it get ids of the new block.
        self._lock = asyncio.Lock()

    async def take(self) -> tuple[ErrorCode, ProducerId]:
        """Return an unused id, or the error of the allocation that was needed for it."""
        async with self._lock:
            if self._next == self._end:
                block = await self._allocate()
                code = block.outcome.code
                if code is not ErrorCode.NONE:
                    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in _TEMPORARY else code, NO_PRODUCER_ID
                self._next, self._end = block.first, block.first + block.size
            taken = self._next
            self._next += 1
            return ErrorCode.NONE, taken

    async def _allocate(self) -> ProducerIdBlock:
        broker = self._metadata.image.brokers.get(self._node_id)
        broker_epoch = broker.broker_epoch if broker is not None else -1
        return await self._controller.allocate_producer_ids(self._node_id, broker_epoch)
