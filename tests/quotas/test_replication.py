"""The throttled replicas of a broker, and when their rate is exceeded."""

from hypothesis import given
from hypothesis import strategies as st

from rookery.base.types import TopicPartition
from rookery.quotas.replication import ReplicationThrottle
from rookery.telemetry.sensors import Windows


def test_the_replicas_of_a_topic() -> None:
    throttle = ReplicationThrottle()
    assert not throttle.is_active
    throttle.set_replicas("all", ["*"], 1)
    throttle.set_replicas("some", ["0:1", "1:2", "7:1"], 1)
    throttle.set_replicas("others", ["0:2"], 1)
    applies = [
        (name, index)
        for name in ("all", "some", "others")
        for index in range(9)
        if throttle.applies_to(TopicPartition(name, index))
    ]
    assert applies == [("all", index) for index in range(9)] + [("some", 0), ("some", 7)]
    throttle.set_replicas("all", [], 1)
    throttle.set_replicas("some", ["0:2"], 1)
    assert not throttle.is_active


def test_a_burst_counts_at_once_and_is_forgotten_with_its_windows() -> None:
    throttle = ReplicationThrottle(Windows(11, 1.0))
    throttle.record(5000, 100.0)
    assert not throttle.is_exceeded(100.0)
    throttle.set_rate(1000)
    assert throttle.is_exceeded(100.0)
    assert throttle.is_exceeded(104.9)
    assert not throttle.is_exceeded(105.1)
    throttle.set_rate(0)
    assert throttle.is_exceeded(110.9)
    assert not throttle.is_exceeded(111.0)


@given(st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 4_000)), min_size=1, max_size=80))
def test_copying_while_the_rate_is_not_exceeded_holds_the_rate(steps: list[tuple[int, int]]) -> None:
    throttle, now_s, total, largest = ReplicationThrottle(Windows(11, 1.0)), 0.0, 0, 0
    throttle.set_rate(1000)
    for pause_ms, size in steps:
        now_s += pause_ms / 1000
        if not throttle.is_exceeded(now_s):
            throttle.record(size, now_s)
            total, largest = total + size, max(largest, size)
        assert total <= 1000 * (now_s + 1) + largest * (1 + now_s / 11)
