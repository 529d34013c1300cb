"""The assignors by their properties: coverage, balance and stability; which member gets which partition may vary."""

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicId
from rookery.coordinators.group.consumer import assignment
from rookery.coordinators.group.consumer.assignors import (
    Assignor,
    Subscriber,
    Targets,
    assign_range,
    assign_uniform,
)

TOPICS = [UUID(int=number + 1) for number in range(5)]


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool = False) -> tuple[list[Subscriber], dict[TopicId, int]]:
    counts = {topic_id: draw(st.integers(1, 9)) for topic_id in TOPICS[: draw(st.integers(1, 5))]}
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)), max_size=5)
    all_topics = frozenset(counts)
    free = [(topic_id, index) for topic_id in TOPICS for index in range(10)]
    subscribers = []
    for number in range(draw(st.integers(1, 6))):
        # Present assignments: any partitions, also of missing or unsubscribed topics, each of one member.
        had = draw(st.lists(st.sampled_from(free), unique=True, max_size=8)) if free else []
        free = [partition for partition in free if partition not in had]
        topic_ids = all_topics if homogeneous else draw(subscriptions)
        instance_id = draw(st.none() | st.just(f"instance-{9 - number}"))
        subscribers.append(Subscriber(f"member-{number}", instance_id, topic_ids, assignment.collect(had)))
    return subscribers, counts


def check_coverage(targets: Targets, subscribers: list[Subscriber], counts: Mapping[TopicId, int]) -> None:
    """Check that every partition of every subscribed topic has one owner, which subscribes to it."""
    owners: dict[assignment.Partition, str] = {}
    for subscriber in subscribers:
        for partition in assignment.partitions_of(targets[subscriber.member_id]):
            assert partition not in owners
            assert partition[0] in subscriber.topic_ids
            owners[partition] = subscriber.member_id
    subscribed = frozenset().union(*(subscriber.topic_ids for subscriber in subscribers))
    assert owners.keys() == {(topic_id, index) for topic_id in subscribed for index in range(counts[topic_id])}


def kept(targets: Targets, subscribers: list[Subscriber]) -> int:
    return sum(
        assignment.size(assignment.intersection(subscriber.current, targets[subscriber.member_id]))
        for subscriber in subscribers
    )


def again(
    assignor: Assignor, subscribers: list[Subscriber], counts: Mapping[TopicId, int], targets: Targets
) -> Targets:
    with_targets = [
        Subscriber(item.member_id, item.instance_id, item.topic_ids, targets[item.member_id]) for item in subscribers
    ]
    return assignor(with_targets, counts)


@given(groups())
def test_every_subscribed_partition_has_one_owner(group: tuple[list[Subscriber], dict[TopicId, int]]) -> None:
    subscribers, counts = group
    for assignor in (assign_uniform, assign_range):
        targets = assignor(subscribers, counts)
        assert targets.keys() == {subscriber.member_id for subscriber in subscribers}
        check_coverage(targets, subscribers, counts)
        assert again(assignor, subscribers, counts, targets) == targets, "nothing changed, so nothing moves"


@given(groups(homogeneous=True))
def test_uniform_is_even_and_keeps_all_it_can(group: tuple[list[Subscriber], dict[TopicId, int]]) -> None:
    subscribers, counts = group
    targets = assign_uniform(subscribers, counts)
    sizes = sorted(assignment.size(target) for target in targets.values())
    assert sizes[-1] - sizes[0] <= 1
    assert kept(targets, subscribers) == most_that_can_be_kept(subscribers, counts)


def most_that_can_be_kept(subscribers: list[Subscriber], counts: Mapping[TopicId, int]) -> int:
    """Members keep up to the smaller size; as many members as there are larger shares keep one more."""
    valid = sorted(
        (
            sum(index < counts.get(topic_id, 0) for topic_id, index in assignment.partitions_of(item.current))
            for item in subscribers
        ),
        reverse=True,
    )
    small, larger = divmod(sum(counts.values()), len(subscribers))
    return sum(min(had, small + (position < larger)) for position, had in enumerate(valid))


@given(groups())
def test_no_single_move_makes_uniform_more_even(group: tuple[list[Subscriber], dict[TopicId, int]]) -> None:
    subscribers, counts = group
    targets = assign_uniform(subscribers, counts)
    sizes = {member_id: assignment.size(target) for member_id, target in targets.items()}
    for donor in subscribers:
        for recipient in subscribers:
            if targets[donor.member_id].keys() & recipient.topic_ids:
                assert sizes[donor.member_id] - sizes[recipient.member_id] <= 1


@given(groups())
def test_range_assigns_contiguous_partitions_evenly(group: tuple[list[Subscriber], dict[TopicId, int]]) -> None:
    subscribers, counts = group
    targets = assign_range(subscribers, counts)
    for topic_id in counts:
        sizes = []
        for subscriber in subscribers:
            if topic_id in subscriber.topic_ids:
                indexes = sorted(targets[subscriber.member_id].get(topic_id, ()))
                assert indexes == list(range(indexes[0], indexes[-1] + 1)) if indexes else True
                sizes.append(len(indexes))
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_range_puts_static_members_first_and_partitions_topics_alike() -> None:
    counts = {TOPICS[0]: 3, TOPICS[1]: 3}
    everything = frozenset(counts)
    subscribers = [
        Subscriber("a", None, everything, {}),
        Subscriber("z", "instance-1", everything, {}),
    ]
    assert assign_range(subscribers, counts) == {
        "z": {topic_id: frozenset((0, 1)) for topic_id in counts},
        "a": {topic_id: frozenset((2,)) for topic_id in counts},
    }


def test_a_large_group_is_assigned_quickly_enough() -> None:
    """A member's ten thousand partitions are shared with a thousand others: no step may iterate over all members."""
    counts = {UUID(int=number + 1): 100 for number in range(100)}
    everything = frozenset(counts)
    first = Subscriber("member-0", None, everything, {topic_id: frozenset(range(100)) for topic_id in counts})
    others = [Subscriber(f"member-{number}", None, everything, {}) for number in range(1, 1001)]
    targets = assign_uniform([first, *others], counts)
    sizes = {assignment.size(target) for target in targets.values()}
    assert sizes == {9, 10}
