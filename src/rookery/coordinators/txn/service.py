"""The transaction coordinator's interface to the request handlers; it also allocates producer ids and delivers markers.

The methods return futures, which are already done if there is nothing to wait for. Their result is an ErrorCode if this
node has no active shard for the transactional id.

After EndTxn, the shard decides PREPARE_COMMIT or PREPARE_ABORT. Once that record is committed the outcome is fixed: the
client gets its response and the markers are delivered. When all partitions have theirs, the shard writes
COMPLETE_COMMIT or COMPLETE_ABORT. If this is interrupted, it continues when the shard is loaded again, here or on
another node.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeAlias

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, ProducerId, TimestampMs
from rookery.coordinators.result import CoordinatorResult
from rookery.coordinators.runtime import Coordinator, Replicas, ResponseFuture
from rookery.coordinators.txn.delivery import Delivery, Writer
from rookery.coordinators.txn.results import (
    AddRequest,
    DescribedTransaction,
    EndRequest,
    EndResult,
    InitRequest,
    InitResult,
    ListedTransaction,
    ListFilters,
    NeedsProducerId,
    SendMarkers,
    VerifiedPartitions,
)
from rookery.coordinators.txn.settings import TransactionSettings
from rookery.coordinators.txn.shard import TransactionShard
from rookery.metadata.features import TRANSACTION_VERSION
from rookery.metadata.image import EMPTY_IMAGE, ClusterImage, Delta
from rookery.metadata.internal_topics import TRANSACTIONS_TOPIC
from rookery.records.control import Marker
from rookery.replication.pending import Pending

_COMPLETE_RETRY_S = 1.0


Decide: TypeAlias = Callable[[TransactionShard, TimestampMs, ProducerId | None], CoordinatorResult[Any]]


class TransactionCoordinator:
    """`take_producer_id` returns a producer id that was never used, or an error."""

    def __init__(
        self,
        config: BrokerLayers,
        *,
        node_id: NodeId,
        replicas: Replicas,
        pending: Pending,
        clock: Clock,
        markers: Writer,
        take_producer_id: Callable[[], Awaitable[tuple[ErrorCode, ProducerId]]],
        executor: Executor | None = None,
    ) -> None:
        settings = TransactionSettings.of(config)
        self._clock = clock
        self._markers = markers
        self._take_producer_id = take_producer_id
        self._image = EMPTY_IMAGE
        self.runtime: Coordinator[TransactionShard] = Coordinator(
            TRANSACTIONS_TOPIC,
            node_id=node_id,
            make_shard=lambda _: TransactionShard(settings, transaction_version=self._transaction_version),
            replicas=replicas,
            pending=pending,
            clock=clock,
            commit_timeout_ms=config.integer("request.timeout.ms"),
            load_bytes=config.integer("transaction.state.log.load.buffer.size"),
            on_committed=self._deliver,
            executor=executor,
        )

    def _transaction_version(self) -> int:
        return self._image.feature_level(TRANSACTION_VERSION)

    def start(self, image: ClusterImage) -> None:
        """Load the partitions that this node leads; their replicas must exist."""
        self._image = image
        self.runtime.apply(image)

    def apply(self, image: ClusterImage, _: Delta) -> None:
        self.start(image)

    async def close(self) -> None:
        await self.runtime.close()

    def init_producer_id(self, request: InitRequest) -> ResponseFuture[InitResult]:
        def decide(shard: TransactionShard, now_ms: TimestampMs, new_id: ProducerId | None) -> CoordinatorResult[Any]:
            return shard.init(request, now_ms, new_producer_id=new_id)

        future = self._decide(request.transactional_id, decide)
        if _is_concurrent(future):
            # The conflicting transaction may have ended within the call: on a single node, one that this request has
            # aborted is completed already.
            future = self._decide(request.transactional_id, decide)
        return future

    def add_partitions(self, request: AddRequest) -> ResponseFuture[VerifiedPartitions]:
        """Add all partitions, or none; the result is one code for all of them."""
        return self.runtime.write(request.transactional_id, lambda shard, now_ms: shard.add_partitions(request, now_ms))

    def verify_partitions(self, request: AddRequest) -> ResponseFuture[VerifiedPartitions]:
        return self.runtime.read(request.transactional_id, lambda shard: shard.verify_partitions(request))

    def end(self, request: EndRequest) -> ResponseFuture[EndResult]:
        return self._decide(
            request.transactional_id,
            lambda shard, now_ms, new_id: shard.end(request, now_ms, new_producer_id=new_id),
        )

    def describe(self, transactional_id: str) -> ResponseFuture[DescribedTransaction]:
        return self.runtime.read(transactional_id, lambda shard: shard.describe(transactional_id))

    def list(self, filters: ListFilters) -> list[ListedTransaction] | ErrorCode:
        shards, now_ms = self.runtime.read_all(), self._clock.now_ms()
        return (
            shards
            if isinstance(shards, ErrorCode)
            else [found for shard in shards for found in shard.list(filters, now_ms)]
        )

    def _decide(self, transactional_id: str, decide: Decide) -> ResponseFuture[Any]:
        """Run a decision without a new producer id first: it rarely needs one."""
        future = self.runtime.write(transactional_id, lambda shard, now_ms: decide(shard, now_ms, None))
        if future.done() and not isinstance(future.result(), NeedsProducerId):
            return future
        return asyncio.ensure_future(self._decide_with_id(transactional_id, decide, future))

    async def _decide_with_id(self, transactional_id: str, decide: Decide, first: ResponseFuture[Any]) -> Any:
        response = await first
        if not isinstance(response, NeedsProducerId):
            return response
        code, new_id = await self._take_producer_id()
        if code is not ErrorCode.NONE:
            return code
        return await self.runtime.write(transactional_id, lambda shard, now_ms: decide(shard, now_ms, new_id))

    # Delivery of markers

    def _deliver(self, ended: SendMarkers, coordinator_epoch: LeaderEpoch) -> None:
        marker = Marker(
            ended.producer_id,
            ended.producer_epoch,
            ended.committed,
            coordinator_epoch,
            transaction_version=ended.client_version,
        )
        Delivery(
            self._markers,
            marker,
            ended.partitions,
            is_wanted=lambda: self.runtime.leads(ended.transactional_id, coordinator_epoch),
            done=lambda: self._complete(ended),
        ).start()

    def _complete(self, ended: SendMarkers) -> None:
        def on_done(future: ResponseFuture[ErrorCode]) -> None:
            # NOT_COORDINATOR: the next coordinator finds the prepared transaction in the log and completes it.
            if not future.cancelled() and future.result() not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                asyncio.get_running_loop().call_later(_COMPLETE_RETRY_S, self._complete, ended)

        future = self.runtime.write(
            ended.transactional_id,
            lambda shard, now_ms: shard.complete(ended, now_ms),
        )
        if future.done():
            on_done(future)
        else:
            future.add_done_callback(on_done)


def _is_concurrent(future: ResponseFuture[InitResult]) -> bool:
    if not future.done():
        return False
    result = future.result()
    return not isinstance(result, ErrorCode) and result.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
