"""Lets a thread wait for the loop while the loop may ask it to do something: how rebalance listeners run in the thread
that polls.

`Conversation.wait` hands work to the loop and waits for its end. While it waits, `Conversation.ask`, called on the
loop, has a function run in the waiting thread, and waits for that in turn. The function may begin a conversation of its
own, so a listener may call the consumer. One thread at a time may wait.
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
# What the waiting thread shall do; None: no more.
_Calls: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class Conversation:
    def __init__(self, loop: ClientLoop) -> None:
        self._loop = loop
        self._user = RLock()
        self._calls: _Calls | None = None

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work on the loop and wait for it here. An interrupt cancels it."""
        if not self._user.acquire(blocking=False):
            work.close()
            raise ClientStateError("another thread uses this consumer; only wakeup is for all threads")
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
            self._user.release()

    async def ask(self, question: Callable[[], Result]) -> Result:
        """On the loop: have the waiting thread answer."""
        if self._calls is None:
            return question()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def call() -> None:
            try:
                found = question()
            except Exception as error:
                loop.call_soon_threadsafe(_fail, answer, error)
            else:
                loop.call_soon_threadsafe(_answer, answer, found)

        self._calls.put(call)
        return await answer


def _answer(future: asyncio.Future[Result], found: Result) -> None:
    # Who asked may have been cancelled.
    if not future.done():
        future.set_result(found)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class HandedListener(RebalanceListener):
    """A user's listener, called in the thread that polls."""

    def __init__(self, listener: RebalanceListener, conversation: Conversation) -> None:
        self._listener = listener
        self._conversation = conversation

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self._tell(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._tell(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._tell(self._listener.on_partitions_lost, partitions)

    async def _tell(self, method: Callable[[Collection[TopicPartition]], Any], partitions: Any) -> None:
        answer = await self._conversation.ask(lambda: method(partitions))
        if isawaitable(answer):
            await answer
