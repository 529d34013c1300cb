"""ConsumerGroupHeartbeat: members that join, share, wait, leave and return."""

from dataclasses import replace

import pytest

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.consumer.environment import ConsumerSettings, ErrorResponse, MemberTimer, TimerKind
from rookery.coordinators.group.consumer.group import GroupState
from rookery.coordinators.group.consumer.heartbeat import HeartbeatRequest, validate
from rookery.coordinators.group.consumer.member import MemberState
from tests.coordinators.group.consumer.scenario import (
    GROUP,
    Client,
    Coordinator,
    accepted,
    partitions,
    rejected,
)

ORDERS = frozenset({"orders"})
JOIN = HeartbeatRequest(
    group_id=GROUP, member_id="a", member_epoch=0, rebalance_timeout_ms=1000, topic_names=ORDERS, owned={}
)


def client(coordinator: Coordinator, member_id: str, **fields: object) -> Client:
    return Client(coordinator, member_id, topics=ORDERS, **fields)  # type: ignore[arg-type]  # passed through


def test_one_member_gets_all_partitions_in_one_response() -> None:
    coordinator = Coordinator(orders=3)
    a = client(coordinator, "a")
    joined = accepted(a.join())
    assert (joined.member_epoch, joined.assignment) == (1, partitions(orders=range(3)))
    assert joined.heartbeat_interval_ms == 5000
    assert accepted(a.beat()).assignment is None
    assert accepted(a.beat_silently()).assignment is None
    assert coordinator.group.state is GroupState.STABLE


def test_a_second_member_waits_until_the_first_revokes() -> None:
    coordinator = Coordinator(orders=4)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    joined = accepted(b.join())
    assert (joined.member_epoch, joined.assignment) == (2, {})
    assert coordinator.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert coordinator.group.state.value == "Reconciling"

    response = accepted(a.beat_silently())
    assert (response.member_epoch, response.assignment) == (1, partitions(orders=(0, 1)))
    assert coordinator.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert accepted(b.beat()).assignment is None, "a has not acknowledged the revocation"
    assert accepted(a.beat_silently()).member_epoch == 1, "a heartbeat without partitions does not acknowledge it"

    assert accepted(a.beat()).member_epoch == 2
    assert accepted(b.beat()).assignment == partitions(orders=(2, 3))
    assert coordinator.group.state is GroupState.STABLE


def test_a_member_that_has_not_revoked_keeps_its_epoch() -> None:
    coordinator = Coordinator(orders=4)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    a.send(owned=partitions(orders=range(4)))
    assert accepted(a.send(owned=partitions(orders=range(4)))).member_epoch == 1
    assert coordinator.timers[MemberTimer(TimerKind.REVOCATION, GROUP, "a")] == 300_000


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    coordinator = Coordinator(orders=4)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    a.beat_silently()
    coordinator.expire(MemberTimer(TimerKind.REVOCATION, GROUP, "a"))
    assert rejected(a.beat()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert accepted(b.beat()).assignment == partitions(orders=range(4))
    assert not [timer for timer in coordinator.timers if isinstance(timer, MemberTimer) and timer.member_id == "a"]


def test_an_acknowledged_revocation_cancels_the_timer() -> None:
    coordinator = Coordinator(orders=4)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    a.beat_silently()
    a.beat()
    assert MemberTimer(TimerKind.REVOCATION, GROUP, "a") not in coordinator.timers


def test_a_silent_member_is_removed_after_its_session() -> None:
    coordinator = Coordinator(orders=2)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    assert coordinator.timers[MemberTimer(TimerKind.SESSION, GROUP, "a")] == 45_000
    coordinator.expire(MemberTimer(TimerKind.SESSION, GROUP, "a"))
    assert accepted(b.beat()).assignment == partitions(orders=(0, 1))


def test_leaving_frees_partitions_immediately() -> None:
    coordinator = Coordinator(orders=2)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    assert accepted(a.leave()).member_epoch == -1
    assert accepted(b.beat()).assignment == partitions(orders=(0, 1))
    accepted(b.leave())
    assert coordinator.group.state is GroupState.EMPTY
    assert coordinator.group.epoch == 4
    assert not coordinator.timers


def test_a_member_may_miss_one_response() -> None:
    coordinator = Coordinator(orders=2)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    a.beat_silently()
    a.beat()
    assert a.epoch == 2
    a.epoch = 1
    assert accepted(a.send(owned=partitions(orders=(0,)))).member_epoch == 2
    a.epoch = 1
    assert rejected(a.send()) is ErrorCode.FENCED_MEMBER_EPOCH, "it must report that it owns no other partitions"
    a.epoch = 1
    assert rejected(a.send(owned=partitions(orders=(0, 1)))) is ErrorCode.FENCED_MEMBER_EPOCH
    a.epoch = 9
    assert rejected(a.beat()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_join_again_with_its_id() -> None:
    coordinator = Coordinator(orders=2)
    a = client(coordinator, "a")
    a.join()
    again = accepted(a.join())
    assert (again.member_epoch, again.assignment) == (1, partitions(orders=(0, 1)))


def test_heartbeats_of_unknown_members() -> None:
    coordinator = Coordinator(orders=2)
    stranger = client(coordinator, "x")
    stranger.epoch = 3
    assert rejected(stranger.beat()) is ErrorCode.GROUP_ID_NOT_FOUND
    client(coordinator, "a").join()
    assert rejected(stranger.beat()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rejected(stranger.leave()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_new_member() -> None:
    coordinator = Coordinator(ConsumerSettings(size_max=1), orders=2)
    a = client(coordinator, "a")
    a.join()
    assert rejected(client(coordinator, "b").join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "b" not in coordinator.group.members
    accepted(a.join())
    a.leave()
    static = client(coordinator, "c", instance_id="one")
    accepted(static.join())
    static.leave(-2)
    accepted(client(coordinator, "d", instance_id="one").join())


def test_a_member_without_topics_has_an_epoch_too() -> None:
    coordinator = Coordinator(orders=2)
    joined = accepted(Client(coordinator, "a").join())
    assert (joined.member_epoch, joined.assignment) == (1, {})


def test_subscriptions_change() -> None:
    coordinator = Coordinator(orders=2, returns=1)
    a = client(coordinator, "a")
    a.join()
    response = accepted(a.subscribe("returns"))
    assert response.assignment == {}, "orders must be revoked first"
    assert accepted(a.beat()).assignment == partitions(returns=(0,))
    assert coordinator.group.subscriptions.keys() == {"returns"}


def test_topics_are_created_extended_and_deleted() -> None:
    coordinator = Coordinator(orders=1)
    a = Client(coordinator, "a", topics=frozenset({"orders", "later"}))
    a.join()
    coordinator.set_topics(later=2)
    assert accepted(a.beat()).assignment == partitions(orders=(0,), later=(0, 1))
    coordinator.set_topics(later=3)
    assert accepted(a.beat()).assignment == partitions(orders=(0,), later=(0, 1, 2))
    coordinator.set_topics(later=None)
    assert accepted(a.beat()).assignment == partitions(orders=(0,))
    assert accepted(a.beat()).member_epoch == 4
    coordinator.set_topics(unrelated=5)
    assert accepted(a.beat()).member_epoch == 4


def test_the_assignor_that_most_members_prefer_is_used() -> None:
    coordinator = Coordinator(orders=2, returns=2)
    topics = frozenset({"orders", "returns"})
    a, b = (Client(coordinator, name, topics=topics, assignor="range") for name in "ab")
    a.join()
    b.join()
    a.beat_silently()
    a.beat()
    assert accepted(b.beat()).assignment == partitions(orders=(1,), returns=(1,)), "range: the same index of each topic"


@pytest.mark.parametrize("protocol_of_successor", ["same id", "new id"])
def test_a_static_member_returns_to_its_partitions(protocol_of_successor: str) -> None:
    coordinator = Coordinator(orders=4)
    a, b = client(coordinator, "a", instance_id="one"), client(coordinator, "b", instance_id="two")
    a.join()
    b.join()
    a.beat_silently()
    a.beat()
    b.beat()
    epoch = coordinator.group.epoch
    assert accepted(a.leave(-2)).member_epoch == -2
    assert accepted(b.beat()).assignment is None, "the partitions are kept for a"
    back = client(coordinator, "a" if protocol_of_successor == "same id" else "a2", instance_id="one")
    joined = accepted(back.join())
    assert (joined.member_epoch, joined.assignment) == (epoch, partitions(orders=(0, 1)))
    assert coordinator.group.epoch == epoch, "no other member is affected"


def test_a_static_member_that_does_not_return_is_removed() -> None:
    coordinator = Coordinator(orders=2)
    a, b = client(coordinator, "a", instance_id="one"), client(coordinator, "b")
    a.join()
    b.join()
    a.leave(-2)
    coordinator.expire(MemberTimer(TimerKind.SESSION, GROUP, "a"))
    assert accepted(b.beat()).assignment == partitions(orders=(0, 1))


def test_an_instance_id_has_one_owner() -> None:
    coordinator = Coordinator(orders=2)
    a = client(coordinator, "a", instance_id="one")
    a.join()
    usurper = client(coordinator, "x", instance_id="one")
    assert rejected(usurper.join()) is ErrorCode.UNRELEASED_INSTANCE_ID
    usurper.epoch = 1
    assert rejected(usurper.beat()) is ErrorCode.FENCED_INSTANCE_ID
    assert rejected(usurper.leave()) is ErrorCode.FENCED_INSTANCE_ID
    stranger = client(coordinator, "y", instance_id="two")
    stranger.epoch = 1
    assert rejected(stranger.beat()) is ErrorCode.UNKNOWN_MEMBER_ID
    a.leave(-2)
    accepted(usurper.join())
    a.epoch = 1
    assert rejected(a.beat()) is ErrorCode.FENCED_INSTANCE_ID


def test_patterns_follow_the_topics() -> None:
    coordinator = Coordinator(orders=1, returns=1)
    a = Client(coordinator, "a", regex="ord.*")
    assert accepted(a.join()).assignment == partitions(orders=(0,))
    coordinator.set_topics(ordeals=1)
    assert accepted(a.beat()).assignment == partitions(orders=(0,), ordeals=(0,))
    coordinator.set_topics(orders=None)
    assert accepted(a.beat()).assignment == partitions(ordeals=(0,))
    a.send(topic_regex="ret.*", owned=a.owned)
    assert accepted(a.beat()).assignment == partitions(returns=(0,))
    assert coordinator.group.regexes == {"ret.*": frozenset({"returns"})}
    a.leave()
    assert coordinator.group.regexes == {}


def test_names_and_patterns_add_up() -> None:
    coordinator = Coordinator(orders=1, returns=1, other=1)
    a = Client(coordinator, "a", topics=ORDERS, regex="ret.*")
    assert accepted(a.join()).assignment == partitions(orders=(0,), returns=(0,))


def test_an_empty_pattern_matches_nothing() -> None:
    coordinator = Coordinator(orders=1)
    a = Client(coordinator, "a", regex="")
    assert accepted(a.join()).assignment == {}


def test_a_bad_pattern_changes_nothing() -> None:
    coordinator = Coordinator(orders=1)
    a = Client(coordinator, "a", regex="(ord")
    assert rejected(a.join()) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not coordinator.shard.groups


def test_a_restart_in_the_middle_of_a_rebalance() -> None:
    coordinator = Coordinator(orders=4)
    a, b = client(coordinator, "a"), client(coordinator, "b")
    a.join()
    b.join()
    a.beat_silently()
    coordinator.restart()
    assert accepted(b.beat()).assignment is None
    assert accepted(a.beat()).member_epoch == 2
    coordinator.restart()
    assert accepted(b.beat()).assignment == partitions(orders=(2, 3))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (replace(JOIN, group_id=" "), "GroupId"),
        (replace(JOIN, member_id=""), "MemberId"),
        (replace(JOIN, instance_id=""), "InstanceId"),
        (replace(JOIN, rack_id=""), "RackId"),
        (replace(JOIN, rebalance_timeout_ms=-1), "RebalanceTimeoutMs"),
        (replace(JOIN, owned=None), "TopicPartitions"),
        (replace(JOIN, owned=partitions(orders=(0,))), "TopicPartitions"),
        (replace(JOIN, topic_names=None), "SubscribedTopicNames"),
        (replace(JOIN, member_epoch=-2), "InstanceId"),
        (replace(JOIN, member_epoch=-3), "MemberEpoch"),
    ],
)
def test_invalid_requests(request_: HeartbeatRequest, message: str) -> None:
    found = validate(request_, ("uniform",), member_id_required=True)
    assert found is not None
    assert found.code is ErrorCode.INVALID_REQUEST
    assert found.message.startswith((message, f"Either {message}"))


def test_valid_requests() -> None:
    assert validate(JOIN, ("uniform",), member_id_required=True) is None
    assert validate(replace(JOIN, member_id=""), ("uniform",), member_id_required=False) is None
    unknown = validate(replace(JOIN, server_assignor="magic"), ("uniform", "range"), member_id_required=True)
    assert isinstance(unknown, ErrorResponse)
    assert unknown.code is ErrorCode.UNSUPPORTED_ASSIGNOR
