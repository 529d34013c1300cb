"""A delayed response completes exactly once: when it is woken, at its deadline, or when it is cancelled."""

import asyncio
from collections.abc import Callable, Set

import pytest

from rookery.base.types import TopicPartition
from rookery.broker.delayed_response import delay_response
from rookery.replication.pending import Pending

A = TopicPartition("a", 0)


def delayed(
    pending: Pending,
    *,
    is_ready: Callable[[Set[TopicPartition]], bool] = lambda changed: True,
    finish: Callable[[], str] = lambda: "done",
    timeout_ms: int = 60_000,
) -> "asyncio.Future[str]":
    return delay_response(pending, [A], timeout_ms=timeout_ms, is_ready=is_ready, finish=finish)


def test_a_wake_or_the_deadline_completes_it() -> None:
    async def main() -> None:
        pending = Pending(asyncio.get_running_loop())
        woken = delayed(pending)
        pending.wake(A)
        assert await woken == "done"
        assert await delayed(pending, is_ready=lambda changed: False, timeout_ms=-5) == "done"
        assert len(pending) == 0

    asyncio.run(main())


def test_cancelled_in_the_turn_of_its_wake() -> None:
    async def main() -> None:
        pending = Pending(asyncio.get_running_loop())
        future = delayed(pending, finish=lambda: str(fails()))
        other = delayed(pending)
        pending.wake(A)
        future.cancel()
        assert await other == "done"
        assert future.cancelled()
        assert len(pending) == 0

    asyncio.run(main())


def fails(*_: object) -> bool:
    raise RuntimeError("a bug")


def test_an_exception_in_one_response_does_not_affect_others() -> None:
    async def main() -> None:
        pending = Pending(asyncio.get_running_loop())
        futures = [
            delayed(pending, is_ready=fails),
            delayed(pending, finish=lambda: str(fails())),
            delayed(pending, finish=lambda: str(fails()), timeout_ms=0),
            delayed(pending),
        ]
        pending.wake(A)
        for future in futures[:3]:
            with pytest.raises(RuntimeError):
                await future
        assert await futures[3] == "done"

    asyncio.run(main())
