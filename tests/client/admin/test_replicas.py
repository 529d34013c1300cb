"""Elections, reassignments and the registration of brokers, against a scripted broker."""

from collections.abc import Sequence

import pytest

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TopicPartition
from rookery.client.admin import Admin, ElectionType, Reassignment
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from tests.client.admin.scripted import in_turn, run_with
from tests.client.fake_broker import Responder

FIRST, SECOND, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("a", 0)


def elected(code: ErrorCode, *row_codes: ErrorCode) -> Responder:
    rows = [
        Message(partition_id=index, error_code=row_code, error_message=f"row {index}")
        for index, row_code in reversed(list(enumerate(row_codes)))
    ]
    topics = [Message(topic="t", partition_result=rows)]
    return lambda version, request: Message(throttle_time_ms=0, error_code=code, replica_election_results=topics)


@pytest.mark.parametrize("version", range(3))
def test_preferred_leaders_in_every_version(version: int) -> None:
    answer = in_turn(
        elected(ErrorCode.NOT_CONTROLLER) if version else elected(ErrorCode.NONE, ErrorCode.NOT_CONTROLLER),
        elected(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED),
    )
    found, broker = run_with(
        {ApiKey.ELECT_LEADERS: answer},
        lambda admin: admin.elect_leaders(ElectionType.PREFERRED, [SECOND, OTHER, FIRST, SECOND]),
        ELECT_LEADERS=version,
    )
    assert {tp: outcome.error for tp, outcome in found.items()} == {
        FIRST: ErrorCode.NONE,
        SECOND: ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert list(found) == [FIRST, SECOND]
    assert found[SECOND].message == "row 1"
    _, request = broker.requests_of(ApiKey.ELECT_LEADERS)
    assert [(topic.topic, topic.partitions) for topic in request.topic_partitions] == [("a", [0]), ("t", [0, 1])]
    assert request.get("election_type", 0) == 0


def test_unclean_elections_of_all_partitions() -> None:
    answer = elected(ErrorCode.NONE)
    _, broker = run_with({ApiKey.ELECT_LEADERS: answer}, lambda admin: admin.elect_leaders(ElectionType.UNCLEAN))
    (request,) = broker.requests_of(ApiKey.ELECT_LEADERS)
    assert (request.topic_partitions, request.get("election_type")) == (None, 1)
    with pytest.raises(ApiError, match="elects preferred leaders only"):
        run_with(
            {ApiKey.ELECT_LEADERS: answer}, lambda admin: admin.elect_leaders(ElectionType.UNCLEAN), ELECT_LEADERS=0
        )


def altered(code: ErrorCode, *row_codes: ErrorCode) -> Responder:
    rows = [
        Message(partition_index=index, error_code=row_code, error_message=f"row {index}")
        for index, row_code in enumerate(row_codes)
    ]
    return lambda version, request: Message(
        throttle_time_ms=0,
        error_code=code,
        error_message="all",
        responses=[Message(name="t", partitions=rows)],
        allow_replication_factor_change=True,
    )


@pytest.mark.parametrize("version", range(2))
def test_reassign_in_every_version(version: int) -> None:
    answer = in_turn(
        altered(ErrorCode.NOT_CONTROLLER),
        altered(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    )
    targets: dict[TopicPartition, Sequence[NodeId] | None] = {SECOND: None, FIRST: [3, 1]}
    found, broker = run_with(
        {ApiKey.ALTER_PARTITION_REASSIGNMENTS: answer},
        lambda admin: admin.alter_partition_reassignments(targets),
        ALTER_PARTITION_REASSIGNMENTS=version,
    )
    assert [outcome.error for outcome in found.values()] == [ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    _, request = broker.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    (topic,) = request.topics
    assert [(row.partition_index, row.replicas) for row in topic.partitions] == [(0, [3, 1]), (1, None)]
    assert request.get("allow_replication_factor_change", True)


def test_a_reassignment_that_keeps_the_factor() -> None:
    async def work(admin: Admin) -> object:
        return await admin.alter_partition_reassignments({FIRST: [1]}, allow_replication_factor_change=False)

    answers = {ApiKey.ALTER_PARTITION_REASSIGNMENTS: altered(ErrorCode.NONE, ErrorCode.NONE)}
    _, broker = run_with(answers, work)
    (request,) = broker.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert request.get("allow_replication_factor_change") is False
    with pytest.raises(ApiError, match="cannot check that the replication factor stays"):
        run_with(answers, work, ALTER_PARTITION_REASSIGNMENTS=0)


def test_a_reassignment_that_is_refused_as_a_whole() -> None:
    with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED: all"):
        run_with(
            {ApiKey.ALTER_PARTITION_REASSIGNMENTS: altered(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)},
            lambda admin: admin.alter_partition_reassignments({FIRST: [1]}),
        )


def listed(code: ErrorCode = ErrorCode.NONE) -> Responder:
    row = Message(partition_index=0, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1])
    return lambda version, request: Message(
        throttle_time_ms=0, error_code=code, error_message="all", topics=[Message(name="t", partitions=[row])]
    )


def test_list_reassignments() -> None:
    answer = in_turn(listed(ErrorCode.NOT_CONTROLLER), listed())
    found, broker = run_with(
        {ApiKey.LIST_PARTITION_REASSIGNMENTS: answer},
        lambda admin: admin.list_partition_reassignments([FIRST, OTHER]),
    )
    assert found == {FIRST: Reassignment((3, 2, 1), (3,), (1,))}
    assert found[FIRST].target == (3, 2)
    _, request = broker.requests_of(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    assert [(topic.name, topic.partition_indexes) for topic in request.topics] == [("a", [0]), ("t", [0])]
    _, broker = run_with(
        {ApiKey.LIST_PARTITION_REASSIGNMENTS: listed()}, lambda admin: admin.list_partition_reassignments()
    )
    assert broker.requests_of(ApiKey.LIST_PARTITION_REASSIGNMENTS)[0].topics is None


def unregistered(code: ErrorCode) -> Responder:
    return lambda version, request: Message(throttle_time_ms=0, error_code=code, error_message=None)


def test_unregister_a_broker() -> None:
    answer = in_turn(unregistered(ErrorCode.NOT_CONTROLLER), unregistered(ErrorCode.NONE))
    _, broker = run_with({ApiKey.UNREGISTER_BROKER: answer}, lambda admin: admin.unregister_broker(9))
    assert [request.broker_id for request in broker.requests_of(ApiKey.UNREGISTER_BROKER)] == [9, 9]
    with pytest.raises(ApiError, match="BROKER_ID_NOT_REGISTERED: broker 9"):
        run_with(
            {ApiKey.UNREGISTER_BROKER: unregistered(ErrorCode.BROKER_ID_NOT_REGISTERED)},
            lambda admin: admin.unregister_broker(9),
        )
