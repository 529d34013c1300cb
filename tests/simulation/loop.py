"""An asyncio event loop in virtual time, shared by all simulated processes.

The loop never blocks: when no callback is ready, time jumps to the next timer. Callbacks run in the order in which they
were scheduled, also timers of the same instant. There are no sockets, signals or threads. Work for an executor runs on
the loop, after a seeded delay and some time before its result is seen, as work in a thread may.

A process is a context variable. Every callback that a process schedules has its context, so that the loop can drop the
callbacks of a dead process. So a kill can happen between any two callbacks, and not even a `finally` runs after it.
The callbacks and timers of a paused process wait until it is resumed, as with SIGSTOP or a stalled virtual machine.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Protocol, TypeVar, TypeVarTuple

from tests.simulation.trace import Trace

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

# A run that needs more turns is stuck in a loop that takes no virtual time.
STEPS_MAX = 1_000_000
_TASKS_BEFORE_SWEEP = 256


class StuckError(Exception):
    """No callback or timer is left, or the loop runs callbacks without end."""


class Process:
    """A simulated process. `kill` ends it: the loop checks `alive` before each of its callbacks.

    `SimulatedLoop.pause` and `resume` stop and continue it.
    """

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.is_paused = False
        # The callbacks that became ready while the process was paused, in their order.
        self.held: list[asyncio.Handle] = []
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self._unfinished = 0

    def kill(self) -> None:
        self.alive = False
        self.held.clear()

    def remember(self, task: "asyncio.Task[Any]") -> None:
        if len(self.tasks) >= _TASKS_BEFORE_SWEEP and len(self.tasks) >= 2 * self._unfinished:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._unfinished = len(self.tasks)
        self.tasks.append(task)

    def __repr__(self) -> str:
        return self.name


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process:
    process = CURRENT.get()
    assert process is not None, "only simulated processes have a host"
    return process


class Dialler(Protocol):
    """The part of the network that the loop uses for outgoing connections."""

    async def connect(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self, trace: Trace, executor_delay_s: Callable[[], tuple[float, float]]) -> None:
        super().__init__()
        self._trace = trace
        self._executor_delay_s = executor_delay_s
        self._now_s = 0.0
        self._sequence = count()
        self._queue: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.dialler: Dialler | None = None
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._now_s

    # Scheduling

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._sequence), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped when they are due."""

    def _run_once(self) -> None:
        """Run the callbacks that are ready; called by `run_forever`. Those that they schedule run in the next call."""
        if not self._queue:
            self._jump()
        while self._timers and self._timers[0][0] <= self._now_s:
            self._queue.append(heapq.heappop(self._timers)[2])
        ready, self._queue = self._queue, []
        for handle in ready:
            self._run_handle(handle)

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise StuckError("no callback is ready and no timer is set")
        self._now_s = max(self._now_s, self._timers[0][0])

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        process = _owner(handle)
        if process is not None and not process.alive:
            return
        if process is not None and process.is_paused:
            process.held.append(handle)
            return
        self._trace.step(self._now_s, process.name if process else "world")
        if self._trace.step_count > STEPS_MAX:
            raise StuckError(
                f"{STEPS_MAX} steps in {self._now_s:.1f} simulated seconds, the last for {process}: {handle}"
            )
        handle._run()

    # The outside world

    def run_in_executor(  # type: ignore[override]  # callers await the result, which is a future here too
        self, executor: object, func: Callable[..., Result], *args: Any
    ) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self.create_future()
        before_s, after_s = self._executor_delay_s()

        def run() -> None:
            try:
                outcome = func(*args)
            except Exception as error:
                self.call_later(after_s, _fail, future, error)
            else:
                self.call_later(after_s, _resolve, future, outcome)

        self.call_later(before_s, run)
        return future

    async def create_connection(  # type: ignore[override]  # clients use three of its many arguments
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.dialler is not None
        return await self.dialler.connect(protocol_factory, host, port)

    # Processes

    def pause(self, process: Process) -> None:
        """Stop a process between two callbacks. Its connections stay open; its peers' bytes wait in buffers."""
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Continue a process: first the callbacks and timers that became ready in the meantime."""
        process.is_paused = False
        held, process.held = process.held, []
        self._queue.extend(held)

    def spawn(self, process: Process, body: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Run a coroutine in a process."""
        return self.create_task(body, context=process.context)


def _owner(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]  # private, but there is no other access
    return context.get(CURRENT)


def _make_task(
    loop: asyncio.AbstractEventLoop, body: Any, context: Context | None = None, **arguments: Any
) -> "asyncio.Task[Any]":
    """Create a task and add it to its process: the tasks of a dead process are closed at the end of the world.

    Otherwise the garbage collector would close them at any time. `arguments`: since Python 3.14 asyncio passes all
    arguments of `create_task`, such as the task's name.
    """
    task = asyncio.Task(body, loop=loop, context=context, **arguments)
    process = (context or copy_context()).get(CURRENT)
    if process is not None:
        process.remember(task)
    return task


def _resolve(future: "asyncio.Future[Result]", outcome: Result) -> None:
    if not future.done():
        future.set_result(outcome)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
