"""Virtual time, the order of callbacks, and processes that end between any two of them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Process, SimulatedLoop, StuckError
from tests.simulation.trace import Trace


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(Trace(), lambda: (0.5, 0.25))


def run(loop: SimulatedLoop, body: Coroutine[Any, Any, None]) -> None:
    try:
        loop.run_until_complete(body)
    finally:
        loop.close()


def test_hours_pass_immediately_and_in_order(loop: SimulatedLoop) -> None:
    seen: list[tuple[float, str]] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((loop.time(), name))

    async def main() -> None:
        await asyncio.gather(wait("late", 7200), wait("first", 1), wait("second", 1))

    run(loop, main())
    assert seen == [(1, "first"), (1, "second"), (7200, "late")]


def test_work_for_threads_is_delayed(loop: SimulatedLoop) -> None:
    times: list[float] = []

    async def main() -> None:
        await loop.run_in_executor(None, lambda: times.append(loop.time()))
        times.append(loop.time())
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    run(loop, main())
    assert times == [0.5, 0.75]


def test_a_killed_process_does_nothing_more(loop: SimulatedLoop) -> None:
    seen: list[str] = []
    process = Process("victim", "host")

    async def victim() -> None:
        try:
            for number in range(10):
                seen.append(str(number))
                await asyncio.sleep(1)
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        task = loop.spawn(process, victim())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)
        assert not task.done()
        assert seen == ["0", "1", "2"]
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it stays pending on purpose

    run(loop, main())


def test_a_paused_process_continues_where_it_was(loop: SimulatedLoop) -> None:
    seen: list[float] = []
    process = Process("sleeper", "host")

    async def sleeper() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(loop.time())

    async def main() -> None:
        task = loop.spawn(process, sleeper())
        await asyncio.sleep(1.5)
        loop.pause(process)
        await asyncio.sleep(10)
        assert seen == [1]
        loop.resume(process)
        await asyncio.sleep(1.25)
        # The timer of the second 2 ran when the process was resumed, and the next sleep began then.
        assert seen == [1, 11.5, 12.5]
        loop.pause(process)
        await asyncio.sleep(5)
        process.kill()
        loop.resume(process)
        await asyncio.sleep(5)
        assert seen == [1, 11.5, 12.5]
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it stays pending on purpose

    run(loop, main())


def test_callbacks_of_a_paused_process_keep_their_order(loop: SimulatedLoop) -> None:
    seen: list[str] = []
    process = Process("sleeper", "host")

    async def main() -> None:
        loop.pause(process)
        for delay_s, name in ((3, "last"), (1, "first"), (2, "second")):
            loop.call_later(delay_s, seen.append, name, context=process.context)
        await asyncio.sleep(5)
        assert not seen
        loop.resume(process)
        await asyncio.sleep(0)
        assert seen == ["first", "second", "last"]

    run(loop, main())


def test_waiting_for_nothing_is_an_error(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await loop.create_future()

    task = loop.create_task(main())
    with pytest.raises(StuckError, match="no timer is set"):
        loop.run_until_complete(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it will never be done
    loop.close()
