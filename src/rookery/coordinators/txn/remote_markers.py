"""Routes the end markers of transactions to the leaders of their partitions, on this broker or on another one.

A partition that this broker leads gets its marker in process (`markers.MarkerWriter`). The markers for another broker
are sent by WriteTxnMarkers, those of one turn of the event loop in one request. The leader is the one of the newest
image, looked up again when the request is sent:

    the topic does not exist     UNKNOWN_TOPIC_OR_PARTITION: there is nothing to end
    the partition has no leader  the marker waits for an image in which it has one
    the leader moves meanwhile   NOT_LEADER_OR_FOLLOWER, immediately: the old leader may never respond
    an error of the connection   that error

`Delivery` retries after every error except those that end a marker. A marker may therefore be written twice, which has
no effect: the second finds no open transaction.

The coordinator that sends a marker may be deposed while the marker waits here. It is then dropped: the next coordinator
sends its own, and an older one might arrive after the producer has begun its next transaction.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, ProducerId, TopicName, TopicPartition
from rookery.coordinators.node_queues import NO_LEADER, NodeQueues, NodeRequests, error_code, find_leader
from rookery.coordinators.txn.markers import MarkerWriter
from rookery.metadata.image import ClusterImage
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from rookery.records.control import Marker

# Partitions of one request: few enough for the receiving broker to write their markers in one turn of its loop.
_PARTITIONS_MAX = 500
# The receiving broker waits up to the same `request.timeout.ms` for the commit; its response must not come too late.
_RESPONSE_MARGIN_S = 5.0


class _Routed(NamedTuple):
    partition: TopicPartition
    marker: Marker
    is_wanted: Callable[[], bool]
    future: "asyncio.Future[ErrorCode]"

    def resolve(self, code: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_result(code)


class MarkerRouter:
    """`image` returns the newest image; `image_changed` must be called after each new one.

    Without `peers` every marker is written in process: the cluster has no other broker.
    """

    def __init__(
        self,
        local: MarkerWriter,
        *,
        node_id: NodeId,
        image: Callable[[], ClusterImage],
        peers: NodeRequests | None,
        timeout_ms: int,
    ) -> None:
        self._local = local
        self._node_id = node_id
        self._image = image
        self._peers = peers
        self._timeout_s = timeout_ms / 1000 + _RESPONSE_MARGIN_S
        self._queues: NodeQueues[_Routed] = NodeQueues(self._take, self._send)
        self._without_leader: list[_Routed] = []

    def write(
        self, partition: TopicPartition, marker: Marker, is_wanted: Callable[[], bool]
    ) -> "asyncio.Future[ErrorCode]":
        """Have a marker written. The result is the code of the partition's leader, when the marker is committed.

        `is_wanted` returns False once the marker's coordinator no longer coordinates the transaction.
        """
        if self._peers is None or find_leader(self._image(), partition) == self._node_id:
            return self._local.write(partition, marker)
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._route(_Routed(partition, marker, is_wanted, future))
        return future

    def image_changed(self) -> None:
        """Route the markers again whose partition had no leader, and abandon those that were sent to a former one."""
        waiting, self._without_leader = self._without_leader, []
        for item in waiting:
            self._route(item)
        image = self._image()
        for node, item in self._queues.in_flight():
            if find_leader(image, item.partition) != node:
                item.resolve(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def close(self) -> None:
        await self._queues.close()
        if self._peers is not None:
            await self._peers.close()

    def _route(self, item: _Routed) -> None:
        leader = find_leader(self._image(), item.partition)
        if not item.is_wanted():
            item.resolve(ErrorCode.NOT_COORDINATOR)
        elif leader is None:
            item.resolve(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif leader == NO_LEADER:
            self._without_leader.append(item)
        elif leader == self._node_id:
            written = self._local.write(item.partition, item.marker)
            written.add_done_callback(lambda done: done.cancelled() or item.resolve(done.result()))
        else:
            self._queues.put(leader, item)

    def _take(self, node: NodeId, queue: deque[_Routed]) -> list[_Routed]:
        """Remove the markers of the next request to a node.

        A response has its codes by producer, so that a request has only one marker of each. Another one of the same
        producer, for its next transaction, is left for the request after it.
        """
        taken: list[_Routed] = []
        left: list[_Routed] = []
        markers: dict[ProducerId, Marker] = {}
        while queue and len(taken) < _PARTITIONS_MAX:
            item = queue.popleft()
            if not item.is_wanted() or find_leader(self._image(), item.partition) != node:
                self._route(item)
            elif markers.setdefault(item.marker.producer_id, item.marker) == item.marker:
                taken.append(item)
            else:
                left.append(item)
        queue.extendleft(reversed(left))
        return taken

    async def _send(self, node: NodeId, items: list[_Routed]) -> None:
        codes: Mapping[tuple[ProducerId, TopicName, PartitionIndex], ErrorCode] = {}
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        assert self._peers is not None, "a marker was routed to another broker"
        try:
            response = await self._peers.request(
                node, ApiKey.WRITE_TXN_MARKERS, _request(items), timeout_s=self._timeout_s
            )
            codes = _codes(response)
        except ApiError as error:
            missing = error.code
        finally:
            for item in items:
                code = codes.get((item.marker.producer_id, *item.partition), missing)
                item.resolve(_retriable(code))


def _retriable(code: ErrorCode) -> ErrorCode:
    """Return NOT_LEADER_OR_FOLLOWER for an unknown partition, else `code`.

    The other broker may not have the newest image yet. Only this broker's image says that a topic was deleted: if the
    marker counted as written, the transaction would stay open on the partition for ever.
    """
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code


def _request(items: Iterable[_Routed]) -> WriteTxnMarkersRequest:
    topics: dict[Marker, dict[TopicName, list[PartitionIndex]]] = {}
    for item in items:
        name, index = item.partition
        topics.setdefault(item.marker, {}).setdefault(name, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_name.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, by_name in topics.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[ProducerId, TopicName, PartitionIndex], ErrorCode]:
    return {
        (marker.producer_id, topic.name, result.partition_index): error_code(result.error_code)
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
