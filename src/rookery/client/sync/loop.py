"""One event loop in a thread of its own, for all synchronous clients of a process.

The thread starts with the first client. It is a daemon: a program that forgets to close its clients ends all the same,
and what the loop still does then is cancelled. A forked child has no threads but the one that forked: the loop that it
inherits is lost, its clients say so, and new clients in the child get a new loop.

Who waits here must not be the loop itself: callbacks that run on its thread and call a client that waits get a
`ClientStateError` instead of a deadlock. An interrupt (Ctrl-C) ends the waiting and cancels what was waited for.
"""

import atexit
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Lock, get_ident
from typing import Any, TypeVar

from rookery.base.loop_thread import LoopThread
from rookery.client.errors import ClientStateError

Result = TypeVar("Result")

# A signal that comes just before the thread falls asleep, or on another thread, does not wake it. Python's handler runs
# when it wakes for any reason: without this, an interrupt could wait as long as the work.
_LOOK_FOR_SIGNALS_S = 0.5


class ClientLoop(LoopThread):
    """Runs from the start to `stop`. Safe to use from any thread."""

    def __init__(self) -> None:
        # By a fork: we are in the child.
        self.is_lost = False
        super().__init__("rookery-client")

    @property
    def is_alive(self) -> bool:
        return not self.is_lost and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, Result], *, timeout_s: float | None = None) -> Result:
        """Do the work on the loop, and wait for its result. TimeoutError cancels it."""
        future = self.submit(work, waits=True)
        try:
            return _result(future, timeout_s)
        except BaseException:
            # Its own failure, for which this does nothing; or a time-out or interrupt of ours.
            future.cancel()
            raise

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the loop, and wait for its result."""

        async def work() -> Result:
            return function()

        return self.run(work())

    def submit(self, work: Coroutine[Any, Any, Result], *, waits: bool = False) -> "Future[Result]":
        """Do the work on the loop; `waits` says that the calling thread will wait for it."""
        try:
            self.check(waits=waits)
            return super().submit(work)
        except BaseException:
            work.close()
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call a function on the loop, soon."""
        self.check(waits=False)
        self._loop.call_soon_threadsafe(callback)

    def check(self, *, waits: bool) -> None:
        """ClientStateError if the loop cannot do anything for the calling thread."""
        if self.is_lost:
            raise ClientStateError("this client was made before the process was forked: make another one in the child")
        if not self._thread.is_alive():
            raise ClientStateError("the program ends: clients cannot be used any more")
        if waits and self.is_current:
            raise ClientStateError("a callback on the client's own thread cannot wait for the client")

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return self._thread.ident == get_ident()

    def stop(self) -> None:
        """Cancel all that is under way, and end the thread; nothing if it is gone."""
        if not self.is_lost:
            super().stop()

    def lose(self) -> None:
        """We are in a forked child. The loop's files are the parent's, too: nothing is closed."""
        self.is_lost = True


class _Shared:
    """The process's loop. Forked children forget it, and the lock, which another thread may have held."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: ClientLoop | None = None
        # Collected as garbage, a lost loop would close what it shares with the parent.
        self._lost: list[ClientLoop] = []
        os.register_at_fork(after_in_child=self._after_fork)

    def get(self) -> ClientLoop:
        with self._lock:
            if self._loop is None or not self._loop.is_alive:
                self._loop = ClientLoop()
                atexit.register(self._loop.stop)
            return self._loop

    def _after_fork(self) -> None:
        self._lock = Lock()
        if self._loop is not None:
            self._loop.lose()
            self._lost.append(self._loop)
            self._loop = None


_SHARED = _Shared()


def shared_loop() -> ClientLoop:
    """The loop of all synchronous clients of this process, started if need be."""
    return _SHARED.get()


def _result(future: "Future[Result]", timeout_s: float | None) -> Result:
    left_s = float("inf") if timeout_s is None else timeout_s
    while left_s > _LOOK_FOR_SIGNALS_S:
        try:
            return future.result(_LOOK_FOR_SIGNALS_S)
        except TimeoutError:
            # Done: it was the work's own time-out, or the result came this moment.
            if future.done():
                break
            left_s -= _LOOK_FOR_SIGNALS_S
    return future.result(left_s)
