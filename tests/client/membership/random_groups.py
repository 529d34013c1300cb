"""Random groups for the tests of assignors, and measures of an assignment's quality."""

from collections.abc import Collection, Mapping

from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.client.membership.assignors.base import MemberSubscription, PartitionRacks
from rookery.client.membership.assignors.sticky import write_user_data

Members = dict[str, MemberSubscription]
Given = Mapping[str, Collection[TopicPartition]]
TOPICS = ("a", "b", "c", "d")


def plain(counts: Mapping[str, int]) -> PartitionRacks:
    return {topic: [frozenset()] * count for topic, count in counts.items()}


def topics() -> st.SearchStrategy[PartitionRacks]:
    return st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1).map(plain)


def racked_topics() -> st.SearchStrategy[PartitionRacks]:
    racks = st.frozensets(st.sampled_from("xyz"), max_size=2)
    return st.dictionaries(st.sampled_from(TOPICS), st.lists(racks, min_size=1, max_size=7), min_size=1)


def members(*, same_topics: bool = False) -> st.SearchStrategy[Members]:
    """Generate up to six members, with few draws, so that many groups can be tested."""
    choices = [frozenset(topic for bit, topic in enumerate(TOPICS) if mask >> bit & 1) for mask in range(1, 16)]
    row = st.tuples(st.integers(0, 6), st.sampled_from(choices), st.sampled_from((None, "x", "y", "z")))

    def build(rows: list[tuple[int, frozenset[str], str | None]]) -> Members:
        return {
            f"m{number}": MemberSubscription(rows[0][1] if same_topics else topics, rack=rack)
            for number, topics, rack in rows
        }

    return st.lists(row, min_size=1, max_size=6, unique_by=lambda entry: entry[0]).map(build)


def owning(members: Members, assignment: Given, *, generation: int = 1) -> Members:
    """Return the members as they join again after `assignment`, with what each sticky assignor expects."""
    return {
        name: subscription._replace(
            owned=tuple(assignment.get(name, ())),
            generation=generation,
            user_data=write_user_data(assignment.get(name, ()), generation),
        )
        for name, subscription in members.items()
    }


def check_valid(topics: PartitionRacks, members: Members, assignment: Given, *, complete: bool = True) -> None:
    """Check that members get only topics they subscribe to, no partition twice, and (if `complete`) all partitions."""
    assert assignment.keys() == members.keys()
    given = [tp for partitions in assignment.values() for tp in partitions]
    assert len(given) == len(set(given))
    for member, partitions in assignment.items():
        assert {tp.topic for tp in partitions} <= members[member].topics
    subscribed = frozenset[str]().union(*(subscription.topics for subscription in members.values()))
    wanted = {TopicPartition(t, i) for t in topics.keys() & subscribed for i in range(len(topics[t]))}
    assert set(given) <= wanted
    if complete:
        assert set(given) == wanted


def unevenness(assignment: Given) -> int:
    """Return a number that grows with every step away from an even assignment."""
    return sum(len(partitions) ** 2 for partitions in assignment.values())


def kept(before: Given, after: Given) -> int:
    """Return how many partitions stayed with their members."""
    return sum(len({*partitions} & {*after.get(member, ())}) for member, partitions in before.items())
