"""Lists and describes transactions, fences producers, and aborts hanging transactions (KIP-664).

The state of a transaction is stored in two places: at its coordinator, by transactional id, and at the leader of each
partition, by the producer id of the open batches there. `list_transactions` and `describe_transactions` ask the
coordinators, `describe_producers` the leaders. A transaction hangs on a partition if only the leader has it
(`hanging_transactions` finds those): no coordinator will end it, and readers of committed records cannot read past it.
`abort_transaction` ends it there. `fence_producers` ends transactions at their coordinators, and fences their
producers. `end_transaction` ends one that its producer prepared and left open.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Self

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import (
    NodeId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    indexes_by_topic,
)
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list, partition_rows
from rookery.client.admin.outcomes import Outcome, check
from rookery.client.prepared import EndOutcome, PreparedTransaction
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponseTransactionState,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    PartitionResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

ONGOING = "Ongoing"
# A transaction whose markers are being written.
ENDING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
TRANSACTION_STATES = ("Empty", ONGOING, *ENDING, "CompleteCommit", "CompleteAbort", "Dead")

_NO_FILTER = -1
_DURATION_FILTER_SINCE = 1
_ID_PATTERN_SINCE = 2
# The lowest coordinator epoch: for a producer whose transactions never ended on this partition.
_FIRST_COORDINATOR_EPOCH = 0
TRANSACTION_TIMEOUT_MS = 60_000
# The version of EndTxn selects the protocol: version 5 means transactions v2 (KIP-890).
_END_VERSIONS = {False: 4, True: 5}
_END_OUTCOMES = {
    ErrorCode.NONE: EndOutcome.DONE,
    ErrorCode.INVALID_TXN_STATE: EndOutcome.ENDED_OTHERWISE,
    ErrorCode.PRODUCER_FENCED: EndOutcome.FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: EndOutcome.FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: EndOutcome.UNKNOWN,
}


@value_class
class TransactionListing:
    transactional_id: str
    coordinator: NodeId
    producer_id: ProducerId
    state: str


@value_class(kw_only=True)
class TransactionDescription:
    """`partitions` are those of the ongoing transaction; while it ends, those still without a marker.

    `start_ms` is the start of the latest transaction, which may have ended.
    """

    transactional_id: str
    coordinator: NodeId = -1
    producer_id: ProducerId = -1
    producer_epoch: ProducerEpoch = -1
    state: str = ""
    timeout_ms: int = -1
    start_ms: TimestampMs | None = None
    partitions: tuple[TopicPartition, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this value, or raise its error as ApiError."""
        check(self.error, self.message or f"transactional id {self.transactional_id}")
        return self

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING or self.state in ENDING


@value_class(kw_only=True)
class ActiveProducer:
    """The state of a producer on a partition; `transaction_start` is the first offset of its open transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int | None
    last_sequence: int
    last_timestamp_ms: TimestampMs
    transaction_start: Offset | None


@value_class(kw_only=True)
class PartitionProducers:
    """The producers of a partition, sorted by id, or the error of describing it."""

    partition: TopicPartition
    producers: tuple[ActiveProducer, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this value, or raise its error as ApiError."""
        check(self.error, self.message or f"partition {self.partition}")
        return self


@value_class
class OpenTransaction:
    partition: TopicPartition
    producer: ActiveProducer


@value_class(kw_only=True)
class AbortTarget:
    """The transaction of one producer on one partition."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int

    @classmethod
    def of(cls, transaction: OpenTransaction) -> "AbortTarget":
        producer = transaction.producer
        known_epoch = producer.coordinator_epoch
        return cls(
            partition=transaction.partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=_FIRST_COORDINATOR_EPOCH if known_epoch is None else known_epoch,
        )


@value_class
class FencedProducer(Outcome):
    """`name` is the transactional id; its next producer gets a higher producer id or epoch than these."""

    producer_id: ProducerId = -1
    producer_epoch: ProducerEpoch = -1


class TransactionAdmin(AdminPart):
    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[ProducerId] = (),
        running_longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactions of all coordinators, sorted by transactional id; `id_pattern` is an RE2 pattern."""
        request = ListTransactionsRequest(
            state_filters=as_list(states, "states"),
            producer_id_filters=as_list(producer_ids, "producer_ids"),
            duration_filter=_NO_FILTER if running_longer_than_ms is None else running_longer_than_ms,
            transactional_id_pattern=id_pattern,
        )
        version_min = 0 if running_longer_than_ms is None else _DURATION_FILTER_SINCE
        version_min = version_min if id_pattern is None else _ID_PATTERN_SINCE
        found = await self._call_brokers(lambda node: self._list_transactions_of(node, request, version_min))
        return sorted(found, key=lambda transaction: transaction.transactional_id)

    async def _list_transactions_of(
        self, node: NodeId, request: ListTransactionsRequest, version_min: int
    ) -> list[TransactionListing]:
        connection = await self._cluster.connection(node)
        if connection.version(ApiKey.LIST_TRANSACTIONS) < version_min:
            # It would ignore the filter and return all transactions.
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"LIST_TRANSACTIONS: broker {node} is too old for this filter"
            )
        response = await self._call(ApiKey.LIST_TRANSACTIONS, request, node=node)
        check(response.error_code, f"transactions of broker {node}")
        return [
            TransactionListing(row.transactional_id, node, row.producer_id, row.transaction_state)
            for row in response.transaction_states
        ]

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """Describe transactions in the given order; an unknown id has the error TRANSACTIONAL_ID_NOT_FOUND."""
        wanted = dict.fromkeys(as_list(transactional_ids, "transactional_ids"))
        return [await self._describe_transaction(each) for each in wanted]

    async def _describe_transaction(self, transactional_id: str) -> TransactionDescription:
        try:
            response = await self._transactions.call(
                transactional_id,
                ApiKey.DESCRIBE_TRANSACTIONS,
                lambda: DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                codes=lambda reply: [row.error_code for row in reply.transaction_states],
            )
            row = response.transaction_states[0]
            check(row.error_code, f"transactional id {transactional_id}")
            return _description(row, await self._transactions.find(transactional_id))
        except ApiError as error:
            return TransactionDescription(transactional_id=transactional_id, error=error.code, message=error.message)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, node: NodeId | None = None
    ) -> dict[TopicPartition, PartitionProducers]:
        """Return the producers of `partitions` according to their leaders, or to a `node` with replicas."""
        wanted = as_list(partitions, "partitions")
        if node is None:
            rows = await self._call_leaders(
                ApiKey.DESCRIBE_PRODUCERS,
                wanted,
                _producers_request,
                rows=lambda response: partition_rows(response.topics),
                failed=lambda tp, error: PartitionResponse(
                    partition_index=tp.partition,
                    error_code=error.code,
                    error_message=error.message,
                    active_producers=[],
                ),
            )
        else:
            request = _producers_request(wanted)
            response = await self._retry(partial(self._call, ApiKey.DESCRIBE_PRODUCERS, request, node=node))
            rows = dict(partition_rows(response.topics))
        return {tp: _producers(tp, row) for tp, row in rows.items()}

    async def open_transactions(
        self, partitions: Iterable[TopicPartition], *, node: NodeId | None = None
    ) -> list[OpenTransaction]:
        """Return the producers with an open transaction, sorted by partition and start. Raises ApiError."""
        found = await self.describe_producers(partitions, node=node)
        opened = [OpenTransaction(tp, producer) for tp, row in found.items() for producer in row.check().producers]
        return sorted(
            (transaction for transaction in opened if transaction.producer.transaction_start is not None),
            key=lambda transaction: (transaction.partition, transaction.producer.transaction_start),
        )

    async def abort_transaction(self, target: AbortTarget) -> None:
        """Abort a transaction on one partition only, without its coordinator. Raises ApiError."""
        await self._retry(partial(self._abort, target))

    async def _abort(self, target: AbortTarget) -> None:
        topic = WritableTxnMarkerTopic(name=target.partition.topic, partition_indexes=[target.partition.partition])
        marker = WritableTxnMarker(
            producer_id=target.producer_id,
            producer_epoch=target.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=target.coordinator_epoch,
        )
        leader = await self._cluster.leader(target.partition)
        response = await self._cluster.call(
            ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]), node=leader
        )
        row = response.markers[0].topics[0].partitions[0]
        check(row.error_code, f"partition {target.partition}, producer id {target.producer_id}")

    async def end_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> EndOutcome:
        """Commit or abort a prepared transaction. Idempotent: may be repeated, also after a lost response.

        Returns when the outcome is certain; readers see it soon after. Raises ApiError if the outcome is unknown.
        """
        request = EndTxnRequest(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            committed=commit,
        )
        return await self._cluster.retry(partial(self._end, prepared, request), retriable=_is_being_ended)

    async def _end(self, prepared: PreparedTransaction, request: EndTxnRequest) -> EndOutcome:
        version = _END_VERSIONS[prepared.is_v2]
        response = await self._transactions.call(
            prepared.transactional_id,
            ApiKey.END_TXN,
            lambda: request,
            codes=lambda reply: [reply.error_code],
            version_max=version,
        )
        code = ErrorCode(response.error_code)
        if code not in _END_OUTCOMES:
            check(code, f"transactional id {prepared.transactional_id}")
        return _END_OUTCOMES[code]

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> list[FencedProducer]:
        """Fence the producers of transactional ids, abort their transactions, and wait for the end of those.

        A transactional id that does not exist is created. `timeout_ms` becomes its transaction time-out.
        """
        wanted = dict.fromkeys(as_list(transactional_ids, "transactional_ids"))
        return [await self._fence(each, timeout_ms) for each in wanted]

    async def _fence(self, transactional_id: str, timeout_ms: int) -> FencedProducer:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        async def attempt() -> FencedProducer:
            response = await self._transactions.call(
                transactional_id, ApiKey.INIT_PRODUCER_ID, lambda: request, codes=lambda reply: [reply.error_code]
            )
            check(response.error_code, f"transactional id {transactional_id}")
            return FencedProducer(
                transactional_id, producer_id=response.producer_id, producer_epoch=response.producer_epoch
            )

        try:
            # Retry while markers are being written.
            return await self._cluster.retry(attempt, retriable=lambda code: code is ErrorCode.CONCURRENT_TRANSACTIONS)
        except ApiError as error:
            return FencedProducer(transactional_id, error.code, error.message)


def _is_being_ended(code: ErrorCode) -> bool:
    """Return whether the outcome is decided, and its markers are being written."""
    return code is ErrorCode.CONCURRENT_TRANSACTIONS


def _description(row: DescribeTransactionsResponseTransactionState, coordinator: NodeId) -> TransactionDescription:
    partitions = (TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions)
    return TransactionDescription(
        transactional_id=row.transactional_id,
        coordinator=coordinator,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        state=row.transaction_state,
        timeout_ms=row.transaction_timeout_ms,
        start_ms=_known(row.transaction_start_time_ms),
        partitions=tuple(sorted(partitions)),
    )


def _producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    topics = [
        DescribeProducersRequestTopicRequest(name=topic, partition_indexes=indexes)
        for topic, indexes in indexes_by_topic(partitions).items()
    ]
    return DescribeProducersRequest(topics=topics)


def _producers(tp: TopicPartition, row: PartitionResponse) -> PartitionProducers:
    found = (
        ActiveProducer(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=_known(producer.coordinator_epoch),
            last_sequence=producer.last_sequence,
            last_timestamp_ms=producer.last_timestamp,
            transaction_start=_known(producer.current_txn_start_offset),
        )
        for producer in row.active_producers
    )
    return PartitionProducers(
        partition=tp,
        producers=tuple(sorted(found, key=lambda producer: producer.producer_id)),
        error=ErrorCode(row.error_code),
        message=row.error_message,
    )


def _known(number: int) -> int | None:
    """Return None for -1, which stands for no value in the protocol."""
    return number if number >= 0 else None
