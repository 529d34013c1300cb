"""Converts between Kafka's messages and the values of the quorum's core, in every version. Pure.

All messages are about one partition, `__cluster_metadata-0`, and have an array of topics for it. A version that lacks a
field has its default: a receiver without voter key is this node, a replica without directory id matches all. A request
that cannot be converted raises `WireError` with the error code of the response.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from rookery.base.errors import CorruptionError, ErrorCode, InvalidBatchError, RookeryError
from rookery.base.types import LeaderEpoch, NodeId, Offset
from rookery.protocol import messages
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Request, Struct
from rookery.quorum import events
from rookery.quorum.log_view import LogPosition
from rookery.quorum.messages import voters_in
from rookery.quorum.voters import NO_DIRECTORY, Endpoint, ReplicaKey
from rookery.records.batch import BatchHeader, check_batch, iterate_headers
from rookery.storage.names import METADATA_PARTITION

# Kafka's fixed id of the topic.
METADATA_TOPIC_ID: Final = UUID(int=1)
NO_NODE: Final[NodeId] = -1
_NO_POSITION = LogPosition(-1, -1)
_TOPIC, _INDEX = METADATA_PARTITION
# Version 2 is the first one with pre-votes. An older receiver would read a pre-vote as a vote.
_PRE_VOTE_VERSION_MIN = 2
# From version 12 on a fetch has the epochs that the leader compares, and a response the diverging epoch.
_FETCH_VERSION_MIN = 12

Endpoints: TypeAlias = Mapping[NodeId, Endpoint]
ListenerEndpoints: TypeAlias = Mapping[str, Endpoint]


class WireError(RookeryError):
    """A message that cannot be converted. `code` is the error code of the response to it."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Outgoing(NamedTuple):
    """A request in Kafka's form. A node that does not serve `version_min` of the API must not get it."""

    api_key: ApiKey
    message: Request[Any]
    version_min: int = 0


class FetchedRecords(NamedTuple):
    header: BatchHeader
    data: bytes


class Incoming(NamedTuple):
    """A response as the core sees it, the endpoints that it names, and the batches of a fetch."""

    response: events.Response
    endpoints: Endpoints
    batches: tuple[FetchedRecords, ...] = ()


# Requests of this node.


def encode_request(
    request: events.Request, *, cluster_id: str, my_endpoints: ListenerEndpoints, max_bytes: int
) -> Outgoing:
    match request:
        case events.VoteRequest():
            return _encode_vote(request, cluster_id)
        case events.BeginEpochRequest(epoch, leader_id, voter):
            begin = messages.BeginQuorumEpochRequestPartitionData(
                partition_index=_INDEX, leader_id=leader_id, leader_epoch=epoch, voter_directory_id=voter.directory_id
            )
            topic = messages.BeginQuorumEpochRequestTopicData(topic_name=_TOPIC, partitions=[begin])
            listeners = [
                messages.BeginQuorumEpochRequestLeaderEndpoint(name=name, host=at.host, port=at.port)
                for name, at in my_endpoints.items()
            ]
            message = messages.BeginQuorumEpochRequest(
                cluster_id=cluster_id, topics=[topic], voter_id=voter.node_id, leader_endpoints=listeners
            )
            return Outgoing(ApiKey.BEGIN_QUORUM_EPOCH, message)
        case events.EndEpochRequest():
            return _encode_end(request, cluster_id, my_endpoints)
        case events.FetchRequest():
            return _encode_fetch(request, cluster_id, max_bytes)


def _encode_vote(request: events.VoteRequest, cluster_id: str) -> Outgoing:
    vote = messages.VoteRequestPartitionData(
        partition_index=_INDEX,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.pre_vote,
    )
    topic = messages.VoteRequestTopicData(topic_name=_TOPIC, partitions=[vote])
    message = messages.VoteRequest(cluster_id=cluster_id, topics=[topic], voter_id=request.voter.node_id)
    return Outgoing(ApiKey.VOTE, message, _PRE_VOTE_VERSION_MIN if request.pre_vote else 0)


def _encode_end(request: events.EndEpochRequest, cluster_id: str, my_endpoints: ListenerEndpoints) -> Outgoing:
    candidates = [
        messages.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
        for key in request.successors
    ]
    end = messages.EndQuorumEpochRequestPartitionData(
        partition_index=_INDEX,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.node_id for key in request.successors],
        preferred_candidates=candidates,
    )
    topic = messages.EndQuorumEpochRequestTopicData(topic_name=_TOPIC, partitions=[end])
    listeners = [
        messages.EndQuorumEpochRequestLeaderEndpoint(name=name, host=at.host, port=at.port)
        for name, at in my_endpoints.items()
    ]
    message = messages.EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic], leader_endpoints=listeners)
    return Outgoing(ApiKey.END_QUORUM_EPOCH, message)


def _encode_fetch(request: events.FetchRequest, cluster_id: str, max_bytes: int) -> Outgoing:
    partition = messages.FetchPartition(
        partition=_INDEX,
        fetch_offset=request.last.offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=request.epoch,
        last_fetched_epoch=request.last.epoch,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    topic = messages.FetchTopic(topic=_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    message = messages.FetchRequest(
        replica_id=request.replica.node_id,
        replica_state=messages.FetchRequestReplicaState(replica_id=request.replica.node_id),
        max_wait_ms=request.wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[topic],
        forgotten_topics_data=[],
        cluster_id=cluster_id,
    )
    return Outgoing(ApiKey.FETCH, message, _FETCH_VERSION_MIN)


def snapshot_request(
    replica: ReplicaKey, epoch: LeaderEpoch, snapshot: LogPosition, position: int, *, cluster_id: str, max_bytes: int
) -> messages.FetchSnapshotRequest:
    """Return the request for the piece of a snapshot that begins at byte `position`."""
    partition = messages.FetchSnapshotRequestPartitionSnapshot(
        partition=_INDEX,
        current_leader_epoch=epoch,
        snapshot_id=messages.FetchSnapshotRequestSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=replica.directory_id,
    )
    topic = messages.FetchSnapshotRequestTopicSnapshot(name=_TOPIC, partitions=[partition])
    return messages.FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=replica.node_id, max_bytes=max_bytes, topics=[topic]
    )


# Responses to them.


def decode_response(request: events.Request, message: Struct) -> Incoming:
    """Convert a response; WireError if it is an error for the whole request, or invalid."""
    code = getattr(message, "error_code", ErrorCode.NONE)
    if code != ErrorCode.NONE:
        raise WireError(_code(code), f"the response has the error code {_code(code).name}")
    match request:
        case events.FetchRequest():
            return _decode_fetch_response(message)
        case events.VoteRequest():
            vote = _only_partition(message, "topics")
            response: events.Response = events.VoteResponse(
                _code(vote.error_code), vote.leader_epoch, _node(vote.leader_id), granted=vote.vote_granted
            )
        case _:
            partition = _only_partition(message, "topics")
            response = events.EpochResponse(
                _code(partition.error_code), partition.leader_epoch, _node(partition.leader_id)
            )
    return Incoming(response, _endpoints_of(message))


def _decode_fetch_response(message: Any) -> Incoming:
    partition = _only_partition(message, "responses")
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    batches = tuple(_split(partition.records or b""))
    response = events.FetchResponse(
        _code(partition.error_code),
        leader.leader_epoch,
        _node(leader.leader_id),
        partition.high_watermark,
        tuple(_as_seen(batch) for batch in batches),
        diverging=LogPosition(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        snapshot=LogPosition(snapshot.epoch, snapshot.end_offset) if snapshot.end_offset >= 0 else None,
    )
    return Incoming(response, _endpoints_of(message), batches)


def _split(records: bytes) -> Iterable[FetchedRecords]:
    """Yield the whole batches of a fetch response, each checked as one from an untrusted client."""
    # A batch with a wrong checksum would be synced and acknowledged, and end this log at the next start.
    for position, header in iterate_headers(records):
        data = records[position : position + header.size_bytes]
        try:
            check_batch(data)
        except InvalidBatchError as error:
            raise WireError(ErrorCode.CORRUPT_MESSAGE, f"a fetched batch is invalid: {error}") from error
        yield FetchedRecords(header, data)


def _as_seen(batch: FetchedRecords) -> events.FetchedBatch:
    header = batch.header
    try:
        voters = voters_in(batch.data) if header.is_control else None
    except CorruptionError as error:
        raise WireError(ErrorCode.CORRUPT_MESSAGE, f"a fetched batch is invalid: {error}") from error
    return events.FetchedBatch(header.leader_epoch, header.base_offset, header.record_count, voters)


class SnapshotPiece(NamedTuple):
    """Bytes of a snapshot from `position` on; `size` is that of the whole snapshot."""

    size: int
    position: int
    data: bytes


def decode_snapshot_response(message: messages.FetchSnapshotResponse) -> SnapshotPiece:
    if message.error_code != ErrorCode.NONE:
        raise WireError(_code(message.error_code), "the leader does not serve its snapshot")
    piece = _only_partition(message, "topics")
    if piece.error_code != ErrorCode.NONE:
        raise WireError(_code(piece.error_code), "the leader does not serve its snapshot")
    return SnapshotPiece(piece.size, piece.position, piece.unaligned_records)


# Requests of other nodes.


def decode_request(api_key: ApiKey, message: Any, *, me: ReplicaKey, cluster_id: str) -> events.Request:
    """Convert a Vote, BeginQuorumEpoch, EndQuorumEpoch or Fetch request to this node."""
    _check_cluster(message, cluster_id)
    partition = _only_partition(message, "topics", is_request=True)
    match api_key:
        case ApiKey.VOTE:
            return _decode_vote(message, partition, me)
        case ApiKey.BEGIN_QUORUM_EPOCH:
            voter = _receiver(message, partition, me)
            return events.BeginEpochRequest(partition.leader_epoch, _sender(partition.leader_id), voter)
        case ApiKey.END_QUORUM_EPOCH:
            return events.EndEpochRequest(
                partition.leader_epoch, _sender(partition.leader_id), tuple(_successors(partition))
            )
        case ApiKey.FETCH:
            return _decode_fetch(message, partition)
    raise AssertionError(f"{api_key.name} is no request of the quorum's core")


def _decode_vote(message: Any, partition: Any, me: ReplicaKey) -> events.VoteRequest:
    directory_id = partition.get("replica_directory_id", NO_DIRECTORY)
    return events.VoteRequest(
        partition.replica_epoch,
        ReplicaKey(_sender(partition.replica_id), directory_id),
        _receiver(message, partition, me),
        LogPosition(partition.last_offset_epoch, partition.last_offset),
        partition.get("pre_vote", False),
    )


def _receiver(message: Any, partition: Any, me: ReplicaKey) -> ReplicaKey:
    """Return the voter that a request is meant for; this node if the version has no such field."""
    node_id = message.get("voter_id", NO_NODE)
    return ReplicaKey(me.node_id if node_id < 0 else node_id, partition.get("voter_directory_id", NO_DIRECTORY))


def _successors(partition: Any) -> Iterable[ReplicaKey]:
    candidates = partition.get("preferred_candidates")
    if candidates is None:
        return (ReplicaKey(node_id) for node_id in partition.get("preferred_successors") or ())
    return (ReplicaKey(row.candidate_id, row.candidate_directory_id) for row in candidates)


def _decode_fetch(message: Any, partition: Any) -> events.FetchRequest:
    state = message.get("replica_state")
    node_id = message.get("replica_id", NO_NODE) if state is None else state.replica_id
    epoch, last_epoch = partition.get("current_leader_epoch", -1), partition.get("last_fetched_epoch", -1)
    if min(epoch, last_epoch, partition.fetch_offset) < 0:
        raise WireError(ErrorCode.INVALID_REQUEST, "a fetch of the metadata log needs epochs and an offset")
    return events.FetchRequest(
        epoch,
        ReplicaKey(_sender(node_id), partition.get("replica_directory_id", NO_DIRECTORY)),
        LogPosition(last_epoch, partition.fetch_offset),
        # Without the field (before KIP-1166) a fetch is not answered early because of a new high watermark.
        partition.get("high_watermark", _HIGHEST_OFFSET),
        max(0, message.max_wait_ms),
    )


_HIGHEST_OFFSET: Final[Offset] = (1 << 63) - 1


def fetch_limit(message: messages.FetchRequest) -> int:
    """Return how many bytes of records the response to a fetch may have."""
    partition = _only_partition(message, "topics", is_request=True)
    limit: int = min(message.max_bytes, partition.partition_max_bytes)
    return limit


class SnapshotRequest(NamedTuple):
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot: LogPosition
    position: int
    max_bytes: int


def decode_snapshot_request(message: messages.FetchSnapshotRequest, *, cluster_id: str) -> SnapshotRequest:
    _check_cluster(message, cluster_id)
    partition = _only_partition(message, "topics", is_request=True)
    wanted = partition.snapshot_id
    return SnapshotRequest(
        ReplicaKey(message.replica_id, partition.get("replica_directory_id", NO_DIRECTORY)),
        partition.current_leader_epoch,
        LogPosition(wanted.epoch, wanted.end_offset),
        partition.position,
        message.max_bytes,
    )


def request_endpoint(message: Any, listener: str) -> Endpoint | None:
    """Return the endpoint of the leader in BeginQuorumEpoch and EndQuorumEpoch, at `listener` if it has several."""
    found = {row.name: Endpoint(row.host, row.port) for row in message.get("leader_endpoints") or ()}
    return found.get(listener) or next(iter(found.values()), None)


# Responses to them.


def encode_response(api_key: ApiKey, response: events.Response, records: bytes, endpoints: Endpoints) -> Struct:
    """Convert a response; `endpoints` has the leader's if it is known, and `records` are those of a fetch."""
    match response:
        case events.FetchResponse():
            return _encode_fetch_response(response, records, endpoints)
        case events.VoteResponse(error, epoch, leader_id, granted):
            vote = messages.VoteResponsePartitionData(
                partition_index=_INDEX,
                error_code=error,
                leader_id=_id(leader_id),
                leader_epoch=epoch,
                vote_granted=granted,
            )
            votes = messages.VoteResponseTopicData(topic_name=_TOPIC, partitions=[vote])
            vote_nodes = [messages.VoteResponseNodeEndpoint(**row) for row in _rows(endpoints)]
            return messages.VoteResponse(error_code=ErrorCode.NONE, topics=[votes], node_endpoints=vote_nodes)
        case events.EpochResponse(error, epoch, leader_id):
            is_begin = api_key == ApiKey.BEGIN_QUORUM_EPOCH
            return (_encode_begin_response if is_begin else _encode_end_response)(error, epoch, leader_id, endpoints)


def _encode_begin_response(error: ErrorCode, epoch: LeaderEpoch, leader: NodeId | None, endpoints: Endpoints) -> Struct:
    partition = messages.BeginQuorumEpochResponsePartitionData(
        partition_index=_INDEX, error_code=error, leader_id=_id(leader), leader_epoch=epoch
    )
    topic = messages.BeginQuorumEpochResponseTopicData(topic_name=_TOPIC, partitions=[partition])
    nodes = [messages.BeginQuorumEpochResponseNodeEndpoint(**row) for row in _rows(endpoints)]
    return messages.BeginQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[topic], node_endpoints=nodes)


def _encode_end_response(error: ErrorCode, epoch: LeaderEpoch, leader: NodeId | None, endpoints: Endpoints) -> Struct:
    partition = messages.EndQuorumEpochResponsePartitionData(
        partition_index=_INDEX, error_code=error, leader_id=_id(leader), leader_epoch=epoch
    )
    topic = messages.EndQuorumEpochResponseTopicData(topic_name=_TOPIC, partitions=[partition])
    nodes = [messages.EndQuorumEpochResponseNodeEndpoint(**row) for row in _rows(endpoints)]
    return messages.EndQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[topic], node_endpoints=nodes)


def _encode_fetch_response(response: events.FetchResponse, records: bytes, endpoints: Endpoints) -> Struct:
    diverging, snapshot = response.diverging or _NO_POSITION, response.snapshot or _NO_POSITION
    partition = messages.FetchResponsePartitionData(
        partition_index=_INDEX,
        error_code=response.error,
        high_watermark=response.high_watermark,
        aborted_transactions=None,
        records=records,
        current_leader=messages.FetchResponseLeaderIdAndEpoch(
            leader_id=_id(response.leader_id), leader_epoch=response.epoch
        ),
        diverging_epoch=messages.FetchResponseEpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        snapshot_id=messages.FetchResponseSnapshotId(epoch=snapshot.epoch, end_offset=snapshot.offset),
    )
    topic = messages.FetchableTopicResponse(topic=_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    nodes = [messages.FetchResponseNodeEndpoint(**row) for row in _rows(endpoints)]
    return messages.FetchResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, session_id=0, responses=[topic], node_endpoints=nodes
    )


def snapshot_response(
    snapshot: LogPosition,
    piece: SnapshotPiece,
    *,
    error: ErrorCode = ErrorCode.NONE,
    leader_id: NodeId | None,
    epoch: LeaderEpoch,
    endpoints: Endpoints,
) -> messages.FetchSnapshotResponse:
    partition = messages.FetchSnapshotResponsePartitionSnapshot(
        index=_INDEX,
        error_code=error,
        snapshot_id=messages.FetchSnapshotResponseSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=messages.FetchSnapshotResponseLeaderIdAndEpoch(leader_id=_id(leader_id), leader_epoch=epoch),
        size=piece.size,
        position=piece.position,
        unaligned_records=piece.data,
    )
    topic = messages.FetchSnapshotResponseTopicSnapshot(name=_TOPIC, partitions=[partition])
    nodes = [messages.FetchSnapshotResponseNodeEndpoint(**row) for row in _rows(endpoints)]
    return messages.FetchSnapshotResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[topic], node_endpoints=nodes
    )


def error_response(api_key: ApiKey, code: ErrorCode) -> Struct:
    """Return the response to a request of which no part can be answered."""
    match api_key:
        case ApiKey.VOTE:
            return messages.VoteResponse(error_code=code, topics=[])
        case ApiKey.BEGIN_QUORUM_EPOCH:
            return messages.BeginQuorumEpochResponse(error_code=code, topics=[])
        case ApiKey.END_QUORUM_EPOCH:
            return messages.EndQuorumEpochResponse(error_code=code, topics=[])
        case ApiKey.FETCH_SNAPSHOT:
            return messages.FetchSnapshotResponse(throttle_time_ms=0, error_code=code, topics=[])
        case ApiKey.FETCH:
            return messages.FetchResponse(throttle_time_ms=0, error_code=code, session_id=0, responses=[])
        case ApiKey.DESCRIBE_QUORUM:
            return messages.DescribeQuorumResponse(error_code=code, error_message=None, topics=[], nodes=[])
    raise AssertionError(f"{api_key.name} is no request of the quorum")


# Parts of messages.


def _only_partition(message: Any, field: str, *, is_request: bool = False) -> Any:
    """Return the partition of a message; INVALID_REQUEST unless it is the metadata log's and the only one."""
    topics = getattr(message, field)
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise WireError(ErrorCode.INVALID_REQUEST, "the message must be about one partition")
    topic, partition = topics[0], topics[0].partitions[0]
    name = next((value for key in ("topic_name", "name", "topic") if (value := vars(topic).get(key))), None)
    is_right = name == _TOPIC if name is not None else vars(topic).get("topic_id") == METADATA_TOPIC_ID
    index = next(vars(partition)[key] for key in ("partition_index", "partition", "index") if key in vars(partition))
    if not is_right or index != _INDEX:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_request else ErrorCode.INVALID_REQUEST
        raise WireError(code, f"the message is not about {METADATA_PARTITION}")
    return partition


def _check_cluster(message: Any, cluster_id: str) -> None:
    theirs = message.get("cluster_id")
    if theirs is not None and theirs != cluster_id:
        # A node of another cluster with the same addresses could otherwise vote here, or copy this log over its own.
        raise WireError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the sender belongs to cluster {theirs}, this node to cluster {cluster_id}: check the addresses in "
            "controller.quorum.voters or controller.quorum.bootstrap.servers on both, and meta.properties",
        )


def _sender(node_id: NodeId) -> NodeId:
    if node_id < 0:
        raise WireError(ErrorCode.INVALID_REQUEST, f"{node_id} is not the id of a node")
    return node_id


def _node(node_id: NodeId) -> NodeId | None:
    return node_id if node_id >= 0 else None


def _id(node_id: NodeId | None) -> NodeId:
    return NO_NODE if node_id is None else node_id


def _code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _rows(endpoints: Endpoints) -> list[dict[str, Any]]:
    return [{"node_id": node_id, "host": at.host, "port": at.port} for node_id, at in endpoints.items()]


def _endpoints_of(message: Any) -> dict[NodeId, Endpoint]:
    return {row.node_id: Endpoint(row.host, row.port) for row in message.get("node_endpoints") or ()}
