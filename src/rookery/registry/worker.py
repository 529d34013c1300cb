"""The thread in which schemas are parsed and compared, so that a registry's event loop serves other requests meanwhile.

A schema of a megabyte takes seconds. There is one such thread for a registry, and one turn: a piece of work has it from
its beginning to its end, and the reader of the log takes it before it changes the state. So work sees a state that
stands still, and parsed schemas, which are remembered and keep notes of what was asked of them, are never used by two
threads at once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class SchemaWorker:
    """`turn` is for what must not happen while work is under way."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="registry-schemas")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, when it is its turn. A cancelled caller drops what has not begun; what has begun goes
        on, and keeps its turn until it ends."""
        await self.turn.acquire()
        try:
            doing = asyncio.get_running_loop().run_in_executor(self._executor, work)
        except BaseException:
            self.turn.release()
            raise
        # By the work and not by the caller: a caller that is cancelled must not let the state change under the thread.
        doing.add_done_callback(lambda _: self.turn.release())
        return await asyncio.shield(doing)

    async def close(self) -> None:
        """Returns when nothing is under way any more. A thread cannot be stopped."""
        async with self.turn:
            self._executor.shutdown()
