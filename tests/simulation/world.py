"""A simulated world: one event loop, one network, machines with disks, and users; all from one seed.

`World` owns the shared parts. `Machine` is a computer that runs a node and can be killed, paused, lose power or its
disk, and be booted again. The node is the real one, created as in `node.main`, with simulated files, clock, randomness
and network.
"""

import asyncio
import gc
import logging
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from random import Random
from types import CoroutineType
from typing import Any

import structlog

from rookery.base.errors import StartupError
from rookery.base.types import TimestampMs
from rookery.node.node import Node
from rookery.node.settings import Settings
from tests.faults.files import Crash, Survival
from tests.simulation.checkers import Violations
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import CURRENT, Process, SimulatedLoop, StuckError
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace

_EPOCH_MS = 1_700_000_000_000
DATA = Path("/data")
PORT = 9092
_STOP_TIMEOUT_S = 60.0
_CLOSES_MAX = 100
# The clients are a library, so they log with Python's `logging`.
_CLIENT_LOGGER = "rookery.client"
# Log events that only a bug causes. All errors in the logs of clients count as bugs, too.
_BUG_EVENTS = ("request failed", "request failed after its connection closed")


class SimulatedClock:
    """Wall-clock time can jump; the monotonic clock is the loop's. With a `base`, it also jumps when the base does."""

    def __init__(self, loop: SimulatedLoop, base: "SimulatedClock | None" = None) -> None:
        self._loop = loop
        self._base = base
        self.jumped_ms = 0

    def now_ms(self) -> TimestampMs:
        if self._base is not None:
            return self._base.now_ms() + self.jumped_ms
        return _EPOCH_MS + self.jumped_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class World:
    """With `until`, the world ends when the checker of that name finds something."""

    def __init__(self, seed: int, *, until: str | None = None) -> None:
        self._random = Random(seed)
        self.trace = Trace()
        self._until = until
        self.violations = Violations(self._stop_if_wanted)
        self.loop = SimulatedLoop(self.trace, self._executor_delay_s)
        self.loop.set_exception_handler(self._on_loop_error)
        self.network = SimulatedNetwork(self.loop, self.new_random(), self.trace)
        self.clock = SimulatedClock(self.loop)
        # The context of callbacks that belong to no process.
        self.outside = copy_context()
        self._processes: list[Process] = []
        self._machines: dict[str, Machine] = {}

    def new_random(self) -> Random:
        """Return a separate generator, so that the numbers that one component draws do not change those of others."""
        return Random(self._random.getrandbits(64))

    def note(self, text: str) -> None:
        process = CURRENT.get()
        self.trace.note(self.loop.time(), f"{process.name if process else 'world':12} {text}")

    def new_process(self, name: str, host: str) -> Process:
        process = Process(name, host)
        self._processes.append(process)
        return process

    def new_machine(self, name: str, *settings: str) -> "Machine":
        machine = Machine(self, name, settings)
        self._machines[name] = machine
        return machine

    def note_waiting_tasks(self, name: str) -> None:
        """Add to the trace where the tasks of a process wait, to help to understand a failure."""
        for task in [task for process in self._processes if process.name == name for task in process.tasks]:
            frames: list[str] = []
            waiting: Any = task.get_coro() if not task.done() else None
            while waiting is not None and (frame := getattr(waiting, "cr_frame", None)) is not None:
                frames.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
                waiting = waiting.cr_await
            if frames:
                self.note(f"{name} waits in {' > '.join(frames)}")

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run the world to the end of `main`, then close everything in it."""
        with self._logs_to_trace(), _no_collector():
            try:
                task = self.loop.create_task(main)
                task.add_done_callback(lambda _: self.loop.stop())
                self.loop.run_forever()
                if task.done():
                    task.result()
            except StuckError as error:
                self.violations.add("progress", str(error))
            finally:
                # Reports the tasks that failed unnoticed. All objects of the run are young: none was collected yet.
                gc.collect(0)
                self._close()

    def _stop_if_wanted(self, checker: str) -> None:
        if checker == self._until:
            self.loop.stop()

    def _close(self) -> None:
        """Close unfinished tasks: the garbage collector would do it later, with warnings."""
        self.trace.is_closed = True
        self.loop.set_exception_handler(lambda loop, context: None)
        for process in self._processes:
            process.kill()
        unfinished = [task for process in self._processes for task in process.tasks if not task.done()]
        with warnings.catch_warnings():
            # The warnings about coroutines that were never started.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in unfinished + list(asyncio.all_tasks(self.loop)):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is pending on purpose
                coroutine = task.get_coro()
                if isinstance(coroutine, CoroutineType):
                    _close_coroutine(coroutine)
        self.loop.close()

    def _executor_delay_s(self) -> tuple[float, float]:
        process = CURRENT.get()
        machine = self._machines.get(process.host) if process else None
        return machine.disk.delays_s() if machine else (0.0, 0.0)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        process = CURRENT.get()
        if isinstance(error, Crash) or (process is not None and not process.alive):
            return
        self.note(f"unhandled: {context.get('message')}: {error!r}")
        self.violations.add("no-bug", f"unhandled in {process}: {context.get('message')}: {error!r}")

    @contextmanager
    def _logs_to_trace(self) -> Iterator[None]:
        was_configured = structlog.is_configured()
        processors = structlog.get_config()["processors"]
        before = list(processors)
        processors[:] = [self._log]
        structlog.configure(processors=processors)
        client_logger, handler = logging.getLogger(_CLIENT_LOGGER), _ClientLogs(self)
        client_logger.addHandler(handler)
        client_logger.propagate = False
        try:
            yield
        finally:
            client_logger.propagate = True
            client_logger.removeHandler(handler)
            processors[:] = before
            structlog.configure(processors=processors)
            if not was_configured:
                structlog.reset_defaults()

    def _log(self, logger: object, method: str, event: Any) -> Any:
        is_bug = event["event"] in _BUG_EVENTS
        trouble = "\n" + traceback.format_exc() if event.pop("exc_info", None) else ""
        self.note(f"{method}: " + " ".join(f"{key}={value}" for key, value in event.items()) + trouble)
        if is_bug:
            self.violations.add("no-bug", f"{event}{trouble}")
        raise structlog.DropEvent


def _close_coroutine(coroutine: "CoroutineType[Any, Any, Any]") -> None:
    """Close a coroutine and what it awaits, the innermost first.

    One that awaits in a `finally` ignores the first close. If its caller were closed first, the collector would close
    it again later, and print its complaint.
    """
    for _ in range(_CLOSES_MAX):
        if coroutine.cr_frame is None:
            return
        innermost = coroutine
        while isinstance(awaited := innermost.cr_await, CoroutineType) and awaited.cr_frame is not None:
            innermost = awaited
        with suppress(BaseException):
            innermost.close()


class _ClientLogs(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {self.format(record)}"
        self._world.note(text)
        if record.levelno >= logging.ERROR:
            self._world.violations.add("no-bug", text)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Disable the garbage collector during a run: its times would differ between two runs.

    What earlier worlds left is collected first. Their tasks would otherwise stay in asyncio's list of all tasks, which
    every end of an event loop walks through: after some hundred worlds, that is most of the time of other tests.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Machine:
    """A computer with one disk that runs one node. It stays down until it is booted."""

    def __init__(self, world: World, name: str, settings: tuple[str, ...]) -> None:
        self._world = world
        self.name = name
        self.settings = Settings.load(
            None,
            [
                f"log.dirs={DATA}",
                f"listeners=PLAINTEXT://{name}:{PORT}",
                "num.recovery.threads.per.data.dir=1",
                *settings,
            ],
        )
        self._random = world.new_random()
        self.clock = SimulatedClock(world.loop, world.clock)
        self.disk = self._new_disk()
        self._process: Process | None = None
        self._node: Node | None = None
        self._serving: Node | None = None
        # How often a node was started, and how often the power failed.
        self.boots = 0
        self._power_losses = 0
        # Which unsynced writes survive a power loss; random if None.
        self.survival: Survival | None = None
        # True while disks fail: then a failed start is not a violation.
        self.may_fail_to_start = False
        self.on_power_loss: Callable[[], None] = lambda: None
        # Called when the machine has an empty disk instead of the one that it lost.
        self.on_new_disk: Callable[[], None] = lambda: None
        # How many disks it has had.
        self.disks = 1

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def is_paused(self) -> bool:
        return self.is_up and self._process is not None and self._process.is_paused

    @property
    def node(self) -> Node | None:
        """The node if the machine is up; it may still start, or stop."""
        return self._node if self.is_up else None

    @property
    def serves(self) -> bool:
        """Whether the node has started."""
        return self.is_up and self._serving is not None

    def _new_disk(self) -> SimulatedDisk:
        world = self._world
        return SimulatedDisk(
            world.new_random(),
            world.trace,
            on_crash=self._on_crash,
            soon=lambda action: world.loop.call_soon(action, context=world.outside),
        )

    def boot(self) -> None:
        assert not self.is_up
        self.boots += 1
        self._world.network.set_down(self.name, down=False)
        process = self._world.new_process(f"{self.name}.{self.boots}", self.name)
        self._process = process
        self._world.note(f"boot {process.name}")
        self._world.loop.spawn(process, self._run(process))

    async def _run(self, process: Process) -> None:
        world = self._world
        node = Node(
            self.settings,
            files=self.disk,
            clock=self.clock,
            random=Random(self._random.getrandbits(64)),
            network=world.network,
            boot_id=f"{self.name}.{self._power_losses}",
        )
        self._node = node
        try:
            await node.start()
        except StartupError as error:
            world.note(f"did not start: {error}")
            if not self.may_fail_to_start:
                world.violations.add("no-bug", f"the node did not start: {error}")
            self.kill()
        except Exception as error:
            if not process.alive:
                return
            world.note("did not start:\n" + traceback.format_exc())
            world.violations.add("no-bug", f"the start of the node failed: {error!r}")
            self.kill()
        else:
            self._serving = node

    async def stop(self) -> None:
        """Stop the node cleanly, as with SIGTERM; a node that does not serve yet is killed."""
        process, node = self._process, self._serving
        if self.is_up and process is not None and node is not None:
            self._world.note(f"stop {process.name}")
            await asyncio.wait([self._world.loop.spawn(process, node.stop())], timeout=_STOP_TIMEOUT_S)
        self.kill()

    def pause(self) -> None:
        """Let the node stand still, as with SIGSTOP, until `resume`, a kill or a power loss."""
        if self._process is not None and self._process.alive and not self._process.is_paused:
            self._world.note(f"pause {self._process.name}")
            self._world.loop.pause(self._process)

    def resume(self) -> None:
        if self._process is not None and self._process.alive and self._process.is_paused:
            self._world.note(f"resume {self._process.name}")
            self._world.loop.resume(self._process)

    def lose_disk(self) -> None:
        """Kill the node and replace the disk by an empty one."""
        self.kill()
        self._world.note(f"{self.name} has a new disk")
        self.disks += 1
        self.disk = self._new_disk()
        self.on_new_disk()

    def kill(self, *, responses_arrive: bool = True) -> None:
        """Kill the node, as with SIGKILL: the disk keeps all writes."""
        if self._process is not None and self._process.alive:
            self._world.note(f"end of {self._process.name}")
            self._end(self._process, silently=False, responses_arrive=responses_arrive)
            self.disk.release_locks()

    def lose_power(self, survival: Survival | None = None) -> None:
        if self._process is not None and self._process.alive:
            self._end(self._process, silently=True)
            self._lose_power(survival or self._choose_survival())

    def _on_crash(self) -> None:
        """Stop the machine during a write; which data survives is decided when the write has ended."""
        if self._process is not None and self._process.alive:
            self._end(self._process, silently=True)
            self._world.loop.call_soon(self._lose_power, self._choose_survival(), context=self._world.outside)

    def _choose_survival(self) -> Survival:
        return self.survival or self._random.choice(list(Survival))

    def _end(self, process: Process, *, silently: bool, responses_arrive: bool = True) -> None:
        process.kill()
        self._node = self._serving = None
        self._world.network.process_ended(process, silently=silently, responses_arrive=responses_arrive)
        self._world.network.set_down(self.name, down=silently)

    def _lose_power(self, survival: Survival) -> None:
        self._world.note(f"power loss of {self.name}; of the unsynced data survives {survival.name}")
        self._power_losses += 1
        self.disk.lose_power(survival)
        self.on_power_loss()
