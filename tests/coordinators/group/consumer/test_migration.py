"""Groups whose members change from the classic protocol to the new one, and back, one by one."""

import pytest

from rookery.base.errors import ErrorCode
from rookery.coordinators.group.classic.results import JoinResult, SyncResult
from rookery.coordinators.group.classic.states import State
from rookery.coordinators.group.consumer.environment import ConsumerSettings, MemberTimer, MigrationPolicy, TimerKind
from rookery.coordinators.group.consumer.group import ConsumerGroup
from rookery.coordinators.group.timers import JoinTimer, SessionTimer
from rookery.coordinators.result import PARKED
from rookery.protocol.consumer_protocol import write_assignment
from tests.coordinators.group.consumer.scenario import (
    GROUP,
    ClassicClient,
    Client,
    Coordinator,
    accepted,
    partitions,
    rejected,
)

ORDERS = frozenset({"orders"})


def complete_first_join(coordinator: Coordinator) -> None:
    """Complete a group's first rebalance, which is extended while members join."""
    while JoinTimer(GROUP) in coordinator.timers:
        coordinator.expire(JoinTimer(GROUP))


def classic_group(coordinator: Coordinator, *, cooperative: bool = True) -> ClassicClient:
    """Make a stable classic group of one member, which owns all partitions."""
    leader = ClassicClient(coordinator, ORDERS, cooperative=cooperative)
    assert leader.join() is PARKED
    complete_first_join(coordinator)
    leader.joined(coordinator.responses[leader.token])
    indexes = range(len(coordinator.topics["orders"].partitions))
    assert leader.sync(((leader.member_id, write_assignment(1, [("orders", indexes)])),)) is ErrorCode.NONE
    assert len(leader.owned) == len(indexes)
    return leader


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_classic_member_shares_with_a_new_one(cooperative: bool) -> None:
    coordinator = Coordinator(orders=4)
    old = classic_group(coordinator, cooperative=cooperative)
    generation = old.generation
    new = Client(coordinator, "new", topics=ORDERS)
    joined = accepted(new.join())
    assert joined.assignment == {}
    assert joined.member_epoch == generation + 1
    assert isinstance(coordinator.group, ConsumerGroup)

    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert accepted(new.beat()).assignment is None, "the classic member has not joined yet"
    old.follow()
    assert old.owned == [("orders", 0), ("orders", 1)]
    assert old.generation == joined.member_epoch
    assert accepted(new.beat()).assignment == partitions(orders=(2, 3))
    assert old.beat() is ErrorCode.NONE


def test_a_cooperative_member_keeps_its_remaining_partitions() -> None:
    coordinator = Coordinator(orders=4)
    old = classic_group(coordinator)
    Client(coordinator, "new", topics=ORDERS).join()
    generation = old.generation
    assert old.step()
    assert (old.generation, old.owned) == (generation, [("orders", 0), ("orders", 1)])
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS, "it must acknowledge the revocation"
    assert old.step()
    assert (old.generation, old.owned) == (generation + 1, [("orders", 0), ("orders", 1)])


def test_the_classic_timers_are_replaced() -> None:
    coordinator = Coordinator(orders=1)
    old = classic_group(coordinator)
    assert SessionTimer(GROUP, old.member_id) in coordinator.timers
    Client(coordinator, "new", topics=ORDERS).join()
    assert SessionTimer(GROUP, old.member_id) not in coordinator.timers
    assert coordinator.timers[MemberTimer(TimerKind.SESSION, GROUP, old.member_id)] == 10_000


def test_members_that_wait_in_a_rebalance_must_join_again() -> None:
    coordinator = Coordinator(orders=2)
    old = ClassicClient(coordinator, ORDERS)
    assert old.join() is PARKED
    new = Client(coordinator, "new", topics=ORDERS)
    accepted(new.join())
    result = coordinator.responses[old.token]
    assert isinstance(result, JoinResult)
    assert result.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert old.step()
    old.follow()
    new.beat_silently()
    new.beat()
    old.follow()
    assert len(old.owned) == 1
    assert len(coordinator.group.members) == 2


def test_members_that_wait_for_an_assignment_must_join_again() -> None:
    coordinator = Coordinator(orders=2)
    leader, follower = ClassicClient(coordinator, ORDERS), ClassicClient(coordinator, ORDERS)
    leader.join()
    follower.join()
    complete_first_join(coordinator)
    for client in (leader, follower):
        client.joined(coordinator.responses[client.token])
    assert follower.sync() is PARKED
    Client(coordinator, "new", topics=ORDERS).join()
    result = coordinator.responses[follower.token]
    assert isinstance(result, SyncResult)
    assert result.error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    coordinator = Coordinator(orders=2)
    old = classic_group(coordinator)
    new = Client(coordinator, "new", topics=ORDERS)
    new.join()
    rejoin = MemberTimer(TimerKind.REJOIN, GROUP, old.member_id)
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.timers[rejoin] == 60_000
    coordinator.timers[rejoin] = 59_000
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.timers[rejoin] == 59_000, "the timer runs from the first response"
    coordinator.expire(rejoin)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert accepted(new.beat()).assignment == partitions(orders=(0, 1))


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    coordinator = Coordinator(orders=2)
    old = classic_group(coordinator)
    Client(coordinator, "new", topics=ORDERS).join()
    old.join()
    assert MemberTimer(TimerKind.REJOIN, GROUP, old.member_id) not in coordinator.timers
    coordinator.expire(MemberTimer(TimerKind.SYNC, GROUP, old.member_id))
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_joins_a_consumer_group() -> None:
    coordinator = Coordinator(orders=2)
    new = Client(coordinator, "new", topics=ORDERS)
    new.join()
    old = ClassicClient(coordinator, ORDERS)
    assert old.step()
    assert old.owned == []
    assert old.beat() is ErrorCode.NONE, "there is nothing to fetch yet"
    new.beat_silently()
    new.beat()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.follow()
    assert len(old.owned) == 1


def test_sessions_of_classic_members_have_limits() -> None:
    coordinator = Coordinator(orders=2)
    Client(coordinator, "new", topics=ORDERS).join()
    old = ClassicClient(coordinator, ORDERS, session_timeout_ms=1)
    result = old.join()
    assert isinstance(result, JoinResult)
    assert result.error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert len(coordinator.group.members) == 1


def test_classic_members_are_fenced() -> None:
    coordinator = Coordinator(orders=2)
    new = Client(coordinator, "new", topics=ORDERS)
    new.join()
    old = ClassicClient(coordinator, ORDERS)
    old.step()
    generation = old.generation
    old.generation -= 1
    assert old.beat() is ErrorCode.ILLEGAL_GENERATION
    assert old.sync() is ErrorCode.ILLEGAL_GENERATION
    old.generation, old.protocol = generation, "other"
    assert old.sync() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    imposter = ClassicClient(coordinator, ORDERS, member_id="new", generation=new.epoch)
    assert imposter.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert imposter.sync() is ErrorCode.UNKNOWN_MEMBER_ID
    assert imposter.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    other = ClassicClient(coordinator, ORDERS, protocol="range", member_id="given")
    result = other.join()
    assert isinstance(result, JoinResult)
    assert result.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_is_classic_again_when_the_last_new_member_leaves() -> None:
    coordinator = Coordinator(orders=4)
    old = classic_group(coordinator)
    new = Client(coordinator, "new", topics=ORDERS)
    new.join()
    old.follow()
    new.beat()
    new.leave()
    group = coordinator.classic_group
    assert group.state is State.PREPARING_REBALANCE
    assert group.leader_id == old.member_id
    assert not [timer for timer in coordinator.timers if isinstance(timer, MemberTimer)]
    assert coordinator.timers[SessionTimer(GROUP, old.member_id)] == 10_000
    assert old.beat() is ErrorCode.ILLEGAL_GENERATION
    assert old.join() is PARKED
    old.joined(coordinator.responses[old.token])
    assert old.generation == group.generation + 1
    coordinator.restart()
    assert coordinator.classic_group.members.keys() == {old.member_id}


def test_a_group_is_classic_again_when_the_last_new_member_expires() -> None:
    coordinator = Coordinator(orders=4)
    classic_group(coordinator)
    Client(coordinator, "new", topics=ORDERS).join()
    coordinator.expire(MemberTimer(TimerKind.SESSION, GROUP, "new"))
    assert coordinator.classic_group.members


def test_a_static_member_changes_protocols() -> None:
    coordinator = Coordinator(orders=2)
    old = ClassicClient(coordinator, ORDERS, instance_id="one")
    old.join()
    complete_first_join(coordinator)
    old.joined(coordinator.responses[old.token])
    old.sync(((old.member_id, write_assignment(1, [("orders", range(2))])),))
    new = Client(coordinator, "new", topics=ORDERS, instance_id="one")
    assert accepted(new.join()).assignment == partitions(orders=(0, 1)), "it replaces itself"
    assert coordinator.group.members.keys() == {"new"}

    again = ClassicClient(coordinator, ORDERS, instance_id="one")
    again.join()
    assert coordinator.classic_group.instances == {"one": again.member_id}
    assert rejected(new.beat()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_may_become_either_kind() -> None:
    coordinator = Coordinator(orders=2)
    new = Client(coordinator, "new", topics=ORDERS)
    new.join()
    new.leave()
    old = classic_group(coordinator)
    assert old.leave() is ErrorCode.NONE
    assert coordinator.classic_group.is_empty
    assert accepted(new.join()).assignment == partitions(orders=(0, 1))


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_policy_without_upgrades(policy: MigrationPolicy) -> None:
    coordinator = Coordinator(ConsumerSettings(migration_policy=policy), orders=2)
    old = classic_group(coordinator)
    assert rejected(Client(coordinator, "new", topics=ORDERS).join()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert old.beat() is ErrorCode.NONE


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_a_policy_without_downgrades(policy: MigrationPolicy) -> None:
    coordinator = Coordinator(ConsumerSettings(migration_policy=policy), orders=2)
    new = Client(coordinator, "new", topics=ORDERS)
    new.join()
    old = ClassicClient(coordinator, ORDERS)
    old.step()
    new.leave()
    old.follow()
    assert len(old.owned) == 2
    assert coordinator.group.members.keys() == {old.member_id}


def test_groups_that_cannot_be_upgraded() -> None:
    full = Coordinator(ConsumerSettings(size_max=1), orders=2)
    for _ in range(2):
        ClassicClient(full, ORDERS).join()
    assert rejected(Client(full, "new", topics=ORDERS).join()) is ErrorCode.GROUP_ID_NOT_FOUND

    unreadable = Coordinator(orders=2)
    old = classic_group(unreadable)
    member = unreadable.classic_group.members[old.member_id]
    object.__setattr__(member, "assignment", b"\x00")
    assert rejected(Client(unreadable, "new", topics=ORDERS).join()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_partition_of_two_classic_members_stays_with_one() -> None:
    coordinator = Coordinator(orders=2)
    clients = [ClassicClient(coordinator, ORDERS) for _ in range(2)]
    for client in clients:
        client.join()
    complete_first_join(coordinator)
    for client in clients:
        client.joined(coordinator.responses[client.token])
    everything = write_assignment(1, [("orders", range(2)), ("gone", [0])])
    clients[0].sync(tuple((client.member_id, everything) for client in clients))
    Client(coordinator, "new", topics=ORDERS).join()
    owned = [coordinator.group.members[client.member_id].assigned for client in clients]
    assert owned == [partitions(orders=(0, 1)), {}]
