"""Offsets in JSON, as options and checkpoints have them."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.spark.offsets import (
    OffsetJson,
    Offsets,
    check_all_named,
    describe,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    parse_partitions,
)
from rookery.spark.option_table import OptionError

PARTITIONS = st.builds(TopicPartition, st.text("abc.-_", min_size=1, max_size=4), st.integers(0, 20))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(-2, 2**63 - 1))


def test_the_form_is_that_of_sparks_connector() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    assert json.dumps(offsets_to_json(offsets)) == '{"a": {"9": 3, "10": 2}, "b": {"0": 1}}'


@given(OFFSETS)
def test_offsets_survive_a_checkpoint(offsets: Offsets) -> None:
    text = json.dumps(offsets_to_json(offsets))
    assert offsets_from_json(json.loads(text)) == offsets
    assert parse_offsets("startingOffsets", text) == offsets


@given(OFFSETS)
def test_equal_offsets_have_equal_texts(offsets: Offsets) -> None:
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(offsets_to_json(offsets)) == json.dumps(offsets_to_json(backwards))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(JSON.map(json.dumps) | st.text(max_size=20))
def test_any_text_is_parsed_or_an_option_error(text: str) -> None:
    for parse in (parse_offsets, parse_partitions):
        with suppress(OptionError):
            parse("an option", text)


def test_offsets_name_all_partitions_and_no_others() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    check_all_named("startingOffsets", [zero, one], [one, zero])
    with pytest.raises(OptionError, match="startingOffsets must name all partitions that are read; it lacks t-1"):
        check_all_named("startingOffsets", [zero], [zero, one])
    with pytest.raises(OptionError, match="startingOffsets names t-1, which are not read"):
        check_all_named("startingOffsets", [zero, one], [zero])


def test_many_partitions_are_abbreviated() -> None:
    assert describe(TopicPartition("t", index) for index in range(12)).endswith("t-9 and 2 more")
    assert describe([TopicPartition("t", 0)]) == "t-0"


def test_an_empty_checkpoint() -> None:
    nothing: OffsetJson = {}
    assert offsets_from_json(nothing) == {}
    assert offsets_to_json({}) == {}
