"""How much a micro-batch takes."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.clock import ManualClock
from rookery.base.types import TopicPartition
from rookery.client.consume.ranges import StoredRun
from rookery.spark.offsets import Offsets
from rookery.spark.source.admission import Gate, Limits, lags, offsets_within, share

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
PLACES = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 9)),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)),
    min_size=1,
)


def test_shares_are_in_proportion_to_the_lag() -> None:
    starts, ends = {ZERO: 0, ONE: 100}, {ZERO: 900, ONE: 200}
    assert share(10, starts, ends) == {ZERO: 9, ONE: 101}
    assert share(1000, starts, ends) == ends
    assert lags(starts, ends) == {ZERO: 900, ONE: 100}


def test_nobody_starves() -> None:
    assert share(5, {ZERO: 0, ONE: 0}, {ZERO: 10**9, ONE: 1}) == {ZERO: 4, ONE: 1}


@given(PLACES, st.integers(1, 10**9))
def test_a_share_moves_on_and_not_too_far(places: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    starts: Offsets = {tp: start for tp, (start, _) in places.items()}
    ends: Offsets = {tp: start + lag for tp, (start, lag) in places.items()}
    shared = share(limit, starts, ends)
    assert shared.keys() == ends.keys()
    for tp in ends:
        assert starts[tp] <= shared[tp] <= ends[tp]
        assert shared[tp] > starts[tp] or starts[tp] == ends[tp]
    assert sum(lags(starts, shared).values()) <= limit + len(places)


@given(PLACES, st.integers(1, 1000))
def test_shares_reach_the_end(places: dict[TopicPartition, tuple[int, int]], parts: int) -> None:
    starts: Offsets = {tp: start for tp, (start, _) in places.items()}
    ends: Offsets = {tp: start + lag for tp, (start, lag) in places.items()}
    limit = max(sum(lags(starts, ends).values()) // parts, 1)
    for _ in range(3 * parts + len(places) + 3):
        starts = share(limit, starts, ends)
    assert starts == ends


def test_a_limit_in_bytes() -> None:
    behind = {ZERO: 1000, ONE: 1000}
    samples = {ZERO: StoredRun(1000, 10), ONE: StoredRun(1000, 1)}
    # 100 kB and 1 MB: a tenth of them is a tenth of the offsets.
    assert offsets_within(110_000, behind, samples) == 200
    assert offsets_within(1_100_000, behind, samples) is None
    assert offsets_within(1, behind, samples) == 1


def test_what_was_not_measured_is_taken_to_be_as_the_rest() -> None:
    behind = {ZERO: 1000, ONE: 1000}
    assert offsets_within(100_000, behind, {ZERO: StoredRun(1000, 10)}) == 1000
    assert offsets_within(100_000, behind, {}) is None
    assert offsets_within(100_000, behind, {ZERO: StoredRun(0, 0)}) is None


def test_the_gate_waits_for_more_but_not_for_ever() -> None:
    clock = ManualClock()
    gate = Gate(clock=clock)
    limits = Limits(min_offsets=10, max_delay_s=60)
    assert gate.opens(1, limits), "what is there at first is not held back"
    assert not gate.opens(9, limits)
    assert gate.opens(10, limits)
    clock.advance(59_000)
    assert not gate.opens(9, limits)
    clock.advance(1000)
    assert gate.opens(9, limits)
    assert not gate.opens(9, limits)
    assert gate.opens(9, Limits())


def test_the_gate_of_a_topic_that_is_empty_at_first() -> None:
    """Spark's connector takes the time from its first trigger, whatever that found."""
    clock = ManualClock()
    gate = Gate(clock=clock)
    limits = Limits(min_offsets=10, max_delay_s=60)
    assert not gate.opens(0, limits)
    clock.advance(59_000)
    assert not gate.opens(1, limits)
    clock.advance(1000)
    assert not gate.opens(0, limits)
    assert not gate.opens(1, limits), "nothing was held back, and the time began anew"
    clock.advance(60_000)
    assert gate.opens(1, limits)
