"""The process from which Spark's Python processes are forked: it loads the modules that all of them need once.

`start` starts one per driver, `launcher` requests processes from it, `docs/decisions/0015` explains why. The process
has one thread, starts none, and ends with its driver. It rejects a request that it cannot serve as a new interpreter
would; the launcher then replaces itself with that interpreter. A child must behave like a program that was not forked,
so it returns from `main` and runs the interpreter's regular exit (atexit handlers included).
"""

import atexit
import gc
import marshal
import os
import resource
import runpy
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from rookery.spark.interpreter import without_zips
from rookery.spark.nursery.preload import preload, reseed_in_forks, thread_count

# Prefixes of variables that the interpreter and libraries read when they are loaded: a request with other values cannot
# be served. The exceptions: Spark's own PYTHON_*, PYTHONPATH, which `run_request` applies, and PYTHONUNBUFFERED, which
# `start` sets.
_READ_AT_START: Final = ("PYTHON", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "NPY_", "ARROW_", "LD_", "LC_", "LANG", "TZ")
_READ_LATER: Final = ("PYTHON_", "PYTHONPATH", "PYTHONUNBUFFERED")
_REQUEST_S_MAX: Final = 10
# The exit code of a process that was ended by a signal is 128 plus the signal's number, as in shells and in Java.
_SIGNALLED: Final = 128


class Request(NamedTuple):
    arguments: tuple[str, ...]
    variables: dict[str, str]
    directory: str
    # The launcher's standard input, output and error.
    files: list[int]


class _Child(NamedTuple):
    process_id: int
    # The pidfd, which becomes readable when the process has ended.
    process: int
    launcher: socket.socket


class Nursery:
    def __init__(self, listening: socket.socket, driver: int) -> None:
        self._listening = listening
        self._children: list[_Child] = []
        # poll() is the only kind of selector without kernel state: an epoll instance would be shared with children.
        self._selector = selectors.PollSelector()
        self._selector.register(driver, selectors.EVENT_READ)
        self._selector.register(listening, selectors.EVENT_READ, self._accept)

    def serve(self) -> Request | None:
        """Serve requests. Returns None when the driver has ended; in each forked child, returns its request."""
        while True:
            # Handle one event per select: a handler may close the files of other events.
            handle = self._selector.select()[0][0].data
            request: Request | None = handle() if handle else None
            if request or not handle:
                return request

    def _accept(self) -> Request | None:
        launcher, _ = self._listening.accept()
        request = _receive(launcher)
        is_served = request is not None and can_serve(request, os.environ)
        process_id = os.fork() if is_served else None
        if process_id == 0:
            launcher.close()
            self._close()
            return request
        _close_files(request.files if request else ())
        if process_id is None:
            launcher.close()
        else:
            self._register_child(_Child(process_id, os.pidfd_open(process_id), launcher))
        return None

    def _register_child(self, child: _Child) -> None:
        self._children.append(child)
        self._selector.register(child.process, selectors.EVENT_READ, partial(self._reap, child))
        self._selector.register(child.launcher, selectors.EVENT_READ, partial(self._kill_child, child))
        # If the launcher is gone already, the selector reports it.
        with suppress(OSError):
            socket.send_fds(child.launcher, [b"\0"], [child.process])

    def _reap(self, child: _Child) -> None:
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child.process_id, 0)[1])
        with suppress(OSError):
            child.launcher.sendall(bytes([exit_code if exit_code >= 0 else _SIGNALLED - exit_code]))
        with suppress(KeyError):
            self._selector.unregister(child.launcher)
        self._selector.unregister(child.process)
        self._children.remove(child)
        os.close(child.process)
        child.launcher.close()

    def _kill_child(self, child: _Child) -> None:
        """Kill the child. A launcher sends nothing after its request, so its socket is readable only when it was
        killed, and the kill was meant for the process that it represents."""
        self._selector.unregister(child.launcher)
        signal.pidfd_send_signal(child.process, signal.SIGKILL)

    def _close(self) -> None:
        self._listening.close()
        for child in self._children:
            os.close(child.process)
            child.launcher.close()


def _receive(launcher: socket.socket) -> Request | None:
    """Read a request; None if the launcher was killed or sent an invalid one."""
    launcher.settimeout(_REQUEST_S_MAX)
    files: list[int] = []
    try:
        size, files, _, _ = socket.recv_fds(launcher, 4, 3)
        with launcher.makefile("rb") as rest:
            arguments, variables, directory = marshal.loads(rest.read(int.from_bytes(size, "big")))
        return Request(arguments, variables, directory, files)
    except (OSError, EOFError, ValueError, TypeError):
        _close_files(files)
        return None


def _close_files(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def can_serve(request: Request, own: Mapping[str, str]) -> bool:
    """Whether a new interpreter would load the same modules in the same way as this process has loaded them."""
    asked = {
        name: value
        for name, value in request.variables.items()
        if name.startswith(_READ_AT_START) and not name.startswith(_READ_LATER)
    }
    return request.arguments[:1] == ("-m",) and all(own.get(name) == value for name, value in asked.items())


def run_request(request: Request) -> None:
    """Run the requested module in this process as `python -m` would."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    own = {os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    given = without_zips(request.variables.get("PYTHONPATH", ""))
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.variables | {"PYTHONPATH": given})
    first = [] if sys.flags.safe_path else [request.directory]
    sys.path[:] = [*first, *filter(None, given.split(os.pathsep)), *(each for each in sys.path if each not in own)]
    _, module, *arguments = request.arguments
    sys.argv[:] = [module, *arguments]
    gc.enable()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class FastExit:
    """Exits the process after all atexit handlers, without destroying the preloaded modules, which would take 0.2 s."""

    def __init__(self) -> None:
        self._exit_code = 0
        # atexit runs handlers in reverse order: the first registered runs last.
        atexit.register(self._exit)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        code = error.code if isinstance(error, SystemExit) else error
        if code is not None:
            self._exit_code = code & 0xFF if isinstance(code, int) else 1

    def _exit(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self._exit_code)


def main(driver_id: str, listening: str, directory: str) -> None:
    # Only the driver handles Ctrl-C. Spark's JVM ignores SIGINT too, and its child processes inherit that.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with FastExit():
        driver = _watch(int(driver_id))
        request = _serve(driver, int(listening)) if driver else None
        if request:
            run_request(request)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _watch(driver_id: int) -> int | None:
    """Return a pidfd that becomes readable when the driver ends; None if it has already ended."""
    with suppress(ProcessLookupError):
        driver = os.pidfd_open(driver_id)
        # If the parent is another process, the driver has ended, and its id may belong to an unrelated process now.
        if os.getppid() == driver_id:
            return driver
    return None


def _serve(driver: int, listening: int) -> Request | None:
    # Garbage collection writes to the objects it visits. Frozen objects are not visited, so their memory stays shared
    # with the children.
    gc.disable()
    preload()
    gc.freeze()
    reseed_in_forks()
    # The JVM raises the limit of open files to its maximum, for itself and for the processes that it starts.
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    if thread_count() > 1:
        # Threads do not survive a fork: a child would miss them, and deadlock on a lock that one of them held. The
        # directory is kept: launchers cannot connect to its socket, and run the plain Python.
        sys.exit("Spark's processes are not preloaded: a library has started a thread")
    request = Nursery(socket.socket(fileno=listening), driver).serve()
    os.close(driver)
    return request


if __name__ == "__main__":
    main(*sys.argv[1:])
