"""The table of bounds, and the turns of long work on the event loop."""

import asyncio
from pathlib import Path

from rookery.base import bounds
from rookery.base.slices import Slices

PAGE = Path(__file__).parents[2] / "docs" / "bounds.md"


def test_the_page_of_bounds_is_current() -> None:
    assert PAGE.read_text() == bounds.render(), "run: make docs"


def test_every_bound_has_its_reason() -> None:
    for each in (*bounds.SLICES, *bounds.LIMITS):
        assert each.value > 0
        assert each.reason
        assert each.beyond


def test_one_slice_is_processed_per_turn_of_the_loop() -> None:
    async def main() -> None:
        slices, done = Slices(), list[str]()
        turn = 0

        async def work(name: str) -> None:
            async for some in slices.of(range(6), 2):
                done.append(f"{name}{some[0]}@{turn}")

        tasks = [asyncio.ensure_future(work(name)) for name in "abc"]
        while not all(task.done() for task in tasks):
            turn += 1
            await asyncio.sleep(0)
        # After the first slice of each, which belongs to the request's own turn, there are never two in the same turn.
        turns = [each.partition("@")[2] for each in done[3:]]
        assert len(turns) == len(set(turns)) == 6
        assert [each[:2] for each in done] == ["a0", "b0", "c0", "a2", "b2", "c2", "a4", "b4", "c4"]

    asyncio.run(main())


def test_a_cancelled_pause_does_not_use_up_a_turn() -> None:
    async def main() -> None:
        slices = Slices()
        first, second = (asyncio.ensure_future(slices.pause()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    asyncio.run(main())
