"""Administration of transactions: list, describe, and abort what hangs, with typed results (KIP-664).

Two sides know of a transaction: its coordinator, by the transactional id, and the leader of each partition, by the
producer id of the open batches there. `list_transactions` and `describe_transaction` ask the first, and
`describe_producers` the second. A transaction hangs on a partition if only the second knows of it (`hanging` finds
those): nobody will end it, and readers of committed records wait behind it. `abort` ends it there. `fence` ends a
transaction that its coordinator knows, and locks its producer out. `cli` calls this.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby

from rookery.base.coordinator_codes import KeyType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import (
    NodeId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from rookery.base.values import value_class
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster
from rookery.client.coordinators import Coordinators
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

ONGOING = "Ongoing"
# A transaction whose markers are being written.
ENDING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
TRANSACTION_STATES = ("Empty", ONGOING, *ENDING, "CompleteCommit", "CompleteAbort", "Dead")

_NO_FILTER = -1
_DURATION_FILTER_SINCE = 1
_ID_PATTERN_SINCE = 2
# The oldest coordinator epoch there can be: for a producer whose transactions never ended here.
_FIRST_COORDINATOR_EPOCH = 0


@value_class
class TransactionListing:
    transactional_id: str
    coordinator: NodeId
    producer_id: ProducerId
    state: str


@value_class(kw_only=True)
class TransactionDescription:
    """`partitions` are those of the ongoing transaction; while it ends, those that still wait for their marker.

    `start_ms` is of the latest transaction, which may be over.
    """

    transactional_id: str
    coordinator: NodeId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    state: str
    timeout_ms: int
    start_ms: TimestampMs | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING or self.state in ENDING


@value_class(kw_only=True)
class ActiveProducer:
    """What a partition remembers of a producer; `transaction_start` is where its open transaction began."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int | None
    last_sequence: int
    last_timestamp_ms: TimestampMs
    transaction_start: Offset | None


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


class TransactionAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._coordinators = Coordinators(cluster, KeyType.TRANSACTION)

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[ProducerId] = (),
        running_longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactions of all coordinators, by transactional id; `id_pattern` is a regular expression (RE2)."""
        request = Message(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=_NO_FILTER if running_longer_than_ms is None else running_longer_than_ms,
            transactional_id_pattern=id_pattern,
        )
        version_min = 0 if running_longer_than_ms is None else _DURATION_FILTER_SINCE
        version_min = version_min if id_pattern is None else _ID_PATTERN_SINCE
        metadata = await self._cluster.retry(partial(self._cluster.refresh, topics=()))
        found: list[TransactionListing] = []
        for node in sorted(metadata.brokers):
            found += await self._cluster.retry(partial(self._list_of, node, request, version_min))
        return sorted(found, key=lambda transaction: transaction.transactional_id)

    async def _list_of(self, node: NodeId, request: Message, version_min: int) -> list[TransactionListing]:
        connection = await self._cluster.connection(node)
        if connection.version(ApiKey.LIST_TRANSACTIONS) < version_min:
            # It would answer as if nothing had been filtered.
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"broker {node} is too old for this filter")
        response = await self._cluster.call(ApiKey.LIST_TRANSACTIONS, request, node=node)
        _check(response.error_code, f"transactions of broker {node}")
        return [
            TransactionListing(row.transactional_id, node, row.producer_id, row.transaction_state)
            for row in response.transaction_states
        ]

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Raises ApiError, with TRANSACTIONAL_ID_NOT_FOUND where its coordinator does not know it."""
        response = await self._coordinators.call(
            transactional_id,
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda: Message(transactional_ids=[transactional_id]),
            codes=lambda answer: [row.error_code for row in answer.transaction_states],
        )
        row = response.transaction_states[0]
        _check(row.error_code, f"transactional id {transactional_id}")
        return _description(row, await self._coordinators.find(transactional_id))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, node: NodeId | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that partitions' leaders, or another broker with replicas, remember, by their ids."""
        if node is None:
            rows = await self._admin.ask_leaders(ApiKey.DESCRIBE_PRODUCERS, partitions, _producers_request)
        else:
            rows = await self._admin.retry(partial(self._producers_of, node, sorted(partitions)))
        for tp, row in rows.items():
            _check(row.error_code, row.error_message or f"partition {tp}")
        return {tp: _producers(row) for tp, row in rows.items()}

    async def _producers_of(self, node: NodeId, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Message]:
        if node not in self._cluster.metadata.brokers:
            await self._cluster.refresh(topics=())
        response = await self._cluster.call(ApiKey.DESCRIBE_PRODUCERS, _producers_request(partitions), node=node)
        return {
            TopicPartition(topic.name, row.partition_index): row
            for topic in response.topics
            for row in topic.partitions
        }

    async def open_transactions(
        self, partitions: Iterable[TopicPartition], *, node: NodeId | None = None
    ) -> list[OpenTransaction]:
        """Those of `describe_producers` that are in a transaction, by partition and start."""
        found = await self.describe_producers(partitions, node=node)
        opened = [OpenTransaction(tp, producer) for tp, producers in found.items() for producer in producers]
        return sorted(
            (transaction for transaction in opened if transaction.producer.transaction_start is not None),
            key=lambda transaction: (transaction.partition, transaction.producer.transaction_start),
        )

    async def abort(self, target: AbortTarget) -> None:
        """End a transaction on one partition only, whatever its coordinator knows. Raises ApiError."""
        await self._admin.retry(partial(self._abort, target))

    async def _abort(self, target: AbortTarget) -> None:
        topic = Message(name=target.partition.topic, partition_indexes=[target.partition.partition])
        marker = Message(
            producer_id=target.producer_id,
            producer_epoch=target.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=target.coordinator_epoch,
        )
        leader = await self._cluster.leader(target.partition)
        response = await self._cluster.call(ApiKey.WRITE_TXN_MARKERS, Message(markers=[marker]), node=leader)
        answer = response.markers[0].topics[0].partitions[0]
        _check(answer.error_code, f"partition {target.partition}, producer id {target.producer_id}")

    async def fence(self, transactional_id: str, *, timeout_ms: int) -> tuple[ProducerId, ProducerEpoch]:
        """Lock the producer of a transactional id out, and abort its transaction; returns when that is done.

        What comes back is the id and epoch that a next producer would be above. A transactional id that does not exist
        comes into being, with `timeout_ms`.
        """

        async def ask() -> tuple[ProducerId, ProducerEpoch]:
            response = await self._coordinators.call(
                transactional_id,
                ApiKey.INIT_PRODUCER_ID,
                lambda: Message(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms),
                codes=lambda answer: [answer.error_code],
            )
            _check(response.error_code, f"transactional id {transactional_id}")
            return response.producer_id, response.producer_epoch

        # As long as markers are being written.
        return await self._cluster.retry(ask, retriable=lambda code: code is ErrorCode.CONCURRENT_TRANSACTIONS)


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise ApiError(ErrorCode(error_code), what)


def _description(row: Message, coordinator: NodeId) -> TransactionDescription:
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


def _producers_request(partitions: Sequence[TopicPartition]) -> Message:
    by_topic = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return Message(
        topics=[Message(name=topic, partition_indexes=[tp.partition for tp in group]) for topic, group in by_topic]
    )


def _producers(row: Message) -> list[ActiveProducer]:
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
    return sorted(found, key=lambda producer: producer.producer_id)


def _known(number: int) -> int | None:
    """The protocol says -1 where there is nothing to say."""
    return number if number >= 0 else None
