"""Requests to other nodes, sent in batches: the items for one node wait in a queue until they are sent together.

All items of one turn of the event loop go into one request. A node that is slow to respond gets a bounded number of
requests; the items that arrive meanwhile form the next one, so that batches grow with the load.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, Protocol, TypeVar

from rookery.base.errors import ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.metadata.image import ClusterImage
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, ResponseT

NO_LEADER: NodeId = -1

_IN_FLIGHT_MAX = 5

ItemT = TypeVar("ItemT")


class NodeRequests(Protocol):
    """The part of `net.peers.Peers` that coordinators use."""

    async def request(
        self, node: NodeId, api_key: ApiKey, request: Request[ResponseT], *, timeout_s: float, version_min: int = 0
    ) -> ResponseT: ...

    async def close(self) -> None: ...


class NodeQueues(Generic[ItemT]):
    """The queues of items by node.

    `take(node, queue)` removes the items of the next request from the queue, at least one unless it is empty. An item
    that it removes and does not return is not sent. `send(node, items)` sends the request and resolves the items; it
    raises nothing.
    """

    def __init__(
        self,
        take: Callable[[NodeId, deque[ItemT]], list[ItemT]],
        send: Callable[[NodeId, list[ItemT]], Awaitable[None]],
    ) -> None:
        self._take = take
        self._send = send
        # A node has a queue while items wait for it; a call of `_flush` is then due.
        self._queues: dict[NodeId, deque[ItemT]] = {}
        self._sent: dict[asyncio.Task[None], tuple[NodeId, list[ItemT]]] = {}
        self._in_flight: Counter[NodeId] = Counter()

    def put(self, node: NodeId, item: ItemT) -> None:
        queue = self._queues.get(node)
        if queue is None:
            queue = self._queues[node] = deque()
            asyncio.get_running_loop().call_soon(self._flush, node)
        queue.append(item)

    def in_flight(self) -> Iterator[tuple[NodeId, ItemT]]:
        """Iterate over the items that were sent and are not resolved by a response yet."""
        for node, items in list(self._sent.values()):
            for item in items:
                yield node, item

    async def close(self) -> None:
        """Cancel the requests in flight. Items that are still queued are never sent."""
        self._queues.clear()
        tasks = list(self._sent)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _flush(self, node: NodeId) -> None:
        queue = self._queues.get(node)
        while queue and self._in_flight[node] < _IN_FLIGHT_MAX:
            items = self._take(node, queue)
            if items:
                task = asyncio.ensure_future(self._send(node, items))
                self._sent[task] = node, items
                self._in_flight[node] += 1
                task.add_done_callback(self._on_sent)
        # A queue that is left waits for a request in flight, whose end calls this again.
        if not queue:
            self._queues.pop(node, None)

    def _on_sent(self, task: "asyncio.Task[None]") -> None:
        node, _ = self._sent.pop(task)
        self._in_flight[node] -= 1
        self._flush(node)
        if not task.cancelled():
            task.result()


def find_leader(image: ClusterImage, partition: TopicPartition) -> NodeId | None:
    """Return the leader of a partition; `NO_LEADER` while it has none, None if the partition does not exist."""
    topic = image.topics.get(partition.topic)
    found = None if topic is None else topic.partitions.get(partition.partition)
    return None if found is None else found.leader


def error_code(code: int) -> ErrorCode:
    """Return the error code of another node's response; UNKNOWN_SERVER_ERROR if a newer version has defined it."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
