"""Ranges of offsets and their division into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.spark.source.ranges import OffsetRange, ranges_between, split_ranges


def some_range(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), start, end)


RANGES = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=8).map(
    lambda rows: [some_range(index, start, start + size) for index, (start, size) in enumerate(rows)]
)
LIMITS = st.none() | st.integers(1, 40)


def split(ranges: list[OffsetRange], *, least: int | None = None, most: int | None = None) -> list[OffsetRange]:
    return split_ranges(ranges, min_partitions=least, max_records=most)


def test_empty_ranges_are_dropped() -> None:
    zero, one, two = (TopicPartition("t", index) for index in range(3))
    assert ranges_between({zero: 1, one: 5, two: 0}, {zero: 3, one: 5}) == [OffsetRange(zero, 1, 3)]
    assert ranges_between({zero: 5}, {zero: 3}) == []


def test_without_options_ranges_stay_whole() -> None:
    ranges = [some_range(0, 0, 100), some_range(1, 0, 10)]
    assert split([*ranges, some_range(2, 5, 5)]) == ranges
    assert split(ranges, least=2) == ranges


def test_long_ranges_are_split_and_short_ones_are_not() -> None:
    ranges = [some_range(0, 0, 90), some_range(1, 0, 10)]
    assert split(ranges, least=4) == [
        some_range(0, 0, 30),
        some_range(0, 30, 60),
        some_range(0, 60, 90),
        some_range(1, 0, 10),
    ]


def test_no_task_exceeds_the_limit() -> None:
    assert split([some_range(0, 0, 10)], most=4) == [some_range(0, 0, 3), some_range(0, 3, 6), some_range(0, 6, 10)]
    assert len(split([some_range(0, 0, 10)], most=4, least=5)) >= 5


def test_half_a_task_is_rounded_up_as_in_java() -> None:
    # 5 of 20 offsets and 6 tasks: 1.5 tasks, rounded to 2.
    assert (
        len([part for part in split([some_range(0, 0, 5), some_range(1, 0, 15)], least=6) if part.partition[1] == 0])
        == 2
    )


@given(RANGES, LIMITS, st.none() | st.integers(1, 10**6))
def test_the_parts_cover_the_ranges(ranges: list[OffsetRange], least: int | None, most: int | None) -> None:
    # A limit that results in a million tasks tests nothing more, and takes long.
    most = None if most is not None and sum(each.size for each in ranges) // most > 1000 else most
    parts = split(ranges, least=least, most=most)
    assert all(part.size > 0 for part in parts)
    for whole in ranges:
        mine = [part for part in parts if part.partition == whole.partition]
        position = whole.start
        for part in mine:
            assert part.start == position
            position = part.end
        assert position == whole.end or whole.size == 0
        if most is not None:
            assert all(part.size <= most for part in mine)
        elif mine:
            assert max(part.size for part in mine) - min(part.size for part in mine) <= 1


@given(RANGES, st.integers(1, 40))
def test_there_are_about_as_many_tasks_as_wanted(ranges: list[OffsetRange], least: int) -> None:
    parts = split(ranges, least=least)
    total = sum(each.size for each in ranges)
    if total >= 2 * least:
        # Rounding takes at most half a task from each range.
        assert len(parts) >= least - len(ranges) / 2 - 1
