"""The state of a member of KIP-848: heartbeats, responses, and the owned partitions."""

from uuid import UUID

from rookery.client.membership.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    TopicIdPartition,
)
from rookery.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

ORDERS, BILLS = UUID(int=1), UUID(int=2)


def member(**options: str) -> ConsumerMember:
    it = ConsumerMember("g", member_id="m", rebalance_timeout_ms=7000, **options)
    it.topics = frozenset({"orders", "bills"})
    return it


def response(epoch: int, *partitions: tuple[UUID, list[int]], assigned: bool = True) -> ConsumerGroupHeartbeatResponse:
    rows = [
        ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in partitions
    ]
    assignment = ConsumerGroupHeartbeatResponseAssignment(topic_partitions=rows) if assigned else None
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=3000,
        assignment=assignment,
    )


def reported(request: ConsumerGroupHeartbeatRequest) -> list[tuple[UUID, list[int]]] | None:
    if request.topic_partitions is None:
        return None
    return [(row.topic_id, row.partitions) for row in request.topic_partitions]


def joined(*partitions: tuple[UUID, list[int]]) -> ConsumerMember:
    """Return a member that owns `partitions` and has reported that."""
    it = member()
    it.heartbeat()
    it.on_response(response(1, *partitions))
    it.acknowledge(it.target)
    it.heartbeat()
    it.on_response(response(1, assigned=False))
    return it


def test_a_join_reports_everything() -> None:
    request = member().heartbeat()
    assert (request.member_id, request.member_epoch, request.rebalance_timeout_ms) == ("m", JOINING_EPOCH, 7000)
    assert request.subscribed_topic_names == ["bills", "orders"]
    assert reported(request) == []


def test_an_assignment_is_owned_when_it_is_acknowledged() -> None:
    it = member()
    it.heartbeat()
    it.on_response(response(1, (ORDERS, [0, 1])))
    assert (it.has_joined, it.epoch, it.heartbeat_interval_ms) == (True, 1, 3000)
    assert it.target == {TopicIdPartition(ORDERS, 0), TopicIdPartition(ORDERS, 1)}
    assert (it.revoked, it.is_reconciled) == (frozenset(), False)
    it.acknowledge(it.target)
    assert (it.has_changes, it.is_reconciled) == (True, False)
    assert reported(it.heartbeat()) == [(ORDERS, [0, 1])]
    it.on_response(response(1, assigned=False))
    assert (it.has_changes, it.is_reconciled) == (False, True)


def test_unchanged_state_is_not_reported_again() -> None:
    request = joined((ORDERS, [0])).heartbeat()
    assert (request.member_epoch, request.rebalance_timeout_ms) == (1, -1)
    assert (request.subscribed_topic_names, request.topic_partitions) == (None, None)


def test_revoked_partitions_are_owned_until_acknowledged() -> None:
    it = joined((ORDERS, [0, 1]), (BILLS, [5]))
    it.heartbeat()
    it.on_response(response(1, (ORDERS, [1])))
    assert it.revoked == {TopicIdPartition(ORDERS, 0), TopicIdPartition(BILLS, 5)}
    assert reported(it.heartbeat()) is None
    it.on_response(response(1, assigned=False))
    it.acknowledge(it.target)
    assert reported(it.heartbeat()) == [(ORDERS, [1])]


def test_an_acknowledgement_during_a_heartbeat_is_reported_by_the_next() -> None:
    it = joined((ORDERS, [0]))
    it.heartbeat()
    it.acknowledge([])
    it.on_response(response(1, assigned=False))
    assert reported(it.heartbeat()) == []


def test_after_a_failure_everything_is_reported_again() -> None:
    it = joined((ORDERS, [0]))
    it.heartbeat()
    it.on_no_response()
    request = it.heartbeat()
    assert (request.member_epoch, request.subscribed_topic_names) == (1, ["bills", "orders"])
    assert reported(request) == [(ORDERS, [0])]


def test_after_a_lost_response_everything_is_reported_again() -> None:
    """The response may have held an assignment, which the coordinator repeats only for full heartbeats."""
    it = joined((ORDERS, [0]))
    it.heartbeat()
    for _ in range(2):
        request = it.heartbeat()
        assert (request.rebalance_timeout_ms > 0, request.subscribed_topic_names) == (True, ["bills", "orders"])
        assert reported(request) == [(ORDERS, [0])]
    it.on_response(response(1, assigned=False))
    assert it.heartbeat().subscribed_topic_names is None


def test_a_fenced_member_owns_nothing_and_joins_again() -> None:
    it = joined((ORDERS, [0]))
    it.fence()
    assert (it.owned, it.target, it.has_joined) == (frozenset(), frozenset(), False)
    request = it.heartbeat()
    assert (request.member_id, request.member_epoch, reported(request)) == ("m", JOINING_EPOCH, [])
    assert request.subscribed_topic_names == ["bills", "orders"]


def test_leaving() -> None:
    it = joined((ORDERS, [0]))
    assert it.leave().member_epoch == LEAVING_EPOCH
    assert (it.owned, it.has_joined) == (frozenset(), False)


def test_a_static_member_leaves_with_its_own_epoch() -> None:
    it = member(instance_id="i")
    assert it.heartbeat().instance_id == "i"
    assert it.leave().member_epoch == STATIC_LEAVING_EPOCH


def test_a_changed_subscription_is_reported_once() -> None:
    it = joined((ORDERS, [0]))
    it.topics = frozenset({"orders"})
    assert (it.has_changes, it.is_reconciled) == (True, False)
    request = it.heartbeat()
    assert (request.subscribed_topic_names, reported(request)) == (["orders"], None)
    it.on_response(response(2, assigned=False))
    assert it.heartbeat().subscribed_topic_names is None


def test_the_assignor_and_the_rack_are_sent_when_joining() -> None:
    it = member(server_assignor="range", rack_id="east")
    request = it.heartbeat()
    assert (request.server_assignor, request.rack_id) == ("range", "east")
    it.on_response(response(1))
    request = it.heartbeat()
    assert (request.server_assignor, request.rack_id) == (None, None)
