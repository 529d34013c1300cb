"""A broker in a thread of the test's process, with its own event loop.

The broker runs while the test blocks, runs its own event loop or uses a client with threads. Brokers share only the
interpreter, so that a test may run several.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

import structlog

from rookery.base.boot_id import read_boot_id
from rookery.base.errors import StartupError
from rookery.base.files import File, OsFile, OsFiles
from rookery.node.environment import Interceptor
from rookery.node.node import Node
from rookery.node.settings import Settings
from rookery.testing.shifted_time import ShiftedClock, ShiftedLoop, TimeShift, jump, wait_for_due_timers

logger = structlog.get_logger(__name__)

# Longer than the recovery of a test's logs takes.
START_SECONDS_MAX: Final = 60


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

    def __init__(
        self,
        settings: Settings,
        *,
        shift: TimeShift,
        intercept: Interceptor,
        new_loop: Callable[[TimeShift], ShiftedLoop] = ShiftedLoop,
    ) -> None:
        self._settings = settings
        self._make_loop = new_loop
        self._shift = shift
        self._intercept = intercept
        self._thread = threading.Thread(target=self._run, name="rookery-broker", daemon=True)
        self._begun: Future[asyncio.AbstractEventLoop] = Future()
        self._serving: Future[asyncio.AbstractEventLoop] = Future()
        self._stopped: Future[None] = Future()
        # Set on the loop, and read before it runs: `stop` may be called during `start`.
        self._stopping = asyncio.Event()
        self._stop_clean = True
        self._running = threading.Event()
        self._running.set()
        # The loop of the broker, and that of its schema registry.
        self._loops: list[ShiftedLoop] = []

    def start(self) -> None:
        self._thread.start()
        try:
            self._serving.result(START_SECONDS_MAX)
        except TimeoutError:
            self._end(clean=False)
            raise StartupError(
                f"the broker does not serve after {START_SECONDS_MAX} s; in a cluster, is a majority of the "
                "controllers running and connected?"
            ) from None
        except BaseException:
            # The wait may have been interrupted although the broker starts or serves.
            self._end(clean=False)
            raise

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self, *, clean: bool) -> None:
        self._end(clean=clean)
        if self._serving.exception() is None:
            self._stopped.result()

    def _end(self, *, clean: bool) -> None:
        self._stop_clean = clean
        self.resume()
        # A loop that has ended is closed.
        with suppress(RuntimeError):
            self._begun.result().call_soon_threadsafe(self._stopping.set)
        self._thread.join()

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
        loop = self._make_loop(self._shift)
        self._loops.append(loop)
        return loop

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if not self._begun.done():
                self._begun.set_exception(error)
            # Report the error to `start`, or to `stop` if the broker has served.
            waiter = self._stopped if self._serving.done() else self._serving
            waiter.set_exception(error)
        else:
            self._stopped.set_result(None)

    async def _serve(self) -> None:
        self._begun.set_result(asyncio.get_running_loop())
        node = Node(
            self._settings,
            files=UnsyncedFiles(),
            clock=ShiftedClock(self._shift),
            random=SystemRandom(),
            intercept=self._intercept,
            boot_id=read_boot_id(),
            new_loop=self._new_loop,
        )
        starting = asyncio.ensure_future(node.start())
        stop_requested = asyncio.ensure_future(self._stopping.wait())
        failing = asyncio.ensure_future(node.failed())
        await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            raise StartupError("the broker was stopped before it served")
        await starting
        self._serving.set_result(asyncio.get_running_loop())
        await asyncio.wait((stop_requested, failing), return_when=asyncio.FIRST_COMPLETED)
        await node.stop(clean=self._stop_clean)
        if failing.done():
            logger.error("an embedded node has ended", error=str(failing.result()))
