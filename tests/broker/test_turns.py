"""Turns: those of a name one after the other, whatever becomes of them; others do not wait."""

import asyncio

import pytest

from rookery.broker.turns import Turns


def test_turns_are_taken_in_order() -> None:
    async def main() -> None:
        turns, gate, done = Turns(), asyncio.Event(), list[str]()

        async def work(name: str, wait: bool) -> str:
            if wait:
                await gate.wait()
            done.append(name)
            return name

        first = turns.take("t", lambda: work("first", wait=True))
        second = turns.take("t", lambda: work("second", wait=False))
        other = turns.take("u", lambda: work("other", wait=False))
        assert await other == "other"
        assert not turns.is_free("t")
        assert turns.is_free("u")
        gate.set()
        assert [await first, await second] == ["first", "second"]
        assert done == ["other", "first", "second"]
        await asyncio.sleep(0)
        assert turns.is_free("t")

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_turn_that_fails_is_over(cancelled: bool) -> None:
    async def main() -> None:
        turns, gate = Turns(), asyncio.Event()

        async def fail() -> None:
            await gate.wait()
            raise ValueError("broken")

        async def succeed() -> int:
            return 7

        first = turns.take("t", fail)
        second = turns.take("t", succeed)
        await asyncio.sleep(0)
        if cancelled:
            first.cancel()
        gate.set()
        assert await second == 7
        with pytest.raises(asyncio.CancelledError if cancelled else ValueError):
            await first

    asyncio.run(main())
