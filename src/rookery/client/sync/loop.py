"""One event loop in its own thread, shared by all synchronous clients of a process.

The thread starts with the first client. It is a daemon: a program that does not close its clients can still exit, and
the work on the loop is cancelled then. A forked child has only the thread that forked: the loop that it inherits is
lost, inherited clients raise, and new clients in the child get a new loop.

A callback on the loop's thread must not wait for the loop: a client call that waits raises `ClientStateError` there
instead of deadlocking. An interrupt (Ctrl-C) ends a wait and cancels the work.
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

# A signal that arrives just before the thread blocks, or on another thread, does not wake it. Python runs the handler
# when the thread wakes for any reason: without this interval, an interrupt could be delayed until the work ends.
_SIGNAL_CHECK_S = 0.5


class ClientLoop(LoopThread):
    """Runs from its creation to `stop`. Thread-safe."""

    def __init__(self) -> None:
        # Whether this is the copy in a forked child.
        self.is_lost = False
        super().__init__("rookery-client")

    @property
    def is_alive(self) -> bool:
        return not self.is_lost and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, Result], *, timeout_s: float | None = None) -> Result:
        """Run `work` on the loop and wait for its result. It is cancelled after `timeout_s`, with TimeoutError."""
        future = self.submit(work, waits=True)
        try:
            return _result(future, timeout_s)
        except BaseException:
            # A time-out or interrupt of this thread. (If the work itself failed, this has no effect.)
            future.cancel()
            raise

    def call(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the loop and wait for its result."""

        async def work() -> Result:
            return function()

        return self.run(work())

    def submit(self, work: Coroutine[Any, Any, Result], *, waits: bool = False) -> "Future[Result]":
        """Run `work` on the loop; `waits` says that the calling thread will wait for it."""
        try:
            self.check(waits=waits)
            return super().submit(work)
        except BaseException:
            work.close()
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Schedule a call of `callback` on the loop."""
        self.check(waits=False)
        self._loop.call_soon_threadsafe(callback)

    def check(self, *, waits: bool) -> None:
        """Raise ClientStateError if the loop cannot serve the calling thread."""
        if self.is_lost:
            raise ClientStateError("this client was created before a fork: create another one in the child process")
        if not self._thread.is_alive():
            raise ClientStateError("the program is exiting: clients cannot be used any more")
        if waits and self.is_current:
            raise ClientStateError("a callback on the client's own thread cannot wait for the client")

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return self._thread.ident == get_ident()

    def stop(self) -> None:
        """Cancel all running work and end the thread; do nothing if it has ended."""
        if not self.is_lost:
            super().stop()

    def mark_lost(self) -> None:
        """Mark the copy in a forked child. Nothing is closed: the child shares the loop's files with the parent."""
        self.is_lost = True


class _SharedLoop:
    """The loop of the process. A forked child replaces it, and the lock, which another thread may have held."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: ClientLoop | None = None
        # Keep lost loops alive: the garbage collector would close the files that they share with the parent.
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
            self._loop.mark_lost()
            self._lost.append(self._loop)
            self._loop = None


_SHARED = _SharedLoop()


def shared_loop() -> ClientLoop:
    """Return the loop of all synchronous clients of this process; start it if necessary."""
    return _SHARED.get()


def _result(future: "Future[Result]", timeout_s: float | None) -> Result:
    left_s = float("inf") if timeout_s is None else timeout_s
    while left_s > _SIGNAL_CHECK_S:
        try:
            return future.result(_SIGNAL_CHECK_S)
        except TimeoutError:
            # If it is done, the work itself raised TimeoutError, or its result arrived just now.
            if future.done():
                break
            left_s -= _SIGNAL_CHECK_S
    return future.result(left_s)
