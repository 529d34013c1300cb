"""The quorum and its voters, against a scripted broker."""

from uuid import UUID

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.client.admin import NO_DIRECTORY_ID, Quorum, QuorumReplica, RaftEndpoint
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.fake_broker import Responder

DIRECTORY = UUID(int=77)


def state(node: int, end: int, *, fetched_ms: int = 1000, caught_up_ms: int = 900) -> Message:
    return Message(
        replica_id=node,
        log_end_offset=end,
        last_fetch_timestamp=fetched_ms,
        last_caught_up_timestamp=caught_up_ms,
        replica_directory_id=DIRECTORY,
    )


def quorum(code: ErrorCode = ErrorCode.NONE, *, row_code: ErrorCode = ErrorCode.NONE) -> Responder:
    row = Message(
        partition_index=0,
        error_code=row_code,
        error_message="row",
        leader_id=2,
        leader_epoch=5,
        high_watermark=40,
        current_voters=[state(3, -1, fetched_ms=-1, caught_up_ms=-1), state(2, 42), state(1, 40)],
        observers=[state(9, 12)],
    )
    topics = [Message(topic_name="__cluster_metadata", partitions=[row])] if code is ErrorCode.NONE else []
    nodes = [Message(node_id=2, listeners=[Message(name="CONTROLLER", host="h", port=9093)])]
    return lambda version, request: Message(error_code=code, error_message="all", topics=topics, nodes=nodes)


def described(answer: Responder, version: int = 2) -> Quorum:
    found, broker = run_with(
        {ApiKey.DESCRIBE_QUORUM: answer}, lambda admin: admin.describe_quorum(), DESCRIBE_QUORUM=version
    )
    (topic,) = broker.requests_of(ApiKey.DESCRIBE_QUORUM)[-1].topics
    assert (topic.topic_name, [row.partition_index for row in topic.partitions]) == ("__cluster_metadata", [0])
    return found


def test_describe_quorum() -> None:
    found = described(in_turn(quorum(ErrorCode.NOT_CONTROLLER), quorum()))
    assert (found.leader_id, found.leader_epoch, found.high_watermark, found.log_end_offset) == (2, 5, 40, 42)
    assert [voter.node_id for voter in found.voters] == [1, 2, 3]
    assert [found.lag(voter) for voter in found.voters] == [2, 0, None]
    assert found.voters[2].last_fetch_ms is None
    assert found.observers == (
        QuorumReplica(node_id=9, directory_id=DIRECTORY, log_end_offset=12, last_fetch_ms=1000, last_caught_up_ms=900),
    )
    assert found.endpoints == {2: (RaftEndpoint("CONTROLLER", "h", 9093),)}
    assert str(found.endpoints[2][0]) == "CONTROLLER://h:9093"


@pytest.mark.parametrize("version", [0, 1])
def test_old_controllers_report_less(version: int) -> None:
    found = described(quorum(), version)
    assert found.endpoints == {}
    assert found.voters[0].directory_id == NO_DIRECTORY_ID
    assert (found.voters[0].last_fetch_ms is None) == (version == 0)


def test_a_leader_that_is_no_voter_any_more() -> None:
    found = described(quorum())
    without = Quorum(
        leader_id=7,
        leader_epoch=5,
        high_watermark=40,
        voters=found.voters,
        observers=(),
        endpoints={},
    )
    assert without.log_end_offset == 40


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (quorum(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "all"),
        (quorum(row_code=ErrorCode.UNKNOWN_SERVER_ERROR), "row"),
        (lambda version, request: Message(error_code=0, error_message=None, topics=[], nodes=[]), "did not describe"),
    ],
)
def test_a_quorum_that_is_not_described(answer: Responder, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        described(answer)


def test_an_api_that_the_broker_does_not_serve_is_named() -> None:
    with pytest.raises(ApiError, match="DESCRIBE_QUORUM") as caught:
        run_with({}, lambda admin: admin.describe_quorum())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def outcome(code: ErrorCode, message: str | None = None) -> Responder:
    return lambda version, request: Message(throttle_time_ms=0, error_code=code, error_message=message)


@pytest.mark.parametrize("version", [0, 1])
def test_add_a_voter(version: int) -> None:
    answer = in_turn(outcome(ErrorCode.REQUEST_TIMED_OUT, "not caught up"), outcome(ErrorCode.NONE))
    endpoint = RaftEndpoint("CONTROLLER", "h", 9093)
    _, broker = run_with(
        {ApiKey.ADD_RAFT_VOTER: answer},
        lambda admin: admin.add_raft_voter(4, DIRECTORY, [endpoint], cluster_id="c"),
        ADD_RAFT_VOTER=version,
    )
    _, request = broker.requests_of(ApiKey.ADD_RAFT_VOTER)
    assert (request.voter_id, request.voter_directory_id, request.cluster_id) == (4, DIRECTORY, "c")
    assert [(row.name, row.host, row.port) for row in request.listeners] == [("CONTROLLER", "h", 9093)]
    assert request.get("ack_when_committed", True)
    with pytest.raises(ApiError, match="there already") as caught:
        run_with(
            {ApiKey.ADD_RAFT_VOTER: outcome(ErrorCode.DUPLICATE_VOTER, "there already")},
            lambda admin: admin.add_raft_voter(4, DIRECTORY, [endpoint]),
        )
    assert caught.value.code is ErrorCode.DUPLICATE_VOTER


def test_remove_a_voter() -> None:
    answer = in_turn(outcome(ErrorCode.NOT_CONTROLLER), outcome(ErrorCode.NONE))
    _, broker = run_with(
        {ApiKey.REMOVE_RAFT_VOTER: answer}, lambda admin: admin.remove_raft_voter(4, DIRECTORY, cluster_id="c")
    )
    _, request = broker.requests_of(ApiKey.REMOVE_RAFT_VOTER)
    assert (request.voter_id, request.voter_directory_id, request.cluster_id) == (4, DIRECTORY, "c")
    with pytest.raises(ApiError, match="VOTER_NOT_FOUND: voter 4"):
        run_with(
            {ApiKey.REMOVE_RAFT_VOTER: outcome(ErrorCode.VOTER_NOT_FOUND)},
            lambda admin: admin.remove_raft_voter(4, DIRECTORY),
        )
