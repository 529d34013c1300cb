"""The transactions of the partitions that this broker leads, whichever broker coordinates them (KIP-890).

A partition's leader has a partition added to a transaction, or verifies that it is part of it, before it writes the
first records of the transaction. If this broker coordinates the transaction, its coordinator decides in process. Else
the coordinator's broker is asked by AddPartitionsToTxn, with one entry per transactional id, and all questions of one
turn of the event loop in one request.

    no coordinator, or it moves before it has responded  COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
    an error of the connection                           that error

All of these are retriable. A response that comes late is safe: the guard that the caller has taken before is invalid if
the transaction has ended meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, TopicName, TopicPartition
from rookery.coordinators.node_queues import NO_LEADER, NodeQueues, NodeRequests, error_code, find_leader
from rookery.coordinators.runtime import ResponseFuture
from rookery.coordinators.txn.results import AddRequest, VerifiedPartitions
from rookery.coordinators.txn.service import TransactionCoordinator
from rookery.metadata.image import ClusterImage
from rookery.metadata.internal_topics import TRANSACTIONS_TOPIC
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

# The first version for brokers, with several transactions.
_BATCHES_SINCE = 4
_TRANSACTIONS_MAX = 500


class PartitionTransactions(Protocol):
    """A `TransactionCoordinator`, for the transactions that it coordinates, or `RoutedTransactions`, for all."""

    def add_partitions(self, request: AddRequest) -> ResponseFuture[VerifiedPartitions]: ...

    def verify_partitions(self, request: AddRequest) -> ResponseFuture[VerifiedPartitions]: ...


class _Question(NamedTuple):
    request: AddRequest
    verify_only: bool
    coordinator: TopicPartition
    future: "ResponseFuture[VerifiedPartitions]"

    def resolve(self, result: VerifiedPartitions | ErrorCode) -> None:
        # The connection of a producer that waited may be closed, and the future cancelled.
        if not self.future.done():
            self.future.set_result(result)


class RoutedTransactions:
    """`image` returns the newest image; `image_changed` must be called after each new one."""

    def __init__(
        self,
        local: TransactionCoordinator,
        *,
        node_id: NodeId,
        image: Callable[[], ClusterImage],
        peers: NodeRequests,
        timeout_ms: int,
    ) -> None:
        self._local = local
        self._node_id = node_id
        self._image = image
        self._peers = peers
        self._timeout_s = timeout_ms / 1000
        self._queues: NodeQueues[_Question] = NodeQueues(self._take, self._send)

    def add_partitions(self, request: AddRequest) -> ResponseFuture[VerifiedPartitions]:
        return self._ask(request, verify_only=False)

    def verify_partitions(self, request: AddRequest) -> ResponseFuture[VerifiedPartitions]:
        return self._ask(request, verify_only=True)

    def image_changed(self) -> None:
        """Resolve the questions that were sent to a former coordinator, which may never respond."""
        image = self._image()
        for node, question in self._queues.in_flight():
            if find_leader(image, question.coordinator) != node:
                question.resolve(ErrorCode.NOT_COORDINATOR)

    async def close(self) -> None:
        await self._queues.close()
        await self._peers.close()

    def _ask(self, request: AddRequest, *, verify_only: bool) -> ResponseFuture[VerifiedPartitions]:
        runtime = self._local.runtime
        index = runtime.partition_of(request.transactional_id) if runtime.partition_count else 0
        coordinator = TopicPartition(TRANSACTIONS_TOPIC, index)
        leader = find_leader(self._image(), coordinator)
        if leader == self._node_id:
            local = self._local
            return local.verify_partitions(request) if verify_only else local.add_partitions(request)
        future: ResponseFuture[VerifiedPartitions] = asyncio.get_running_loop().create_future()
        if leader is None or leader == NO_LEADER:
            future.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._queues.put(leader, _Question(request, verify_only, coordinator, future))
        return future

    def _take(self, node: NodeId, queue: deque[_Question]) -> list[_Question]:
        """Remove the questions of the next request to a node, one per transactional id: its response has one, too."""
        taken: dict[str, _Question] = {}
        left: list[_Question] = []
        while queue and len(taken) < _TRANSACTIONS_MAX:
            question = queue.popleft()
            if find_leader(self._image(), question.coordinator) != node:
                question.resolve(ErrorCode.NOT_COORDINATOR)
            elif taken.setdefault(question.request.transactional_id, question) is not question:
                left.append(question)
        queue.extendleft(reversed(left))
        return list(taken.values())

    async def _send(self, node: NodeId, questions: list[_Question]) -> None:
        results: dict[str, VerifiedPartitions] = {}
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            response = await self._peers.request(
                node,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                _request(questions),
                timeout_s=self._timeout_s,
                version_min=_BATCHES_SINCE,
            )
            top_level = error_code(response.get("error_code", ErrorCode.NONE))
            missing = missing if top_level is ErrorCode.NONE else top_level
            results = _results(response)
        except ApiError as error:
            missing = error.code
        finally:
            for question in questions:
                found = results.get(question.request.transactional_id)
                # A partition without a code must not pass for one that was added.
                is_whole = found is not None and {each for each, _ in found} >= question.request.partitions
                question.resolve(found if found is not None and is_whole else missing)


def _request(questions: Iterable[_Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                verify_only=verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in _by_topic(request.partitions).items()
                ],
            )
            for request, verify_only, _, _ in questions
        ]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, list[PartitionIndex]]:
    found: dict[TopicName, list[PartitionIndex]] = {}
    for name, index in sorted(partitions):
        found.setdefault(name, []).append(index)
    return found


def _results(response: AddPartitionsToTxnResponse) -> dict[str, VerifiedPartitions]:
    return {
        transaction.transactional_id: tuple(
            (TopicPartition(topic.name, each.partition_index), error_code(each.partition_error_code))
            for topic in transaction.topic_results
            for each in topic.results_by_partition
        )
        for transaction in response.get("results_by_transaction") or ()
    }
