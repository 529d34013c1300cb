"""Buckets against a naive model that keeps every use, and the promise of a quota to a client that waits."""

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.quotas.buckets import RateBucket, TokenBucket
from rookery.telemetry.sensors import Windows

WINDOWS = Windows(11, 1.0)
# The longest silence is longer than all windows together.
steps = st.lists(st.tuples(st.integers(0, 15_000), st.integers(1, 5_000)), min_size=1, max_size=60)


class NaiveRate:
    """Every sample as a list of its uses; those whose last use is 11 windows old are dropped."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, list[tuple[float, float]]]] = []

    def use(self, value: float, now_s: float) -> None:
        if not self.samples or now_s - self.samples[-1][0] >= 1.0:
            self.samples.append((now_s, []))
        self.samples[-1][1].append((now_s, value))

    def throttle_ms(self, limit: float, now_s: float) -> int:
        kept = [(began, uses) for began, uses in self.samples[-12:] if now_s - uses[-1][0] < 11.0]
        total = sum(value for _, uses in kept for _, value in uses)
        elapsed_s = now_s - min(began for began, _ in kept)
        width_s = elapsed_s + max(10 - floor(elapsed_s), 0)
        return max(0, round((total / width_s - limit) / limit * width_s * 1000))


@given(steps)
def test_a_rate_bucket_throttles_as_the_naive_model(uses: list[tuple[int, int]]) -> None:
    bucket, model, now_s = RateBucket(1000, WINDOWS), NaiveRate(), 100.0
    for pause_ms, value in uses:
        now_s += pause_ms / 1024
        model.use(value, now_s)
        assert bucket.use(value, now_s) == pytest.approx(model.throttle_ms(1000, now_s), abs=1)


@given(steps)
def test_a_client_that_waits_never_gets_more_than_a_burst_above_its_rate(uses: list[tuple[int, int]]) -> None:
    bucket, now_s, total, largest = RateBucket(1000, WINDOWS), 0.0, 0, 0
    for pause_ms, value in uses:
        now_s += pause_ms / 1000
        total, largest = total + value, max(largest, value)
        now_s += bucket.use(value, now_s) / 1000
        assert total <= 1000 * (now_s + 11) + largest


def test_a_silent_client_may_send_ten_seconds_worth_at_once() -> None:
    bucket = RateBucket(1000, WINDOWS)
    assert bucket.use(10_000, 50.0) == 0
    assert bucket.use(1_000, 50.0) == 1_000
    # A burst of a gigabyte is not forgiven: the average has to fall to the limit.
    assert RateBucket(1_000_000, WINDOWS).use(10**9, 0.0) == 990_000


def test_a_use_that_is_taken_back_does_not_count() -> None:
    bucket = RateBucket(1000, WINDOWS)
    assert bucket.use(20_000, 1.0) > 0
    bucket.note(-20_000, 1.0)
    assert bucket.rate(1.0) == 0
    assert bucket.use(10_000, 1.0) == 0


def test_a_changed_limit_applies_to_what_was_used_before() -> None:
    bucket = RateBucket(1000, WINDOWS)
    assert bucket.use(10_000, 0.0) == 0
    bucket.limit = 100
    assert bucket.use(1, 0.0) > 0


def test_a_limit_of_zero_blocks() -> None:
    assert RateBucket(0, WINDOWS).use(1, 0.0) == TokenBucket(0, WINDOWS).use(1, 0.0) == 3_600_000


class NaiveTokens:
    """The tokens after each use, from the whole history."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float]] = []

    def tokens(self, limit: float, now_s: float) -> float:
        tokens, at_s = 11 * limit, 0.0
        for used_s, value in self.history:
            tokens = min(11 * limit, tokens + limit * (used_s - at_s)) - value
            at_s = used_s
        return min(11 * limit, tokens + limit * (now_s - at_s))


@given(steps)
def test_a_token_bucket_has_the_tokens_of_the_naive_model(uses: list[tuple[int, int]]) -> None:
    bucket, model, now_s = TokenBucket(100, WINDOWS), NaiveTokens(), 0.0
    for pause_ms, value in uses:
        now_s += pause_ms / 1024
        model.history.append((now_s, value))
        owed = -model.tokens(100, now_s)
        assert bucket.use(value, now_s) == pytest.approx(max(0, round(owed / 100 * 1000)), abs=1)


def test_tokens_are_full_at_first_and_owed_after_one_use_too_many() -> None:
    bucket = TokenBucket(2, WINDOWS)
    assert bucket.tokens(1000.0) == 22
    assert bucket.use(22, 1000.0) == 0
    assert bucket.use(4, 1000.0) == 2000
    assert bucket.wait_ms(1001.0) == 1000
    bucket.note(-100, 1001.0)
    assert bucket.tokens(1001.0) == 22
