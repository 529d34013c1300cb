"""Properties of all assignors over random groups; and edge cases of claims, names and user data."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.base.types import TopicPartition
from rookery.client.membership.assignors.base import (
    Assignor,
    MemberSubscription,
    PartitionRacks,
    RebalanceProtocol,
    StatelessAssignor,
)
from rookery.client.membership.assignors.catalogue import choose_assignors, common_protocol
from rookery.client.membership.assignors.range import RangeAssignor
from rookery.client.membership.assignors.round_robin import RoundRobinAssignor
from rookery.client.membership.assignors.sticky import CooperativeStickyAssignor, StickyAssignor, read_user_data
from tests.client.membership.random_groups import (
    Members,
    check_valid,
    kept,
    members,
    owning,
    plain,
    racked_topics,
    topics,
    unevenness,
)

ALL = [RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor()]


@pytest.mark.parametrize("assignor", ALL, ids=lambda assignor: assignor.name)
@given(topics=racked_topics(), members=members())
def test_every_partition_goes_to_one_subscriber(assignor: Assignor, topics: PartitionRacks, members: Members) -> None:
    check_valid(topics, members, assignor.assign(topics, members))


@pytest.mark.parametrize("assignor", ALL[1:], ids=lambda assignor: assignor.name)
@given(topics=topics(), members=members(same_topics=True))
def test_equal_subscriptions_get_equal_shares(assignor: Assignor, topics: PartitionRacks, members: Members) -> None:
    sizes = [len(partitions) for partitions in assignor.assign(topics, members).values()]
    assert max(sizes) - min(sizes) <= 1


@given(topics=topics(), members=members(same_topics=True))
def test_ranges_are_neighbours_and_co_partitioned(topics: PartitionRacks, members: Members) -> None:
    members = {name: subscription._replace(rack=None) for name, subscription in members.items()}
    assignment = RangeAssignor().assign(topics, members)
    owner = {tp: member for member, partitions in assignment.items() for tp in partitions}
    for topic, racks in topics.items():
        runs = [owner.get(TopicPartition(topic, index)) for index in range(len(racks))]
        changes = sum(one != other for one, other in pairwise(runs))
        assert changes == len(set(runs)) - 1
        for other in (name for name in topics if len(topics[name]) == len(racks)):
            if other in next(iter(members.values())).topics and None not in runs:
                assert [owner[TopicPartition(other, index)] for index in range(len(racks))] == runs


@given(topics=racked_topics(), members=members(same_topics=True))
def test_racks_do_not_change_the_sizes_of_ranges(topics: PartitionRacks, members: Members) -> None:
    with_racks = RangeAssignor().assign(topics, members)
    without = RangeAssignor().assign(
        topics, {name: subscription._replace(rack=None) for name, subscription in members.items()}
    )
    for topic in topics:
        sizes = [
            sorted(Counter(tp.topic for tp in given)[topic] for given in a.values()) for a in (with_racks, without)
        ]
        assert sizes[0] == sizes[1]


def test_ranges_follow_racks() -> None:
    topics = {"t": [frozenset("a"), frozenset("b"), frozenset("a"), frozenset("b")]}
    members = {rack: MemberSubscription(frozenset("t"), rack=rack) for rack in "ab"}
    assignment = RangeAssignor().assign(topics, members)
    assert {rack: [tp.partition for tp in given] for rack, given in assignment.items()} == {"a": [0, 2], "b": [1, 3]}


def test_static_members_come_first() -> None:
    subscription = MemberSubscription(frozenset("t"))
    members = {
        "a": subscription,
        "z": subscription._replace(instance_id="1"),
        "y": subscription._replace(instance_id="2"),
    }
    assert RangeAssignor().assign(plain({"t": 1}), members) == {"a": [], "z": [TopicPartition("t", 0)], "y": []}
    assert RoundRobinAssignor().assign(plain({"t": 1}), members) == {"a": [], "z": [TopicPartition("t", 0)], "y": []}


@given(topics=topics(), members=members())
def test_no_partition_moves_without_a_change(topics: PartitionRacks, members: Members) -> None:
    first = StickyAssignor().assign(topics, members)
    again = StickyAssignor().assign(topics, owning(members, first))
    assert kept(first, again) == sum(map(len, first.values()))


@given(topics=topics(), members=members(same_topics=True), data=st.data())
def test_only_the_partitions_of_a_departed_member_move(
    topics: PartitionRacks, members: Members, data: st.DataObject
) -> None:
    assume(len(members) > 1)
    first = StickyAssignor().assign(topics, members)
    gone = data.draw(st.sampled_from(sorted(members)))
    rest = {name: subscription for name, subscription in owning(members, first).items() if name != gone}
    second = StickyAssignor().assign(topics, rest)
    check_valid(topics, rest, second)
    stayed = {name: partitions for name, partitions in first.items() if name != gone}
    assert kept(stayed, second) == sum(map(len, stayed.values()))


@given(topics=topics(), members=members(same_topics=True))
def test_a_new_member_gets_only_its_share(topics: PartitionRacks, members: Members) -> None:
    first = StickyAssignor().assign(topics, members)
    total = sum(map(len, first.values()))
    newcomer = next(iter(members.values()))
    second = StickyAssignor().assign(topics, {**owning(members, first), "new": newcomer})
    assert kept(first, second) == total - len(second["new"])


@given(topics=topics(), members=members(), data=st.data())
def test_cooperative_members_revoke_before_others_are_assigned(
    topics: PartitionRacks, members: Members, data: st.DataObject
) -> None:
    """From any ownership: no step assigns what another member owns, and the second one is as even as possible."""
    names = sorted(members)
    owned: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for topic, racks in topics.items():
        for index in range(len(racks)):
            owned[data.draw(st.sampled_from(names))].append(TopicPartition(topic, index))
    assignor = CooperativeStickyAssignor()
    joined = owning(members, owned)
    first = assignor.assign(topics, joined)
    check_valid(topics, members, first, complete=False)
    for name, partitions in first.items():
        for other in names:
            assert other == name or not {*partitions} & {*owned[other]}
    second = assignor.assign(topics, owning(members, first, generation=2))
    check_valid(topics, members, second)
    # No member has to revoke anything any more.
    assert kept(first, second) == sum(map(len, first.values()))
    assert unevenness(second) == unevenness(StickyAssignor().assign(topics, joined))


def test_chains_of_moves_make_it_even() -> None:
    """No partition of the largest member can move to the smallest directly."""
    members = {
        "large": MemberSubscription(frozenset({"a"})),
        "middle": MemberSubscription(frozenset({"a", "b"})),
        "small": MemberSubscription(frozenset({"b"})),
    }
    owned = {
        "large": [TopicPartition("a", index) for index in range(3)],
        "middle": [TopicPartition("b", index) for index in range(2)],
    }
    assignment = StickyAssignor().assign(plain({"a": 3, "b": 2}), owning(members, owned))
    assert sorted(map(len, assignment.values())) == [1, 2, 2]
    assert kept(owned, assignment) == 3


def test_the_newer_claim_wins_and_equal_claims_are_void() -> None:
    subscription = MemberSubscription(frozenset({"t"}))
    old, new = subscription._replace(generation=1), subscription._replace(generation=2)
    both = (TopicPartition("t", 0), TopicPartition("t", 1))
    assignor = CooperativeStickyAssignor()
    kept = assignor.assign(plain({"t": 2}), {"a": old._replace(owned=both[:1]), "b": new._replace(owned=both[:1])})
    assert kept["b"] == [both[0]]
    assert assignor.assign(plain({"t": 2}), {"a": new._replace(owned=both), "b": new._replace(owned=both)}) == {
        "a": [],
        "b": [],
    }


def test_generations_in_the_user_data_of_old_members() -> None:
    owned = (TopicPartition("t", 0),)
    old = MemberSubscription(frozenset({"t"}), owned, user_data=b"\0\0\0\1")
    new = MemberSubscription(frozenset({"t"}), owned, user_data=b"\0\0\0\2")
    assert CooperativeStickyAssignor().assign(plain({"t": 1}), {"a": new, "b": old}) == {"a": list(owned), "b": []}


@given(st.binary(max_size=40))
def test_any_user_data_is_accepted(data: bytes) -> None:
    read_user_data(data)


def test_user_data_without_a_generation() -> None:
    assert read_user_data(b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5") == ((TopicPartition("t", 5),), -1)


class First(StatelessAssignor):
    name = "first"

    def assign(
        self, topics: PartitionRacks, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        return {name: [] for name in members}


def test_the_protocol_is_the_newest_that_all_can_follow() -> None:
    assert common_protocol(choose_assignors(["range", "cooperative-sticky"])) == RebalanceProtocol.EAGER
    assert common_protocol(choose_assignors(["cooperative-sticky"])) == RebalanceProtocol.COOPERATIVE


def test_custom_assignors() -> None:
    assert [each.name for each in choose_assignors(["range", "first"], [First()])] == ["range", "first"]
    assert [each.name for each in choose_assignors(["range"], [First()])] == ["first", "range"]
    with pytest.raises(ConfigError, match="'last', only range, roundrobin, sticky, cooperative-sticky, first"):
        choose_assignors(["last"], [First()])
