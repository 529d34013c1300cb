"""Runs rebalance listeners in the thread that polls: the loop calls functions in the thread that waits for it.

`ThreadBridge.wait` submits work to the loop and waits for its end. Meanwhile, `ThreadBridge.call_in_thread`, called on
the loop, runs a function in the waiting thread and waits for its result. The function may call `wait` again, so a
listener may call the consumer. Only one thread at a time may wait.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from inspect import isawaitable
from queue import SimpleQueue
from threading import RLock
from typing import Any, TypeAlias, TypeVar

from rookery.base.types import TopicPartition
from rookery.client.errors import ClientStateError
from rookery.client.membership.interfaces import RebalanceListener
from rookery.client.sync.loop import ClientLoop

Result = TypeVar("Result")
# Functions for the waiting thread to call; None ends the wait.
_Calls: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class ThreadBridge:
    def __init__(self, loop: ClientLoop) -> None:
        self._loop = loop
        self._owner = RLock()
        self._calls: _Calls | None = None

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on the loop and wait for its result. An interrupt cancels it."""
        if not self._owner.acquire(blocking=False):
            work.close()
            raise ClientStateError("another thread is using this consumer; only wakeup() may be called by any thread")
        calls: _Calls = SimpleQueue()
        before, self._calls = self._calls, calls
        try:
            future = self._loop.submit(work, waits=True)
            try:
                future.add_done_callback(lambda _: calls.put(None))
                while (call := calls.get()) is not None:
                    call()
                return future.result()
            except BaseException:
                future.cancel()
                raise
        finally:
            self._calls = before
            self._owner.release()

    async def call_in_thread(self, function: Callable[[], Result]) -> Result:
        """Call `function` in the waiting thread and return its result. Must be called on the loop."""
        if self._calls is None:
            return function()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()

        def call() -> None:
            try:
                value = function()
            except Exception as error:
                loop.call_soon_threadsafe(_set_exception, result, error)
            else:
                loop.call_soon_threadsafe(_set_result, result, value)

        self._calls.put(call)
        return await result


def _set_result(future: asyncio.Future[Result], value: Result) -> None:
    # The task that waits for it may have been cancelled.
    if not future.done():
        future.set_result(value)


def _set_exception(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class BridgedListener(RebalanceListener):
    """Calls the user's listener in the thread that polls."""

    def __init__(self, listener: RebalanceListener, bridge: ThreadBridge) -> None:
        self._listener = listener
        self._bridge = bridge

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self._call(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._call(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._call(self._listener.on_partitions_lost, partitions)

    async def _call(self, method: Callable[[Collection[TopicPartition]], Any], partitions: Any) -> None:
        result = await self._bridge.call_in_thread(lambda: method(partitions))
        if isawaitable(result):
            await result
