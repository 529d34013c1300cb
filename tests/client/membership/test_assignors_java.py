"""The assignors compared with Java's: assignments and encoded bytes.

`java_assignments.json` holds the assignments of kafka-clients 4.3.1 for random groups: range and roundrobin are
compared exactly. Java's sticky assignors depend on the order of hash maps where several assignments are equally good:
the tests compare how even the assignment is and how many partitions stay.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.base.types import TopicPartition
from rookery.client.membership.assignors.base import Assignor, MemberSubscription, PartitionRacks
from rookery.client.membership.assignors.range import RangeAssignor
from rookery.client.membership.assignors.round_robin import RoundRobinAssignor
from rookery.client.membership.assignors.sticky import CooperativeStickyAssignor, StickyAssignor, read_user_data
from rookery.protocol import consumer_protocol
from rookery.protocol.consumer_protocol import Subscription
from tests.client.membership.random_groups import Given, Members, check_valid, kept, owning, unevenness

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "java_assignments.json").read_text(encoding="utf-8"))
WIRE = {name: bytes.fromhex(text) for name, text in GOLDEN["wire"].items()}
OWNED = (TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("bc", 1))


def cases(assignor: str) -> list[Any]:
    return [pytest.param(case, id=str(number)) for number, case in enumerate(GOLDEN["cases"]) if case.get(assignor)]


def read_topics(case: dict[str, Any]) -> PartitionRacks:
    return {
        topic: [frozenset()] * racks if isinstance(racks, int) else [frozenset(each) for each in racks.split(",")]
        for topic, racks in case["topics"].items()
    }


def read_owned(member: dict[str, Any]) -> list[TopicPartition]:
    named = (text.rpartition("-") for text in member.get("owned", "").split())
    return [TopicPartition(topic, int(index)) for topic, _, index in named]


def read_members(case: dict[str, Any]) -> Members:
    members = {
        name: MemberSubscription(
            frozenset(member["topics"].split()), instance_id=member.get("instance"), rack=member.get("rack")
        )
        for name, member in case["members"].items()
    }
    owned = {name: read_owned(member) for name, member in case["members"].items()}
    return owning(members, owned, generation=5) if any(owned.values()) else members


def read_assignment(case: dict[str, Any], assignor: str) -> dict[str, list[TopicPartition]]:
    return {
        member: [TopicPartition(topic, int(index)) for topic, indexes in topics.items() for index in indexes]
        for member, topics in case[assignor].items()
    }


@pytest.mark.parametrize("case", cases("range"))
def test_range_assigns_like_java(case: dict[str, Any]) -> None:
    compare_exactly(RangeAssignor(), case)


@pytest.mark.parametrize("case", cases("roundrobin"))
def test_round_robin_assigns_like_java(case: dict[str, Any]) -> None:
    compare_exactly(RoundRobinAssignor(), case)


def compare_exactly(assignor: Assignor, case: dict[str, Any]) -> None:
    ours = assignor.assign(read_topics(case), read_members(case))
    assert {member: sorted(given) for member, given in ours.items()} == read_assignment(case, assignor.name)


def before(members: Members) -> Given:
    return {
        name: [tp for tp in subscription.owned if tp.topic in subscription.topics]
        for name, subscription in members.items()
    }


@pytest.mark.parametrize("case", cases("sticky"))
def test_sticky_is_as_even_and_as_sticky_as_java(case: dict[str, Any]) -> None:
    topics, members = read_topics(case), read_members(case)
    ours, java = StickyAssignor().assign(topics, members), read_assignment(case, "sticky")
    check_valid(topics, members, ours)
    assert unevenness(ours) <= unevenness(java)
    if unevenness(ours) == unevenness(java):
        assert kept(before(members), ours) >= kept(before(members), java)


@pytest.mark.parametrize("case", cases("cooperative-sticky"))
def test_cooperative_sticky_is_as_even_and_as_sticky_as_java(case: dict[str, Any]) -> None:
    """Compares what each member keeps now; what must be revoked first is assigned in the next rebalance."""
    topics, members = read_topics(case), read_members(case)
    ours, java = CooperativeStickyAssignor().assign(topics, members), read_assignment(case, "cooperative-sticky")
    check_valid(topics, members, ours, complete=False)
    final = StickyAssignor().assign(topics, members)
    if unevenness(final) == unevenness(read_assignment(case, "sticky")):
        assert kept(before(members), ours) >= kept(before(members), java)


def test_user_data_as_java_writes_it() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.user_data(frozenset()) is None
    assert cooperative.user_data(frozenset()) == WIRE["cooperative-sticky-new"]
    sticky.on_assignment(OWNED, 7)
    cooperative.on_assignment(OWNED, 7)
    assert cooperative.user_data(frozenset({"a", "bc"})) == WIRE["cooperative-sticky"]
    # Java lists the topics in any order.
    owned, generation = read_user_data(WIRE["sticky"])
    assert (sorted(owned), generation) == (list(OWNED), 7)
    ours = sticky.user_data(frozenset({"a", "bc"}))
    assert ours is not None
    assert len(ours) == len(WIRE["sticky"])
    assert read_user_data(ours) == (OWNED, 7)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_and_assignments_as_java_writes_them(version: int) -> None:
    subscription = Subscription(version, frozenset({"a", "bc"}), OWNED, "east", 7, b"\1\2")
    assert consumer_protocol.write_subscription(subscription) == WIRE[f"subscription-{version}"]
    topics = [("a", [0, 3]), ("bc", [1])]
    assert consumer_protocol.write_assignment(version, topics) == WIRE[f"assignment-{version}"]
