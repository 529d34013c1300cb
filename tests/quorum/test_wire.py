"""Every message of the quorum survives a round trip through Kafka's bytes, in every version that can carry it."""

from typing import Any
from uuid import UUID

import pytest

from rookery.base.errors import ErrorCode
from rookery.protocol.api import DEFINED, ApiKey
from rookery.protocol.codec import decode_request, decode_response, encode_request, encode_response
from rookery.quorum import events, wire
from rookery.quorum.log_view import LogPosition
from rookery.quorum.voters import NO_DIRECTORY, Endpoint, ReplicaKey
from rookery.quorum.wire import SnapshotPiece, WireError
from rookery.records.record import Record, build_batch

ME = ReplicaKey(1, UUID(int=11))
OTHER = ReplicaKey(2, UUID(int=22))
CLUSTER_ID = "this"
ENDPOINTS = {2: Endpoint("two", 9093)}
REQUESTS = (
    events.VoteRequest(5, OTHER, ME, LogPosition(4, 100), pre_vote=False),
    events.VoteRequest(5, OTHER, ME, LogPosition(5, 100), pre_vote=True),
    events.BeginEpochRequest(5, 2, ME),
    events.EndEpochRequest(5, 2, (ME, ReplicaKey(3, UUID(int=33)))),
    events.FetchRequest(5, OTHER, LogPosition(4, 100), 90, 500),
)
BATCH = bytes(build_batch([Record(100, 1, None, b"value")], base_offset=100, leader_epoch=4))
FETCH = events.FetchResponse(ErrorCode.NONE, 5, 2, 90)


def versions_of(outgoing: wire.Outgoing) -> range:
    defined = DEFINED[outgoing.api_key]
    return range(max(defined.minimum, outgoing.version_min), defined.maximum + 1)


def sent(request: events.Request) -> wire.Outgoing:
    return wire.encode_request(
        request, cluster_id=CLUSTER_ID, my_endpoints={"CONTROLLER": Endpoint("two", 9093)}, max_bytes=1000
    )


def received(outgoing: wire.Outgoing, version: int, *, cluster_id: str = CLUSTER_ID) -> events.Request:
    data = encode_request(outgoing.api_key, version, outgoing.message)
    message = decode_request(outgoing.api_key, version, data)
    return wire.decode_request(outgoing.api_key, message, me=ME, cluster_id=cluster_id)


def without_directories(request: Any) -> Any:
    """What is left of a request in versions before KIP-853."""
    changes: dict[str, Any] = {}
    for name, value in request._asdict().items():
        if isinstance(value, ReplicaKey):
            changes[name] = ReplicaKey(value.node_id)
        elif name == "successors":
            changes[name] = tuple(ReplicaKey(key.node_id) for key in value)
    return request._replace(**changes)


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests_in_every_version(request_: events.Request) -> None:
    outgoing = sent(request_)
    for version in versions_of(outgoing):
        found: Any = received(outgoing, version)
        if isinstance(request_, events.FetchRequest) and version < 18:
            assert found.high_watermark > request_.high_watermark, "not answered early"
            found = found._replace(high_watermark=request_.high_watermark)
        assert found == request_ or found == without_directories(request_)
    assert found == request_, "the newest version has everything"


def test_a_pre_vote_is_not_sent_to_a_node_that_would_take_it_for_a_vote() -> None:
    assert sent(REQUESTS[0]).version_min == 0
    assert sent(REQUESTS[1]).version_min == 2


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_of_another_cluster_or_partition_is_refused(request_: events.Request) -> None:
    outgoing = sent(request_)
    version = DEFINED[outgoing.api_key].maximum
    with pytest.raises(WireError, match="cluster this, this node to cluster other") as refused:
        received(outgoing, version, cluster_id="other")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    message: Any = outgoing.message
    for topic in message.topics:
        topic.topic_name, topic.topic_id = "orders", UUID(int=7)
    with pytest.raises(WireError) as refused:
        received(outgoing, version)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message.topics = []
    with pytest.raises(WireError) as refused:
        received(outgoing, version)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_endpoint_of_a_leader_that_announces_itself() -> None:
    for request in REQUESTS[2:4]:
        outgoing = sent(request)
        for version in versions_of(outgoing):
            data = encode_request(outgoing.api_key, version, outgoing.message)
            message = decode_request(outgoing.api_key, version, data)
            expected = Endpoint("two", 9093) if version > 0 else None
            assert wire.request_endpoint(message, "CONTROLLER") == expected


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (REQUESTS[0], events.VoteResponse(ErrorCode.NONE, 5, 2, granted=True)),
        (REQUESTS[1], events.VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 6, None)),
        (REQUESTS[2], events.EpochResponse(ErrorCode.NONE, 5, 2)),
        (REQUESTS[3], events.EpochResponse(ErrorCode.INVALID_VOTER_KEY, 5, 2)),
        (REQUESTS[4], FETCH._replace(batches=(events.FetchedBatch(4, 100, 1),))),
        (REQUESTS[4], FETCH._replace(diverging=LogPosition(3, 50))),
        (REQUESTS[4], FETCH._replace(snapshot=LogPosition(3, 50))),
        (REQUESTS[4], events.FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, None)),
    ],
)
def test_responses_in_every_version(request_: events.Request, response: events.Response) -> None:
    outgoing = sent(request_)
    records = BATCH if getattr(response, "batches", ()) else b""
    message = wire.encode_response(outgoing.api_key, response, records, ENDPOINTS)
    for version in versions_of(outgoing):
        data = encode_response(outgoing.api_key, version, message)
        incoming = wire.decode_response(request_, decode_response(outgoing.api_key, version, data))
        assert incoming.response == response
        assert b"".join(batch.data for batch in incoming.batches) == records
    assert incoming.endpoints == ENDPOINTS


def test_a_corrupt_batch_is_no_response() -> None:
    for position in range(len(BATCH)):
        damaged = bytearray(BATCH)
        damaged[position] ^= 1
        message = wire.encode_response(ApiKey.FETCH, FETCH, bytes(damaged), {})
        version = DEFINED[ApiKey.FETCH].maximum
        received_ = decode_response(ApiKey.FETCH, version, encode_response(ApiKey.FETCH, version, message))
        try:
            batches = wire.decode_response(REQUESTS[4], received_).batches
        except WireError:
            continue
        # The base offset and the epoch are not under the checksum: the core compares them with its log.
        assert not batches or batches[0].data[16:] == BATCH[16:]


def test_a_response_with_an_unknown_or_general_error() -> None:
    for api_key, request in ((ApiKey.VOTE, REQUESTS[0]), (ApiKey.FETCH, REQUESTS[4])):
        message = wire.error_response(api_key, ErrorCode.INCONSISTENT_CLUSTER_ID)
        version = DEFINED[api_key].maximum
        found = decode_response(api_key, version, encode_response(api_key, version, message))
        with pytest.raises(WireError) as refused:
            wire.decode_response(request, found)
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_every_api_has_an_error_response() -> None:
    apis = (ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT, ApiKey.DESCRIBE_QUORUM)
    for api_key in (ApiKey.VOTE, ApiKey.FETCH, *apis):
        defined = DEFINED[api_key]
        for version in range(defined.minimum, defined.maximum + 1):
            assert encode_response(api_key, version, wire.error_response(api_key, ErrorCode.INVALID_REQUEST))


def test_pieces_of_a_snapshot_in_every_version() -> None:
    snapshot, api_key = LogPosition(3, 50), ApiKey.FETCH_SNAPSHOT
    request = wire.snapshot_request(OTHER, 5, snapshot, 10, cluster_id=CLUSTER_ID, max_bytes=100)
    response = wire.snapshot_response(
        snapshot, SnapshotPiece(30, 10, b"bytes"), leader_id=1, epoch=5, endpoints=ENDPOINTS
    )
    failed = wire.snapshot_response(
        snapshot,
        SnapshotPiece(0, 10, b""),
        error=ErrorCode.SNAPSHOT_NOT_FOUND,
        leader_id=None,
        epoch=5,
        endpoints={},
    )
    for version in range(DEFINED[api_key].maximum + 1):
        asked: Any = decode_request(api_key, version, encode_request(api_key, version, request))
        directory = OTHER.directory_id if version > 0 else NO_DIRECTORY
        expected = wire.SnapshotRequest(ReplicaKey(2, directory), 5, snapshot, 10, 100)
        assert wire.decode_snapshot_request(asked, cluster_id=CLUSTER_ID) == expected
        piece: Any = decode_response(api_key, version, encode_response(api_key, version, response))
        assert wire.decode_snapshot_response(piece) == SnapshotPiece(30, 10, b"bytes")
        refused: Any = decode_response(api_key, version, encode_response(api_key, version, failed))
        with pytest.raises(WireError) as error:
            wire.decode_snapshot_response(refused)
        assert error.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
