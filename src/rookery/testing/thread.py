"""A broker in a thread of the test's process, with an event loop of its own.

The test may block, run a loop of its own or use a client with threads: the broker goes on. Nothing is shared but the
interpreter, so several brokers live side by side.
"""

import asyncio
import threading
from concurrent.futures import Future
from random import SystemRandom

from rookery.node.node import Interceptor, Node
from rookery.node.settings import Settings
from rookery.testing.files import UnsyncedFiles
from rookery.testing.shifted_time import ShiftedClock, ShiftedLoop, TimeShift, due_timers_fired, jump


class BrokerThread:
    """See `Runner`. A paused broker is a loop whose thread stands still, as a stopped process does: connections are
    taken by the kernel, and nothing is read, answered or timed out."""

    def __init__(self, settings: Settings, *, shift: TimeShift, intercept: Interceptor) -> None:
        self._settings = settings
        self._shift = shift
        self._intercept = intercept
        self._thread = threading.Thread(target=self._run, name="rookery-broker", daemon=True)
        self._serving: Future[asyncio.AbstractEventLoop] = Future()
        self._stopped: Future[None] = Future()
        self._stopping: asyncio.Event
        self._stop_clean = True
        self._running = threading.Event()
        self._running.set()
        # The broker's, and that of its schema registry.
        self._loops: list[ShiftedLoop] = []

    def start(self) -> None:
        self._thread.start()
        try:
            self._serving.result()
        except BaseException:
            # Perhaps it was the waiting that was interrupted, and the broker serves after all.
            if self._serving.exception() is None:
                self.stop(clean=False)
            self._thread.join()
            raise

    def stop(self, *, clean: bool) -> None:
        self._stop_clean = clean
        self.resume()
        self._serving.result().call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._stopped.result()

    def pause(self) -> None:
        if self._running.is_set():
            self._running.clear()
            for loop in self._loops:
                paused = threading.Event()
                loop.call_soon_threadsafe(self._stand_still, paused)
                paused.wait()

    def _stand_still(self, paused: threading.Event) -> None:
        paused.set()
        self._running.wait()

    def resume(self) -> None:
        self._running.set()

    def advance_time(self, seconds: float) -> None:
        loop = self._serving.result()
        if self._running.is_set():
            asyncio.run_coroutine_threadsafe(jump(self._shift, seconds), loop).result()
            for other in self._loops[1:]:
                asyncio.run_coroutine_threadsafe(due_timers_fired(), other).result()
        else:
            # Its timers fire when it goes on.
            self._shift.seconds += seconds

    def _new_loop(self) -> ShiftedLoop:
        loop = ShiftedLoop(self._shift)
        self._loops.append(loop)
        return loop

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            # For whoever waits: the starting test, or else the stopping one.
            waiting = self._stopped if self._serving.done() else self._serving
            waiting.set_exception(error)
        else:
            self._stopped.set_result(None)

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        node = Node(
            self._settings,
            files=UnsyncedFiles(),
            clock=ShiftedClock(self._shift),
            random=SystemRandom(),
            intercept=self._intercept,
            new_loop=self._new_loop,
        )
        await node.start()
        self._serving.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        await node.stop(clean=self._stop_clean)
