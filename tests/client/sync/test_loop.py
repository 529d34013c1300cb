"""The event loop thread that all synchronous clients share."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from rookery.client.errors import ClientStateError
from rookery.client.sync.loop import ClientLoop, shared_loop


@pytest.fixture
def loop() -> Iterator[ClientLoop]:
    made = ClientLoop()
    yield made
    made.stop()


async def thread_of_the_loop() -> int:
    return threading.get_ident()


def test_all_work_runs_on_one_thread(loop: ClientLoop) -> None:
    assert loop.run(thread_of_the_loop()) == loop.run(thread_of_the_loop()) != threading.get_ident()
    assert shared_loop() is shared_loop()


def test_failures_reach_the_caller(loop: ClientLoop) -> None:
    async def fail() -> None:
        raise KeyError("this")

    with pytest.raises(KeyError, match="this"):
        loop.run(fail())


def test_a_timeout_cancels_the_work(loop: ClientLoop) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        loop.run(wait(), timeout_s=0.01)
    assert cancelled.wait(10)


def test_a_timeout_of_the_work_is_raised_to_the_caller(loop: ClientLoop) -> None:
    async def time_out() -> None:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        loop.run(time_out(), timeout_s=10)


INTERRUPT = """
import asyncio, signal, threading
from rookery.client.sync.loop import shared_loop

cancelled = threading.Event()

async def interrupt():
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        cancelled.set()

async def answer():
    return 42

try:
    shared_loop().run(interrupt())
except KeyboardInterrupt:
    assert cancelled.wait(10)
    assert shared_loop().run(answer()) == 42
    print("interrupted")
"""


def test_an_interrupt_ends_the_wait_and_cancels_the_work() -> None:
    """Runs in a separate process: the test process may not handle the signal.

    The signal arrives on the loop's thread, so that it does not wake the waiting one: as if it had arrived just before
    that one blocked.
    """
    ended = subprocess.run([sys.executable, "-c", INTERRUPT], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")


def test_the_loop_does_not_wait_for_itself(loop: ClientLoop) -> None:
    async def wait_for_itself() -> int:
        return loop.run(thread_of_the_loop())

    with pytest.raises(ClientStateError, match="callback"):
        loop.run(wait_for_itself())


def test_stop_cancels_running_work(loop: ClientLoop) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    future = loop.submit(wait())
    loop.run(thread_of_the_loop())
    loop.stop()
    assert future.cancelled()
    with pytest.raises(ClientStateError, match="is exiting"):
        loop.run(thread_of_the_loop())
    loop.stop()


def test_calls_from_other_threads(loop: ClientLoop) -> None:
    called = threading.Event()
    loop.call_soon(called.set)
    assert called.wait(10)


FORK = """
import os, sys, threading
from rookery.client.errors import ClientStateError
from rookery.client.sync.loop import shared_loop

async def answer():
    return 42

parents = shared_loop()
assert parents.run(answer()) == 42
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    assert parents.run(answer()) == 42
    sys.exit(os.waitstatus_to_exitcode(status))
try:
    parents.run(answer())
except ClientStateError as error:
    assert "fork" in str(error)
assert shared_loop() is not parents
assert shared_loop().run(answer()) == 42
"""


def test_a_forked_child_gets_a_new_loop() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", FORK], check=True, timeout=30)


EXIT = """
import asyncio
from rookery.client.sync.loop import shared_loop

async def wait():
    try:
        await asyncio.Event().wait()
    finally:
        print("cancelled")

shared_loop().submit(wait())
shared_loop().run(asyncio.sleep(0))
"""


def test_a_program_may_exit_without_closing_its_clients() -> None:
    ended = subprocess.run([sys.executable, "-W", "error", "-c", EXIT], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "cancelled\n", "")
