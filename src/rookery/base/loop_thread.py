"""An event loop in its own thread, for work that must continue while the caller's thread waits or is busy."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")

_STOP_TIMEOUT_S = 5.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop if it is installed (the extra `fast`), else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """An event loop thread that runs until `stop`; a daemon, so a program that does not stop it can still exit."""

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop) -> None:
        self._runner = asyncio.Runner(loop_factory=new_loop)
        self._loop = self._runner.get_loop()
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._runner:
            self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Run the coroutine on the loop; `cancel` of the returned future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Cancel all running work, and wait for the thread to end; does nothing if it has ended."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_TIMEOUT_S)
