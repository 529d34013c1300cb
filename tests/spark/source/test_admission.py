"""The number of offsets in a micro-batch, and its delay."""

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


def test_every_partition_with_a_lag_gets_an_offset() -> None:
    assert share(5, {ZERO: 0, ONE: 0}, {ZERO: 10**9, ONE: 1}) == {ZERO: 4, ONE: 1}


@given(PLACES, st.integers(1, 10**9))
def test_a_share_advances_and_does_not_pass_the_end(places: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
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
    partition_lags = {ZERO: 1000, ONE: 1000}
    samples = {ZERO: StoredRun(1000, 10), ONE: StoredRun(1000, 1)}
    # 100 kB and 1 MB: a limit of a tenth of that is a tenth of the offsets.
    assert offsets_within(110_000, partition_lags, samples) == 200
    assert offsets_within(1_100_000, partition_lags, samples) is None
    assert offsets_within(1, partition_lags, samples) == 1


def test_a_partition_without_a_sample_counts_as_average() -> None:
    partition_lags = {ZERO: 1000, ONE: 1000}
    assert offsets_within(100_000, partition_lags, {ZERO: StoredRun(1000, 10)}) == 1000
    assert offsets_within(100_000, partition_lags, {}) is None
    assert offsets_within(100_000, partition_lags, {ZERO: StoredRun(0, 0)}) is None


def test_the_gate_waits_for_more_until_the_delay_has_passed() -> None:
    clock = ManualClock()
    gate = Gate(clock=clock)
    limits = Limits(min_offsets=10, max_delay_s=60)
    assert gate.opens(1, limits), "the first call is never delayed"
    assert not gate.opens(9, limits)
    assert gate.opens(10, limits)
    clock.advance(59_000)
    assert not gate.opens(9, limits)
    clock.advance(1000)
    assert gate.opens(9, limits)
    assert not gate.opens(9, limits)
    assert gate.opens(9, Limits())


def test_the_gate_of_an_initially_empty_topic() -> None:
    """Spark's connector measures the delay from its first trigger, even if that found no records."""
    clock = ManualClock()
    gate = Gate(clock=clock)
    limits = Limits(min_offsets=10, max_delay_s=60)
    assert not gate.opens(0, limits)
    clock.advance(59_000)
    assert not gate.opens(1, limits)
    clock.advance(1000)
    assert not gate.opens(0, limits)
    assert not gate.opens(1, limits), "nothing was held back, and the delay restarted"
    clock.advance(60_000)
    assert gate.opens(1, limits)
