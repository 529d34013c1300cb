"""A broker in a thread of the test's process, with its own event loop.

The broker runs while the test blocks, runs its own event loop or uses a client with threads. Brokers share only the
interpreter, so that a test may run several.
"""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from random import SystemRandom

from rookery.base.files import File, OsFile, OsFiles
from rookery.node.node import Interceptor, Node
from rookery.node.settings import Settings
from rookery.testing.shifted_time import ShiftedClock, ShiftedLoop, TimeShift, jump, wait_for_due_timers


class UnsyncedFile(OsFile):
    def sync(self) -> None:
        """Do nothing: the kernel writes the data later."""


class UnsyncedFiles(OsFiles):
    """The operating system's files without waiting for the disk.

    The data survives when the broker is stopped, restarted or killed, because the kernel has it; only a crash of the
    machine loses data. In return, starting, creating topics and stopping take almost no time.
    """

    def open(self, path: Path, *, create: bool = False) -> File:
        return UnsyncedFile(path, create=create)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: the kernel writes the directory later."""


class BrokerThread:
    """A `Runner`. A paused broker is a loop whose thread is blocked, like a stopped process: connections are accepted
    by the kernel, nothing is read or responded to, and no timer fires."""

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
        # The loop of the broker, and that of its schema registry.
        self._loops: list[ShiftedLoop] = []

    def start(self) -> None:
        self._thread.start()
        try:
            self._serving.result()
        except BaseException:
            # The wait may have been interrupted although the broker serves.
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
                loop.call_soon_threadsafe(self._block, paused)
                paused.wait()

    def _block(self, paused: threading.Event) -> None:
        paused.set()
        self._running.wait()

    def resume(self) -> None:
        self._running.set()

    def advance_time(self, seconds: float) -> None:
        loop = self._serving.result()
        if self._running.is_set():
            asyncio.run_coroutine_threadsafe(jump(self._shift, seconds), loop).result()
            for other in self._loops[1:]:
                asyncio.run_coroutine_threadsafe(wait_for_due_timers(), other).result()
        else:
            # Its timers fire after `resume`.
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
            # Report the error to `start`, or to `stop` if the broker has served.
            waiter = self._stopped if self._serving.done() else self._serving
            waiter.set_exception(error)
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
