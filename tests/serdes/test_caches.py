import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rookery.serdes.caches import OnceCache


def test_many_threads_make_a_value_once() -> None:
    made: list[int] = []
    barrier = threading.Barrier(8)

    def make(key: int) -> list[int]:
        made.append(key)
        return [key]

    cache = OnceCache(make)

    def ask(_: int) -> list[int]:
        barrier.wait(60)
        return cache[7]

    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(ask, range(8)))
    assert made == [7]
    assert all(value is values[0] for value in values)


def test_failures_are_not_cached() -> None:
    attempts = iter([False, True])

    def make(key: str) -> str:
        if not next(attempts):
            raise ValueError("not yet")
        return "made"

    cache = OnceCache(make)
    with pytest.raises(ValueError, match="not yet"):
        cache["key"]
    assert cache["key"] == "made"


def test_requests_for_other_keys_do_not_wait() -> None:
    slow_started, finish = threading.Event(), threading.Event()

    def make(key: str) -> str:
        if key == "slow":
            slow_started.set()
            assert finish.wait(10)
        return key

    cache = OnceCache(make)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(cache.__getitem__, "slow")
        assert slow_started.wait(10)
        assert cache["quick"] == "quick"
        finish.set()
        assert slow.result(10) == "slow"


def test_keys_that_fail_leave_nothing_behind() -> None:
    def make(key: int) -> int:
        raise ValueError("never")

    cache = OnceCache(make)
    for key in range(100):
        with pytest.raises(ValueError, match="never"):
            cache[key]
    assert len(cache._key_locks) == 0
