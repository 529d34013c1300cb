"""WorkQueues: the work of a key runs in order, also after a failure; other keys do not wait."""

import asyncio

import pytest

from rookery.broker.work_queues import WorkQueues


def test_work_of_a_key_runs_in_order() -> None:
    async def main() -> None:
        queues, gate, done = WorkQueues(), asyncio.Event(), list[str]()

        async def work(name: str, wait: bool) -> str:
            if wait:
                await gate.wait()
            done.append(name)
            return name

        first = queues.run("t", lambda: work("first", wait=True))
        second = queues.run("t", lambda: work("second", wait=False))
        other = queues.run("u", lambda: work("other", wait=False))
        assert await other == "other"
        assert not queues.is_free("t")
        assert queues.is_free("u")
        gate.set()
        assert [await first, await second] == ["first", "second"]
        assert done == ["other", "first", "second"]
        await asyncio.sleep(0)
        assert queues.is_free("t")

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [True, False])
def test_failed_work_does_not_block_its_key(cancelled: bool) -> None:
    async def main() -> None:
        queues, gate = WorkQueues(), asyncio.Event()

        async def fail() -> None:
            await gate.wait()
            raise ValueError("broken")

        async def succeed() -> int:
            return 7

        first = queues.run("t", fail)
        second = queues.run("t", succeed)
        await asyncio.sleep(0)
        if cancelled:
            first.cancel()
        gate.set()
        assert await second == 7
        with pytest.raises(asyncio.CancelledError if cancelled else ValueError):
            await first

    asyncio.run(main())
