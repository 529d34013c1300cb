from random import Random

from rookery.client.backoff import Backoff


def test_pauses_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.pause_s(attempt) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.pause_s(10_000) == 1.0


def test_randomness_spreads_pauses_by_a_fifth() -> None:
    backoff, randomness = Backoff(0.1, 1.0), Random(1)
    pauses = [backoff.pause_s(0, randomness) for _ in range(200)]
    assert 0.08 <= min(pauses) < 0.085
    assert 0.115 < max(pauses) <= 0.12
    assert max(backoff.pause_s(20, randomness) for _ in range(200)) == 1.0


def test_a_pause_of_zero_stays_zero() -> None:
    assert Backoff(0.0, 0.0).pause_s(5, Random(1)) == 0.0
