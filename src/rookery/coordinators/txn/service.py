"""The transaction coordinator as handlers see it, and what it does beyond deciding: giving ids, delivering markers.

The answers are futures, done at once where nothing has to be waited for. Their result is an ErrorCode where there is
no coordinator at work for the transactional id.

The life of a transaction after EndTxn: the shard decides PREPARE_COMMIT or PREPARE_ABORT; once that record is
committed the outcome is certain, the client is answered and the markers are delivered; when all partitions have theirs,
the shard writes COMPLETE_COMMIT or COMPLETE_ABORT. Whatever is cut short goes on when the shard is loaded again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from rookery.base.clock import Clock
from rookery.base.config import BrokerLayers
from rookery.base.errors import ErrorCode
from rookery.base.types import LeaderEpoch, NodeId, ProducerId, TimestampMs
from rookery.coordinators.result import CoordinatorResult
from rookery.coordinators.runtime import Coordinator, Replicas
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

ResultT = TypeVar("ResultT")
Answer: TypeAlias = asyncio.Future[ResultT | ErrorCode]
Decide: TypeAlias = Callable[[TransactionShard, TimestampMs, ProducerId | None], CoordinatorResult[Any]]


class TransactionCoordinator:
    """`take_producer_id` gives a producer id that nobody has had, or an error."""

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
        )

    def _transaction_version(self) -> int:
        return self._image.feature_level(TRANSACTION_VERSION)

    def start(self, image: ClusterImage) -> None:
        """Load what this node leads; the replicas must be there."""
        self._image = image
        self.runtime.apply(image)

    def apply(self, image: ClusterImage, _: Delta) -> None:
        self.start(image)

    async def close(self) -> None:
        await self.runtime.close()

    def init_producer_id(self, request: InitRequest) -> Answer[InitResult]:
        def decide(shard: TransactionShard, now_ms: TimestampMs, new_id: ProducerId | None) -> CoordinatorResult[Any]:
            return shard.init(request, now_ms, new_producer_id=new_id)

        answer = self._decide(request.transactional_id, decide)
        if _is_concurrent(answer):
            # What stood in the way may be over already, as when the new instance has just fenced the old one.
            answer = self._decide(request.transactional_id, decide)
        return answer

    def add_partitions(self, request: AddRequest) -> Answer[ErrorCode]:
        return self.runtime.write(request.transactional_id, lambda shard, now_ms: shard.add_partitions(request, now_ms))

    def verify_partitions(self, request: AddRequest) -> Answer[VerifiedPartitions]:
        return self.runtime.read(request.transactional_id, lambda shard: shard.verify_partitions(request))

    def end(self, request: EndRequest) -> Answer[EndResult]:
        return self._decide(
            request.transactional_id,
            lambda shard, now_ms, new_id: shard.end(request, now_ms, new_producer_id=new_id),
        )

    def describe(self, transactional_id: str) -> Answer[DescribedTransaction]:
        return self.runtime.read(transactional_id, lambda shard: shard.describe(transactional_id))

    def list(self, filters: ListFilters) -> list[ListedTransaction] | ErrorCode:
        shards, now_ms = self.runtime.read_all(), self._clock.now_ms()
        return (
            shards
            if isinstance(shards, ErrorCode)
            else [found for shard in shards for found in shard.list(filters, now_ms)]
        )

    def _decide(self, transactional_id: str, decide: Decide) -> Answer[Any]:
        """Without a new producer id where none is needed, which is nearly always."""
        answer = self.runtime.write(transactional_id, lambda shard, now_ms: decide(shard, now_ms, None))
        if answer.done() and not isinstance(answer.result(), NeedsProducerId):
            return answer
        return asyncio.ensure_future(self._decide_with_id(transactional_id, decide, answer))

    async def _decide_with_id(self, transactional_id: str, decide: Decide, first: Answer[Any]) -> Any:
        answer = await first
        if not isinstance(answer, NeedsProducerId):
            return answer
        code, new_id = await self._take_producer_id()
        if code is not ErrorCode.NONE:
            return code
        return await self.runtime.write(transactional_id, lambda shard, now_ms: decide(shard, now_ms, new_id))

    # After the end

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
        def answered(future: Answer[ErrorCode]) -> None:
            # NOT_COORDINATOR: the next one has seen in the log what is left to do.
            if not future.cancelled() and future.result() not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                asyncio.get_running_loop().call_later(_COMPLETE_RETRY_S, self._complete, ended)

        answer = self.runtime.write(
            ended.transactional_id,
            lambda shard, now_ms: shard.complete(ended, now_ms),
        )
        if answer.done():
            answered(answer)
        else:
            answer.add_done_callback(answered)


def _is_concurrent(answer: Answer[InitResult]) -> bool:
    if not answer.done():
        return False
    result = answer.result()
    return not isinstance(result, ErrorCode) and result.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
