"""Finds hanging transactions: open on a partition, and no coordinator will end them (KIP-664).

A transaction without writes for longer than the maximum duration is suspect. It hangs if no transactional id has its
producer id, or if the transaction of that id does not include the partition. Transactions that end during the search
are left out.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, PartitionIndex, ProducerId, TimestampMs, TopicName, TopicPartition
from rookery.base.values import value_class
from rookery.client.admin.base import as_list
from rookery.client.admin.outcomes import check
from rookery.client.admin.topics import TopicAdmin
from rookery.client.admin.transactions import OpenTransaction, TransactionAdmin

# The maximum number of partitions in one request.
PARTITIONS_PER_REQUEST = 500

# Called with the number of partitions that were searched since the last call.
OnProgress = Callable[[int], None]


@value_class(kw_only=True)
class Scope:
    """The partitions to search: all, or only those of a broker, a topic, or one partition of a topic."""

    node: NodeId | None = None
    topic: TopicName | None = None
    partition: PartitionIndex | None = None


class HangingAdmin(TransactionAdmin, TopicAdmin):
    async def partitions_in(self, scope: Scope) -> list[TopicPartition]:
        """Return the partitions in `scope`. Raises ApiError if its topic, partition or broker does not exist."""
        topics = await (self.list_topics() if scope.topic is None else self.describe_topics([scope.topic]))
        for topic in topics:
            check(topic.error, f"topic {topic.name}")
        known = [(TopicPartition(topic.name, p.index), p) for topic in topics for p in topic.partitions]
        if scope.partition is not None and scope.partition not in {tp.partition for tp, _ in known}:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {scope.topic}-{scope.partition}")
        if scope.node is not None and scope.node not in self._cluster.metadata.brokers:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {scope.node}")
        return [
            tp
            for tp, partition in known
            if scope.partition in (None, tp.partition)
            # A partition without a leader cannot be searched, and its transactions cannot be ended.
            and (partition.leader >= 0 if scope.node is None else scope.node in partition.replicas)
        ]

    async def find_hanging_transactions(
        self,
        partitions: Sequence[TopicPartition],
        *,
        longer_than_ms: int,
        now_ms: TimestampMs,
        node: NodeId | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[OpenTransaction]:
        """Return the hanging transactions without writes for `longer_than_ms`, according to `node` or the leaders."""
        suspects: list[OpenTransaction] = []
        wanted = as_list(partitions, "partitions")
        for start in range(0, len(wanted), PARTITIONS_PER_REQUEST):
            batch = wanted[start : start + PARTITIONS_PER_REQUEST]
            opened = await self.open_transactions(batch, node=node)
            suspects += [found for found in opened if now_ms - found.producer.last_timestamp_ms > longer_than_ms]
            if on_progress is not None:
                on_progress(len(batch))
        return await self._still_open(await self._unknown_to_coordinators(suspects), node)

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
        """Return the partitions that coordinators will write markers to, by producer id."""
        listings = await self.list_transactions(producer_ids=sorted(producer_ids))
        owners = {listing.transactional_id: listing.producer_id for listing in listings}
        expected: dict[ProducerId, frozenset[TopicPartition]] = {}
        for description in await self.describe_transactions(owners):
            if description.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                expected[owners[description.transactional_id]] = frozenset(description.check().partitions)
        return expected

    async def _still_open(self, hanging: Iterable[OpenTransaction], node: NodeId | None) -> list[OpenTransaction]:
        wanted = {_identity(transaction): transaction for transaction in hanging}
        partitions = sorted({transaction.partition for transaction in wanted.values()})
        if not partitions:
            return []
        opened = await self.open_transactions(partitions, node=node)
        return [transaction for transaction in opened if _identity(transaction) in wanted]


def _identity(transaction: OpenTransaction) -> tuple[TopicPartition, ProducerId, int | None]:
    return transaction.partition, transaction.producer.producer_id, transaction.producer.transaction_start
