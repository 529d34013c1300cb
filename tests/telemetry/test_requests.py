"""Times of requests: the parts of each add up, however they were recorded."""

import pytest

from rookery.telemetry.requests import ApiStats, RequestStats, local_times, queue_times, remote_times, total_times


def test_requests_that_wait_and_those_that_do_not() -> None:
    stats = ApiStats()
    for _ in range(3):
        stats.immediate.record(1000)
    stats.finish(local_us=2000, total_us=12_000)
    assert stats.count == 4
    assert [measure(stats).number for measure in (total_times, local_times, remote_times, queue_times)] == [4] * 4
    assert total_times(stats).sum == pytest.approx(15)
    assert local_times(stats).sum == pytest.approx(5)
    assert remote_times(stats).sum == pytest.approx(10)
    assert remote_times(stats).percentiles[0] == 0


def test_versions_share_the_times_of_their_api() -> None:
    stats = RequestStats()
    assert stats.get("Fetch", 4).api is stats.get("Fetch", 12).api
    assert stats.get("Fetch", 4) is stats.get("Fetch", 4)
    stats.add_error(1, 6)
    stats.add_error(1, 6)
    assert stats.errors == {(1, 6): 2}


def test_a_rotation_reaches_every_histogram() -> None:
    stats = RequestStats()
    stats.get("Fetch", 4).api.immediate.record(10**6)
    for _ in range(5):
        stats.rotate()
    assert total_times(stats.get("Fetch", 4).api).maximum == 0
