"""Elects the leaders of partitions, and moves their replicas to other brokers (KIP-460, KIP-455)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from rookery.base.codes import ElectionType
from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition, indexes_by_topic
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list, partition_rows
from rookery.client.admin.outcomes import Outcome, check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

_UNCLEAN_SINCE = 1
_FIXED_FACTOR_SINCE = 1


@value_class
class Reassignment:
    """A running move of one partition. `replicas` includes those that are added and those that will be removed."""

    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas after the move."""
        return tuple(node for node in self.replicas if node not in self.removing)


class ReplicaAdmin(AdminPart):
    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Outcome]:
        """Elect the leaders of `partitions` (None: of all) and return the outcome of each.

        A partition whose leader is the right one already has the error ELECTION_NOT_NEEDED; if `partitions` is None,
        brokers leave such partitions out. An unclean election loses the records that the new leader does not have.
        """
        wanted = None if partitions is None else as_list(partitions, "partitions")
        if election_type is not ElectionType.PREFERRED:
            await self._retry(
                partial(self._require, ApiKey.ELECT_LEADERS, _UNCLEAN_SINCE, "elects preferred leaders only")
            )
        topics = (
            None
            if wanted is None
            else [
                ElectLeadersRequestTopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in indexes_by_topic(set(wanted)).items()
            ]
        )
        request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=self._timeout_ms, election_type=election_type)
        return await self._retry(partial(self._elect_leaders, request))

    async def _elect_leaders(self, request: ElectLeadersRequest) -> dict[TopicPartition, Outcome]:
        response = await self._cluster.call_controller(ApiKey.ELECT_LEADERS, request)
        check(response.get("error_code", 0), "the election of leaders")
        found: dict[TopicPartition, Outcome] = {}
        for topic in response.replica_election_results:
            for row in topic.partition_result:
                tp = TopicPartition(topic.topic, row.partition_id)
                found[tp] = Outcome.of(str(tp), row.error_code, row.error_message)
        _raise_not_controller(found.values())
        return dict(sorted(found.items()))

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[NodeId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, Outcome]:
        """Move partitions to these replicas, the preferred leader first; None cancels a running move.

        Returns when the moves have started. A new target replaces that of a running move.
        """
        if not allow_replication_factor_change:
            await self._retry(
                partial(
                    self._require,
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                    _FIXED_FACTOR_SINCE,
                    "cannot check that the replication factor stays",
                )
            )
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[_reassignable(index, replicas[TopicPartition(topic, index)]) for index in indexes],
            )
            for topic, indexes in indexes_by_topic(replicas).items()
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=topics,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        return await self._retry(partial(self._alter_reassignments, request))

    async def _alter_reassignments(self, request: AlterPartitionReassignmentsRequest) -> dict[TopicPartition, Outcome]:
        response = await self._cluster.call_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        check(response.error_code, response.error_message or "the reassignment of partitions")
        outcomes = {
            tp: Outcome.of(str(tp), row.error_code, row.error_message) for tp, row in partition_rows(response.responses)
        }
        _raise_not_controller(outcomes.values())
        return dict(sorted(outcomes.items()))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the running moves of `partitions` (None: of all)."""
        wanted = None if partitions is None else indexes_by_topic(set(as_list(partitions, "partitions")))
        topics = (
            None
            if wanted is None
            else [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in wanted.items()
            ]
        )
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics)
        return await self._retry(partial(self._list_reassignments, request))

    async def _list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> dict[TopicPartition, Reassignment]:
        response = await self._cluster.call_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
        check(response.error_code, response.error_message or "the list of reassignments")
        found = {
            tp: Reassignment(tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas))
            for tp, row in partition_rows(response.topics)
        }
        return dict(sorted(found.items()))


def _reassignable(index: int, replicas: Sequence[NodeId] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))


def _raise_not_controller(outcomes: Iterable[Outcome]) -> None:
    """Raise NOT_CONTROLLER, which is retried, if a row has it: the controller changed during the request."""
    for outcome in outcomes:
        if outcome.error is ErrorCode.NOT_CONTROLLER:
            raise ApiError(outcome.error, outcome.message)
