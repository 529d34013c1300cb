"""Placement of replicas: spread over racks first, then over brokers, with evenly spread leaders."""

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.controller import placement
from rookery.controller.placement import replica_counts
from rookery.metadata.image import BrokerImage
from rookery.metadata.records import BrokerRegistrationChangeRecord, PartitionRecord, TopicRecord
from tests.controller.cluster import broker, directory, image_of


def place(
    some: Iterable[BrokerImage], *, counts: Counter[int] | None = None, **wanted: int
) -> list[tuple[int, ...]] | str:
    """Run all steps of the placement."""
    steps = placement.place(some, counts=Counter() if counts is None else counts, **wanted)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        placed: list[tuple[int, ...]] | str = end.value
        return placed


def brokers(racks: list[str | None], *, fenced: frozenset[int] = frozenset()) -> list[BrokerImage]:
    records = [broker(i, rack=rack, fenced=i in fenced) for i, rack in enumerate(racks, 1)]
    return list(image_of(*records).brokers.values())


@pytest.mark.parametrize(
    ("racks", "start", "expected"),
    [
        ([None], 0, [(1,), (1,), (1,)]),
        ([None, None, None], 0, [(1, 2), (2, 3), (3, 1)]),
        ([None, None, None], 1, [(2, 3), (3, 1), (1, 2)]),
        (["a", "a", "b", "b"], 0, [(1, 3), (3, 2), (2, 4)]),
    ],
)
def test_stripes(racks: list[str | None], start: int, expected: list[tuple[int, ...]]) -> None:
    factor = len(expected[0])
    assert (
        place(brokers(racks), start=start, first_partition=0, partition_count=3, replication_factor=factor) == expected
    )


def test_brokers_that_cannot_lead_are_used_last() -> None:
    some = brokers([None, None, None], fenced=frozenset({2}))
    assert place(some, start=0, first_partition=0, partition_count=2, replication_factor=2) == [(1, 3), (3, 1)]
    assert place(some, start=0, first_partition=0, partition_count=2, replication_factor=3) == [(1, 3, 2), (3, 1, 2)]


def test_too_few_brokers() -> None:
    two = brokers([None, None])
    answer = place(two, start=0, first_partition=0, partition_count=1, replication_factor=3)
    assert answer == ("The target replication factor of 3 cannot be reached because only 2 broker(s) are registered.")
    none = brokers([None], fenced=frozenset({1}))
    answer = place(none, start=0, first_partition=0, partition_count=1, replication_factor=1)
    assert answer == "All brokers are currently fenced or in controlled shutdown."


def test_followers_go_to_brokers_with_fewer_replicas() -> None:
    """A broker that is new gets followers of all partitions, and its share of the leaders."""
    counts = Counter({1: 10, 2: 10, 3: 0})
    placed = place(
        brokers([None, None, None]), start=0, first_partition=0, partition_count=6, replication_factor=2, counts=counts
    )
    assert isinstance(placed, list)
    assert all(3 in replicas for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == {1: 2, 2: 2, 3: 2}
    assert counts == {1: 13, 2: 13, 3: 6}


def test_a_rack_matters_more_than_the_number_of_replicas() -> None:
    counts = Counter({1: 0, 2: 0, 3: 50})
    placed = place(
        brokers(["a", "a", "b"]), start=0, first_partition=0, partition_count=4, replication_factor=2, counts=counts
    )
    assert isinstance(placed, list)
    assert all(3 in replicas for replicas in placed), "the only broker of the other rack"


@pytest.mark.parametrize(
    "change",
    [
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, in_controlled_shutdown=1),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, cordoned_directories=(directory(2),)),
    ],
)
def test_brokers_that_get_no_replica(change: BrokerRegistrationChangeRecord) -> None:
    some = image_of(broker(1), broker(2), broker(3), change).brokers.values()
    assert place(some, start=0, first_partition=0, partition_count=2, replication_factor=2) == [(1, 3), (3, 1)]
    answer = place(some, start=0, first_partition=0, partition_count=1, replication_factor=3)
    assert isinstance(answer, str)


def test_replicas_are_counted() -> None:
    topic = UUID(int=5)
    records = [
        PartitionRecord(partition_id=index, topic_id=topic, replicas=(1, 2 + index), isr=(1,), leader=1)
        for index in (0, 1)
    ]
    assert replica_counts(image_of(TopicRecord("t", topic), *records)) == {1: 2, 2: 1, 3: 1}


@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    st.data(),
    st.integers(0, 1000),
    st.integers(0, 50),
)
def test_properties(racks: list[str | None], data: st.DataObject, start: int, first: int) -> None:
    fenced = data.draw(st.frozensets(st.integers(2, len(racks)) if len(racks) > 1 else st.nothing()))
    factor = data.draw(st.integers(1, len(racks)))
    some = brokers(racks, fenced=fenced)
    placed = place(some, start=start, first_partition=first, partition_count=12, replication_factor=factor)
    assert isinstance(placed, list)
    assert len(placed) == 12
    ready = {image.broker_id for image in some if image.is_active}
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in ready
        assert set(replicas) <= ready or ready <= set(replicas)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 100))
def test_even_racks_lead_evenly(rack_count: int, brokers_per_rack: int, start: int) -> None:
    some = brokers([f"r{i % rack_count}" for i in range(rack_count * brokers_per_rack)])
    placed = place(some, start=start, first_partition=0, partition_count=len(some) * 2, replication_factor=rack_count)
    assert isinstance(placed, list)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {2}
    rack_of = {image.broker_id: image.rack for image in some}
    assert all(len({rack_of[node] for node in replicas}) == rack_count for replicas in placed)
