"""The member's state, by transcript: what it says, what it hears, what it then owns."""

from uuid import UUID

from rookery.client.membership.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    Owned,
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


def answer(epoch: int, *partitions: tuple[UUID, list[int]], assigned: bool = True) -> ConsumerGroupHeartbeatResponse:
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


def told(request: ConsumerGroupHeartbeatRequest) -> list[tuple[UUID, list[int]]] | None:
    if request.topic_partitions is None:
        return None
    return [(row.topic_id, row.partitions) for row in request.topic_partitions]


def joined(*partitions: tuple[UUID, list[int]]) -> ConsumerMember:
    """A member that owns these partitions, as the coordinator knows."""
    it = member()
    it.heartbeat()
    it.answered(answer(1, *partitions))
    it.acknowledge(it.target)
    it.heartbeat()
    it.answered(answer(1, assigned=False))
    return it


def test_joining_tells_everything() -> None:
    request = member().heartbeat()
    assert (request.member_id, request.member_epoch, request.rebalance_timeout_ms) == ("m", JOINING_EPOCH, 7000)
    assert request.subscribed_topic_names == ["bills", "orders"]
    assert told(request) == []


def test_an_assignment_is_owned_when_it_is_acknowledged() -> None:
    it = member()
    it.heartbeat()
    it.answered(answer(1, (ORDERS, [0, 1])))
    assert (it.has_joined, it.epoch, it.heartbeat_interval_ms) == (True, 1, 3000)
    assert it.target == {Owned(ORDERS, 0), Owned(ORDERS, 1)}
    assert (it.revoked, it.is_settled) == (frozenset(), False)
    it.acknowledge(it.target)
    assert (it.has_news, it.is_settled) == (True, False)
    assert told(it.heartbeat()) == [(ORDERS, [0, 1])]
    it.answered(answer(1, assigned=False))
    assert (it.has_news, it.is_settled) == (False, True)


def test_what_did_not_change_is_not_told_again() -> None:
    request = joined((ORDERS, [0])).heartbeat()
    assert (request.member_epoch, request.rebalance_timeout_ms) == (1, -1)
    assert (request.subscribed_topic_names, request.topic_partitions) == (None, None)


def test_revoked_partitions_are_owned_until_acknowledged() -> None:
    it = joined((ORDERS, [0, 1]), (BILLS, [5]))
    it.heartbeat()
    it.answered(answer(1, (ORDERS, [1])))
    assert it.revoked == {Owned(ORDERS, 0), Owned(BILLS, 5)}
    assert told(it.heartbeat()) is None
    it.answered(answer(1, assigned=False))
    it.acknowledge(it.target)
    assert told(it.heartbeat()) == [(ORDERS, [1])]


def test_an_acknowledgement_during_a_heartbeat_is_told_by_the_next() -> None:
    it = joined((ORDERS, [0]))
    it.heartbeat()
    it.acknowledge([])
    it.answered(answer(1, assigned=False))
    assert told(it.heartbeat()) == []


def test_after_a_failure_everything_is_told_again() -> None:
    it = joined((ORDERS, [0]))
    it.heartbeat()
    it.failed()
    request = it.heartbeat()
    assert (request.member_epoch, request.subscribed_topic_names) == (1, ["bills", "orders"])
    assert told(request) == [(ORDERS, [0])]


def test_after_a_heartbeat_whose_answer_was_lost_everything_is_told_again() -> None:
    """The answer may have had an assignment, which the coordinator only repeats for those who say everything."""
    it = joined((ORDERS, [0]))
    it.heartbeat()
    for _ in range(2):
        request = it.heartbeat()
        assert (request.rebalance_timeout_ms > 0, request.subscribed_topic_names) == (True, ["bills", "orders"])
        assert told(request) == [(ORDERS, [0])]
    it.answered(answer(1, assigned=False))
    assert it.heartbeat().subscribed_topic_names is None


def test_a_fenced_member_owns_nothing_and_joins_again() -> None:
    it = joined((ORDERS, [0]))
    it.fence()
    assert (it.owned, it.target, it.has_joined) == (frozenset(), frozenset(), False)
    request = it.heartbeat()
    assert (request.member_id, request.member_epoch, told(request)) == ("m", JOINING_EPOCH, [])
    assert request.subscribed_topic_names == ["bills", "orders"]


def test_leaving() -> None:
    it = joined((ORDERS, [0]))
    assert it.leave().member_epoch == LEAVING_EPOCH
    assert (it.owned, it.has_joined) == (frozenset(), False)


def test_a_static_member_says_that_it_will_be_back() -> None:
    it = member(instance_id="i")
    assert it.heartbeat().instance_id == "i"
    assert it.leave().member_epoch == STATIC_LEAVING_EPOCH


def test_another_subscription_is_told_once() -> None:
    it = joined((ORDERS, [0]))
    it.topics = frozenset({"orders"})
    assert (it.has_news, it.is_settled) == (True, False)
    request = it.heartbeat()
    assert (request.subscribed_topic_names, told(request)) == (["orders"], None)
    it.answered(answer(2, assigned=False))
    assert it.heartbeat().subscribed_topic_names is None


def test_the_assignor_and_the_rack_are_told_when_joining() -> None:
    it = member(server_assignor="range", rack_id="east")
    request = it.heartbeat()
    assert (request.server_assignor, request.rack_id) == ("range", "east")
    it.answered(answer(1))
    request = it.heartbeat()
    assert (request.server_assignor, request.rack_id) == (None, None)
