import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.dead_letters.progress import METADATA_LENGTH_MAX, Progress, TooManyHolesError, read_progress

RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


@given(st.integers(0, 20), RUNS)
def test_progress_is_a_set_of_offsets_and_survives_a_round_trip(position: int, runs: list[tuple[int, int]]) -> None:
    done = set(range(position))
    progress = Progress(position)
    for start, length in runs:
        progress.add(start, start + length)
        done |= set(range(start, start + length))
    again = read_progress(progress.position, progress.metadata())
    for found in (progress, again):
        assert {offset for offset in range(100) if offset in found} == done
        assert found.position not in found
        assert found.end == max(done, default=-1) + 1


def test_the_metadata_alternate_open_and_done_runs() -> None:
    progress = Progress(5)
    progress.add(8, 10)
    assert progress.metadata() == "+3,2"
    progress.add(20, 21)
    assert progress.metadata() == "+3,2,10,1"
    progress.add(5, 8)
    assert (progress.position, progress.metadata()) == (10, "+10,1")
    progress.add(10, 20)
    assert (progress.position, progress.metadata()) == (21, "")


@pytest.mark.parametrize("metadata", ["", "+", "by hand", "+1,x", "+1,-1", "3,2", "+1,,2"])
def test_metadata_in_another_format_is_ignored(metadata: str) -> None:
    progress = read_progress(7, metadata)
    assert (progress.position, progress.end) == (7, 7)


def test_long_runs_cost_constant_memory() -> None:
    progress = read_progress(0, "+1,999999999999999")
    assert progress.end == 10**15
    assert 10**14 in progress


def test_too_many_holes_are_rejected() -> None:
    progress = Progress()
    for offset in range(1, METADATA_LENGTH_MAX, 2):
        progress.add(offset, offset + 1)
    with pytest.raises(TooManyHolesError, match="4096"):
        progress.metadata()
