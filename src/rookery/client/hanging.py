"""Finds hanging transactions: open on a partition, and no coordinator will end them (KIP-664).

A transaction that has written nothing for longer than any may last is suspect. It hangs if no transactional id has its
producer id, or the one that has it does not count the partition to its transaction. What ended while we looked is left
out.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, ProducerId, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.client.admin import Admin
from rookery.client.cluster import Cluster
from rookery.client.transactions import OpenTransaction, TransactionAdmin

# How many partitions a request asks about.
PARTITIONS_PER_REQUEST = 500

# Called with the number of partitions that were looked at since the last call.
OnProgress = Callable[[int], None]


@value_class(kw_only=True)
class Scope:
    """Where to look: everything, or what a broker, a topic, a partition narrows it down to."""

    node: NodeId | None = None
    topic: TopicName | None = None
    partition: PartitionIndex | None = None


async def partitions_in(cluster: Cluster, scope: Scope) -> list[TopicPartition]:
    """What there is to look at. Raises ApiError where the topic, the partition or the broker does not exist."""
    admin = Admin(cluster)
    topics = await (admin.list_topics() if scope.topic is None else admin.describe_topics([scope.topic]))
    for topic in topics:
        if topic.error != ErrorCode.NONE:
            raise ApiError(topic.error, f"topic {topic.name}")
    known = [(TopicPartition(topic.name, p.index), p) for topic in topics for p in topic.partitions]
    if scope.partition is not None and scope.partition not in {tp.partition for tp, _ in known}:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {scope.topic}-{scope.partition}")
    if scope.node is not None and scope.node not in cluster.metadata.brokers:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {scope.node}")
    return [
        tp
        for tp, partition in known
        if scope.partition in (None, tp.partition)
        # Without a leader there is nobody to ask, and nobody who could end a transaction.
        and (partition.leader >= 0 if scope.node is None else scope.node in partition.replicas)
    ]


class HangingSearch:
    """Asks `node`, else leaders; a transaction is suspect that has written nothing for `longer_than_ms`."""

    def __init__(self, cluster: Cluster, *, longer_than_ms: int, node: NodeId | None = None) -> None:
        self._transactions = TransactionAdmin(cluster)
        self._node = node
        self._longer_than_ms = longer_than_ms

    async def run(
        self,
        partitions: Sequence[TopicPartition],
        *,
        now_ms: TimestampMs,
        on_progress: OnProgress = lambda count: None,
    ) -> list[OpenTransaction]:
        suspects: list[OpenTransaction] = []
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            asked = partitions[start : start + PARTITIONS_PER_REQUEST]
            opened = await self._transactions.open_transactions(asked, node=self._node)
            suspects += [found for found in opened if now_ms - found.producer.last_timestamp_ms > self._longer_than_ms]
            on_progress(len(asked))
        return await self._still_open(await self._unknown_to_coordinators(suspects))

    async def _unknown_to_coordinators(self, suspects: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        if not suspects:
            return []
        expected = await self._expected({suspect.producer.producer_id for suspect in suspects})
        return [
            suspect
            for suspect in suspects
            if suspect.partition not in expected.get(suspect.producer.producer_id, frozenset())
        ]

    async def _expected(self, producer_ids: Collection[ProducerId]) -> dict[ProducerId, frozenset[TopicPartition]]:
        """The partitions that coordinators will write markers to, by producer id."""
        expected: dict[ProducerId, frozenset[TopicPartition]] = {}
        for listing in await self._transactions.list_transactions(producer_ids=sorted(producer_ids)):
            try:
                description = await self._transactions.describe_transaction(listing.transactional_id)
            except ApiError as error:
                if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                raise
            expected[listing.producer_id] = frozenset(description.partitions)
        return expected

    async def _still_open(self, hanging: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        wanted = {_identity(transaction): transaction for transaction in hanging}
        partitions = sorted({transaction.partition for transaction in wanted.values()})
        if not partitions:
            return []
        opened = await self._transactions.open_transactions(partitions, node=self._node)
        return [transaction for transaction in opened if _identity(transaction) in wanted]


def _identity(transaction: OpenTransaction) -> tuple[TopicPartition, ProducerId, int | None]:
    return transaction.partition, transaction.producer.producer_id, transaction.producer.transaction_start
