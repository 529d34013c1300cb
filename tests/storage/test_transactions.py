from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import CorruptionError
from rookery.storage.transactions import (
    ABORTED_ENTRY_SIZE,
    AbortedIndex,
    AbortedTransaction,
    OpenTransactions,
    find_aborted,
)

# Two transactions that overlap: the second to begin is the first to end, while the other holds back the stable offset.
OVERLAPPING = (AbortedTransaction(7, 15, 20, 10), AbortedTransaction(5, 10, 22, 23))


def index(*entries: AbortedTransaction) -> AbortedIndex:
    result = AbortedIndex()
    for entry in entries:
        result.append(entry)
    return result


def test_index_is_kafkas() -> None:
    """As read by Kafka's DumpLogSegments: version, producer id, first offset, last offset, last stable offset."""
    data = index(*OVERLAPPING).encode()
    assert data == bytes.fromhex(
        "0000 0000000000000007 000000000000000f 0000000000000014 000000000000000a"
        "0000 0000000000000005 000000000000000a 0000000000000016 0000000000000017"
    )
    assert len(data) == 2 * ABORTED_ENTRY_SIZE
    again = AbortedIndex.decode(10, data)
    assert tuple(again) == OVERLAPPING
    assert again.encode() == data


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 100, [(5, 10), (7, 15)]),
        (0, 10, []),
        (0, 11, [(5, 10)]),
        (0, 15, [(5, 10)]),
        (0, 16, [(5, 10), (7, 15)]),
        (20, 21, [(5, 10), (7, 15)]),
        (21, 30, [(5, 10)]),
        (22, 23, [(5, 10)]),
        (23, 30, []),
    ],
)
def test_search(start: int, end: int, found: list[tuple[int, int]]) -> None:
    assert find_aborted([index(*OVERLAPPING)], start, end) == found
    # The markers may lie in two segments.
    assert find_aborted([index(OVERLAPPING[0]), index(OVERLAPPING[1])], start, end) == found


def test_the_search_ends_once_no_later_entry_can_match() -> None:
    def indexes() -> Iterator[AbortedIndex]:
        yield index(*OVERLAPPING)
        raise AssertionError

    assert find_aborted(indexes(), 0, 23) == [(5, 10), (7, 15)]
    with pytest.raises(AssertionError):
        find_aborted(indexes(), 0, 24)


def test_truncation_goes_by_markers() -> None:
    cut = index(*OVERLAPPING)
    cut.truncate_from(23)
    assert len(cut) == 2
    cut.truncate_from(22)
    assert list(cut) == [OVERLAPPING[0]]
    cut.truncate_from(0)
    assert cut.encode() == b""


@pytest.mark.parametrize(
    "entries",
    [
        (AbortedTransaction(1, 12, 9, 13),),
        (AbortedTransaction(1, 5, 9, 10),),
        (AbortedTransaction(1, -1, 12, 13),),
        (AbortedTransaction(1, 10, 12, 13), AbortedTransaction(2, 10, 12, 13)),
    ],
    ids=["begins after its end", "of another segment", "without a beginning", "same marker twice"],
)
def test_damage(entries: tuple[AbortedTransaction, ...]) -> None:
    data = b"".join(index(entry).encode() for entry in entries)
    with pytest.raises(CorruptionError):
        AbortedIndex.decode(10, data)


def test_unknown_version() -> None:
    with pytest.raises(CorruptionError, match="version 1"):
        AbortedIndex.decode(0, b"\0\x01" + index(*OVERLAPPING).encode()[2:])


@given(st.binary(max_size=150))
def test_any_bytes(data: bytes) -> None:
    try:
        found = AbortedIndex.decode(0, data)
    except CorruptionError:
        return
    assert found.encode() == data


def test_nothing_open() -> None:
    assert OpenTransactions().last_stable_offset(12) == 12


def test_the_oldest_open_one_counts() -> None:
    open_ones = OpenTransactions([(2, 8), (1, 5)])
    assert open_ones.last_stable_offset(12) == 5
    assert open_ones.last_stable_offset(3) == 3
    open_ones.end(1, 11)
    assert open_ones.last_stable_offset(11) == 5
    assert open_ones.last_stable_offset(12) == 8
    open_ones.end(2, 12)
    assert open_ones.last_stable_offset(13) == 13


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 3)), max_size=60))
def test_equals_a_simple_computation(steps: list[tuple[int, bool, int]]) -> None:
    """Producers begin and end transactions at increasing offsets; the high watermark follows at some distance."""
    tested, begun, ended = OpenTransactions(), dict[int, int](), list[tuple[int, int]]()
    high_watermark = 0
    for offset, (producer_id, ends, lag) in enumerate(steps):
        if ends and producer_id in begun:
            tested.end(producer_id, offset)
            ended.append((begun.pop(producer_id), offset))
        elif producer_id not in begun:
            tested.begin(producer_id, offset)
            begun[producer_id] = offset
        high_watermark = max(high_watermark, offset + 1 - lag)
        undecided = [first for first, marker in ended if marker >= high_watermark]
        expected = min([high_watermark, *begun.values(), *undecided])
        assert tested.last_stable_offset(high_watermark) == expected
    assert tested.open == begun
