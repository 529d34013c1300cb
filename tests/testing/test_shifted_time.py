"""Advancing a loop's time: timers fire in order, once, and see the new time."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rookery.base.clock import SystemClock
from rookery.testing.shifted_time import ShiftedClock, ShiftedLoop, TimeShift, jump

HOUR = 3600.0


def run(shift: TimeShift, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: ShiftedLoop(shift)) as runner:
        runner.run(work)


def test_due_timers_have_fired_in_order_when_a_jump_returns() -> None:
    shift = TimeShift()
    fired: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(HOUR, fired.append, "hour")
        loop.call_later(60, fired.append, "minute")
        later = loop.call_later(2 * HOUR, fired.append, "two hours")
        await jump(shift, HOUR + 1)
        assert fired == ["minute", "hour"]
        later.cancel()

    run(shift, scenario())


def test_tasks_that_timers_wake_have_run_when_a_jump_returns() -> None:
    shift = TimeShift()
    seen: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()

        async def repeat() -> None:
            while True:
                await asyncio.sleep(60)
                seen.append(loop.time() - start)

        task = asyncio.create_task(repeat())
        await asyncio.sleep(0)
        await jump(shift, HOUR)
        assert len(seen) == 1, "a jump is one step"
        assert seen[0] >= HOUR
        await jump(shift, HOUR)
        assert len(seen) == 2
        task.cancel()

    run(shift, scenario())


def test_time_outs_expire() -> None:
    shift = TimeShift()

    async def scenario() -> None:
        waiting = asyncio.create_task(asyncio.wait_for(asyncio.Event().wait(), HOUR))
        await asyncio.sleep(0)
        await jump(shift, HOUR)
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], TimeoutError)

    run(shift, scenario())


def test_clock_and_loop_move_together() -> None:
    shift = TimeShift()
    clock, real = ShiftedClock(shift), SystemClock()
    shift.seconds = HOUR
    # The real clock is read first, so that its time is not later.
    assert real.now_ms() + 3_599_000 <= clock.now_ms()
    assert real.monotonic() + HOUR <= clock.monotonic()
