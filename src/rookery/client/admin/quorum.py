"""Describes the quorum of controllers, and adds and removes voters (KIP-595, KIP-853).

Brokers forward these requests to the active controller. An admin with `bootstrap.controllers` sends them there itself.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NO_TOPIC_ID, LeaderEpoch, NodeId, Offset, TimestampMs
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list
from rookery.client.admin.outcomes import check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterRequestListener,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseReplicaState,
    RemoveRaftVoterRequest,
)

METADATA_TOPIC = "__cluster_metadata"
# Stands for an unknown directory id: of a voter of `controller.quorum.voters`, or from an old controller.
NO_DIRECTORY_ID = NO_TOPIC_ID
_UNKNOWN_MS: TimestampMs = -1


@value_class
class RaftEndpoint:
    """An address of a controller: the name of its listener, host and port."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{self.host}:{self.port}"


@value_class(kw_only=True)
class QuorumReplica:
    """A voter or an observer, as its leader sees it. A time is None if the replica never fetched, or is not reported.

    `last_caught_up_ms` is the last time at which the replica had everything that the leader had.
    """

    node_id: NodeId
    directory_id: UUID
    log_end_offset: Offset
    last_fetch_ms: TimestampMs | None
    last_caught_up_ms: TimestampMs | None


@value_class(kw_only=True)
class Quorum:
    """The quorum of the metadata log. `endpoints` are those of the voters; empty if the controller is too old."""

    leader_id: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[NodeId, tuple[RaftEndpoint, ...]]

    @property
    def log_end_offset(self) -> Offset:
        """The end of the leader's log; the high watermark if the leader is not a voter any more."""
        ends = (voter.log_end_offset for voter in self.voters if voter.node_id == self.leader_id)
        return next(ends, self.high_watermark)

    def lag(self, replica: QuorumReplica) -> int | None:
        """Return how many offsets the replica is behind the leader; None if the leader has not heard of it yet."""
        return None if replica.log_end_offset < 0 else max(0, self.log_end_offset - replica.log_end_offset)


class QuorumAdmin(AdminPart):
    async def describe_quorum(self) -> Quorum:
        """Return the state of the quorum according to its leader."""
        topic = DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        request = DescribeQuorumRequest(topics=[topic])

        async def attempt() -> Quorum:
            return _quorum(await self._cluster.call_controller(ApiKey.DESCRIBE_QUORUM, request))

        return await self._retry(attempt)

    async def add_raft_voter(
        self, node: NodeId, directory_id: UUID, endpoints: Iterable[RaftEndpoint], *, cluster_id: str | None = None
    ) -> None:
        """Make an observer a voter. It must have caught up, or the request is retried until the time-out.

        With `cluster_id`, only in that cluster. If the first response is lost, the retry may raise DUPLICATE_VOTER.
        """
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._timeout_ms,
            voter_id=node,
            voter_directory_id=directory_id,
            listeners=[
                AddRaftVoterRequestListener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                for endpoint in as_list(endpoints, "endpoints")
            ],
            ack_when_committed=True,
        )

        async def attempt() -> None:
            response = await self._cluster.call_controller(ApiKey.ADD_RAFT_VOTER, request)
            check(response.error_code, response.error_message or f"voter {node}")

        await self._retry(attempt)

    async def remove_raft_voter(self, node: NodeId, directory_id: UUID, *, cluster_id: str | None = None) -> None:
        """Remove a voter. If the first response is lost, the retry may raise VOTER_NOT_FOUND."""
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=node, voter_directory_id=directory_id)
        await self._retry(partial(self._remove_raft_voter, request))

    async def _remove_raft_voter(self, request: RemoveRaftVoterRequest) -> None:
        response = await self._cluster.call_controller(ApiKey.REMOVE_RAFT_VOTER, request)
        check(response.error_code, response.error_message or f"voter {request.voter_id}")


def _quorum(response: DescribeQuorumResponse) -> Quorum:
    check(response.error_code, response.get("error_message") or "the quorum")
    row = _partition(response)
    check(row.error_code, row.get("error_message") or "the quorum")
    return Quorum(
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        high_watermark=row.high_watermark,
        voters=_replicas(row.current_voters),
        observers=_replicas(row.observers),
        endpoints={
            node.node_id: tuple(RaftEndpoint(each.name, each.host, each.port) for each in node.listeners)
            for node in response.get("nodes", ())
        },
    )


def _partition(response: DescribeQuorumResponse) -> DescribeQuorumResponsePartitionData:
    for topic in response.topics:
        for row in topic.partitions:
            if topic.topic_name == METADATA_TOPIC and row.partition_index == 0:
                return row
    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not describe the quorum")


def _replicas(rows: Iterable[DescribeQuorumResponseReplicaState]) -> tuple[QuorumReplica, ...]:
    replicas = (
        QuorumReplica(
            node_id=row.replica_id,
            directory_id=row.get("replica_directory_id", NO_DIRECTORY_ID),
            log_end_offset=row.log_end_offset,
            last_fetch_ms=_known(row.get("last_fetch_timestamp", _UNKNOWN_MS)),
            last_caught_up_ms=_known(row.get("last_caught_up_timestamp", _UNKNOWN_MS)),
        )
        for row in rows
    )
    return tuple(sorted(replicas, key=lambda replica: (replica.node_id, replica.directory_id)))


def _known(timestamp_ms: TimestampMs) -> TimestampMs | None:
    return None if timestamp_ms < 0 else timestamp_ms
