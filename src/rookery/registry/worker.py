"""The thread in which schemas are parsed and compared, so that the event loop can serve other requests meanwhile.

Parsing a schema of a megabyte takes seconds. A registry has one such thread, and one lock: a piece of work holds it
from its beginning to its end, and the reader of the log holds it while it changes the state. So the state does not
change during the work, and two threads never use the same parsed schema, which is cached and mutable, concurrently.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class SchemaWorker:
    """Runs one piece of work at a time. Code that must not run concurrently with the work holds `lock`."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="registry-schemas")

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread and return its result.

        If the caller is cancelled, work that has not begun is dropped; work that has begun continues, and holds the
        lock until it ends.
        """
        await self.lock.acquire()
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        except BaseException:
            self.lock.release()
            raise
        # The end of the work releases the lock, not the caller: if a cancelled caller released it, the state would
        # change while the thread still reads it.
        future.add_done_callback(lambda _: self.lock.release())
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Wait for work in progress, since a thread cannot be stopped, and shut the thread down."""
        async with self.lock:
            self._executor.shutdown()
