"""Plans of replicas: they keep what may stay, spread the rest, and are read and written as Kafka does."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.cli.reassignment_plans import Load, format_plan, parse_plan, plan

NOTHING = Load({}, {})


def of(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", index): nodes for index, nodes in enumerate(replicas)}


def racks(*nodes: int) -> dict[int, str | None]:
    return dict.fromkeys(nodes)


def test_nothing_moves_in_a_balanced_cluster() -> None:
    assert plan(of((1, 2), (2, 3), (3, 1)), racks(1, 2, 3), others=NOTHING) == {}


def test_only_replicas_on_other_brokers_move_without_balance() -> None:
    current = of((1, 2), (1, 2), (1, 3), (4, 2))
    assert plan(current, racks(1, 2, 3), others=NOTHING, balance=False) == {TopicPartition("t", 3): (2, 3)}


def test_new_brokers_get_their_share() -> None:
    planned = plan(of((1, 2), (2, 1), (1, 2), (2, 1)), racks(1, 2, 3, 4), others=NOTHING)
    after = {**of((1, 2), (2, 1), (1, 2), (2, 1)), **planned}
    assert Counter(node for nodes in after.values() for node in nodes) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert Counter(nodes[0] for nodes in after.values()) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_replicas_of_other_topics_count() -> None:
    busy = Load({1: 50, 2: 50}, {1: 50, 2: 50})
    planned = plan(of((9,)), racks(1, 2, 3), others=busy, balance=False)
    assert planned == {TopicPartition("t", 0): (3,)}


def test_racks_are_kept_apart() -> None:
    places = {1: "a", 2: "a", 3: "b", 4: "b"}
    ((_, nodes),) = plan(of((1, 9)), places, others=Load({3: 7, 4: 9}, {}), balance=False).items()
    assert nodes == (1, 3)


def test_a_new_replication_factor() -> None:
    assert plan(of((1, 2, 3)), racks(1, 2, 3), others=NOTHING, replication_factor=1) == {TopicPartition("t", 0): (1,)}
    ((_, more),) = plan(of((2,)), racks(1, 2, 3), others=NOTHING, replication_factor=3, balance=False).items()
    assert more == (2, 1, 3)
    shrunk = plan(of((1, 2, 3)), {1: "a", 2: "b", 3: "b"}, others=NOTHING, replication_factor=2)
    assert shrunk == {TopicPartition("t", 0): (1, 2)}


def test_too_few_brokers() -> None:
    with pytest.raises(ValueError, match="partition t-0 needs 2 brokers, and there are 1"):
        plan(of((1, 2)), racks(1), others=NOTHING)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], bool]:
    nodes = list(range(1, draw(st.integers(3, 7)) + 1))
    replicas = st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True).map(tuple)
    current = of(*draw(st.lists(replicas, min_size=1, max_size=20)))
    allowed = draw(st.lists(st.sampled_from(nodes), min_size=3, unique=True))
    return current, {node: draw(st.sampled_from([None, "a", "b"])) for node in allowed}, draw(st.booleans())


@given(clusters())
def test_every_plan_is_valid(case: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], bool]) -> None:
    current, allowed, balance = case
    planned = plan(current, allowed, others=NOTHING, balance=balance)
    after = {**current, **planned}
    for tp, nodes in after.items():
        assert len(nodes) == len(current[tp]) == len(set(nodes))
        assert set(nodes) <= allowed.keys()
        if not balance:
            assert set(nodes) >= set(current[tp]) & allowed.keys()
    if balance and not any(allowed.values()):
        counts = Counter(dict.fromkeys(allowed, 0))
        counts.update(node for nodes in after.values() for node in nodes)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_plans_are_read_and_written_as_kafka_does() -> None:
    assignment = of((1, 2), (3,))
    assert parse_plan(json.dumps(format_plan(assignment))) == assignment
    kafka = '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/data"]}]}'
    assert parse_plan(kafka) == of((1, 2))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "must have the form"),
        ('{"version": 2, "partitions": []}', "must have the form"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t"}]}', "without topic, partition and replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "must list the ids"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "must list the ids"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a broker twice"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 twice",
        ),
    ],
)
def test_a_plan_that_cannot_be_read(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_plan(text)
