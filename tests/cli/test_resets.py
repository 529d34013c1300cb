import json

import pytest

from rookery.base.types import TopicPartition
from rookery.cli.resets import (
    PartitionFacts,
    Reset,
    ShiftBy,
    ToEarliest,
    ToGiven,
    ToLatest,
    ToOffset,
    TopicChoice,
    ToTimestamp,
    choose,
    parse_file,
    parse_topic,
    plan,
)

TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("reset", "facts", "expected"),
    [
        (ToEarliest(), PartitionFacts(50, 10, 100), 10),
        (ToLatest(), PartitionFacts(None, 10, 100), 100),
        (ToTimestamp(1), PartitionFacts(50, 10, 100, at_timestamp=70), 70),
        (ToTimestamp(1), PartitionFacts(50, 10, 100), 100),
        (ToOffset(42), PartitionFacts(50, 10, 100), 42),
        (ToOffset(5), PartitionFacts(50, 10, 100), 10),
        (ToOffset(500), PartitionFacts(50, 10, 100), 100),
        (ShiftBy(-20), PartitionFacts(50, 10, 100), 30),
        (ShiftBy(-60), PartitionFacts(50, 10, 100), 10),
        (ShiftBy(60), PartitionFacts(50, 10, 100), 100),
        (ToGiven({TP: 33}), PartitionFacts(50, 10, 100), 33),
    ],
)
def test_the_new_offset_is_within_the_log(reset: Reset, facts: PartitionFacts, expected: int) -> None:
    (change,) = plan(reset, {TP: facts})
    assert (change.partition, change.old, change.new) == (TP, facts.committed, expected)


def test_a_shift_needs_a_committed_offset() -> None:
    with pytest.raises(ValueError, match="t-0 has no committed offset to shift"):
        plan(ShiftBy(1), {TP: PartitionFacts(None, 0, 9)})


def test_topics_with_all_or_some_partitions() -> None:
    assert parse_topic("orders") == TopicChoice("orders", ())
    assert parse_topic("orders:2,0,2") == TopicChoice("orders", (0, 2))
    for wrong in ("", ":1", "orders:", "orders:a", "orders:-1"):
        with pytest.raises(ValueError, match="must have the form TOPIC or"):
            parse_topic(wrong)


def test_without_a_choice_all_committed_partitions_are_chosen() -> None:
    counts = {"a": 2, "b": 3}
    chosen = choose([TopicChoice("a", ()), TopicChoice("b", (2,))], counts, [TP])
    assert [str(tp) for tp in chosen] == ["a-0", "a-1", "b-2"]
    assert choose([], {}, [TP]) == [TP]
    with pytest.raises(ValueError, match="topic a has 2 partitions, and no partition 7"):
        choose([TopicChoice("a", (7,))], counts, [])


def test_files() -> None:
    expected = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    assert parse_file("t,0,5\nt,1,7\n", "g") == expected
    assert parse_file("group,topic,partition,offset\ng,t,0,5\nother,t,9,9\n# a remark\n\ng, t, 1, 7\n", "g") == expected
    rows = [{"topic": "t", "partition": 0, "offset": 5}, {"topic": "t", "partition": 1, "new_offset": 7}]
    assert parse_file(json.dumps(rows), "g") == expected
    assert parse_file(json.dumps({"group": "g", "offsets": rows}), "g") == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("t,0,5\nt,1\n", "line 2 must have the form topic,partition,offset"),
        ("t,0,soon", "line 1 must have the form topic,partition,offset"),
        ("a,b,c,0,5", "line 1 must have the form topic,partition,offset"),
        ("[", "not valid JSON"),
        ("{}", "no list of offsets"),
        ('[{"topic": "t"}]', "must have topic, partition and offset"),
        ("[1]", "must have topic, partition and offset"),
    ],
)
def test_an_invalid_file_is_reported(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_file(text, "g")
