"""Compares processes from the nursery with those of a plain interpreter: their behaviour must be the same."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rookery.spark.interpreter import python_of_tasks
from rookery.spark.nursery.server import Request, can_serve
from rookery.spark.nursery.start import OPT_OUT, StartedNursery, preloaded_python, start_nursery

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a nursery needs Linux")

# Imports ctypes, because some versions of libffi keep a file open, and the nursery has it loaded.
PRINTS_ITS_STATE = """
import ctypes, os, sys, threading
print(__name__, sys.argv[1:], os.getcwd(), sys.path[:3], os.environ["MINE"], os.environ["PYTHONPATH"])
print(sys.stdin.read(), sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
print(hash("text"), sys.flags.hash_randomization, sys.stdout.isatty(), threading.current_thread().name)
print("an error", file=sys.stderr)
"""
IS_PRELOADED = "import sys; print('numba' in sys.modules)"
WAITS_FOR_A_SIGNAL = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("terminated"), sys.exit(5)))
print(os.getpid())
while True:
    time.sleep(0.1)
"""
# Forks several processes, as Spark's daemon does.
DRAWS_NUMBERS = """
import os
for _ in range(2):
    if not (worker := os.fork()):
        import numpy, random
        print(numpy.random.random(), random.random())
        os._exit(0)
    os.waitpid(worker, 0)
"""
ENDS = {
    "by itself": "",
    "with a code": "import sys; sys.exit(3)",
    "with a message": "import sys; sys.exit('no')",
    "with an error": "raise RuntimeError",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "after its threads and handlers": "import atexit, threading\natexit.register(print, 'bye')\n"
    "threading.Thread(target=lambda: (threading.Event().wait(0.01), print('done'))).start()",
}


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedNursery]:
    started = start_nursery(tmp_path_factory.mktemp("nursery"), os.getpid())
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory for the module `probe`, with a space in its name."""
    path = tmp_path / "of mine"
    path.mkdir()
    return path


def start(
    python: str, directory: Path, module: str, variables: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    (directory / "probe.py").write_text(module)
    return subprocess.Popen(
        [python, "-m", "probe", "some", "arguments"],
        cwd=directory.parent,
        env={"PYTHONHASHSEED": "0", **os.environ, "PYTHONPATH": f"lib/pyspark.zip:{directory}", **(variables or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(python: str, directory: Path, module: str, variables: Mapping[str, str] | None = None) -> tuple[str, str, int]:
    process = start(python, directory, module, variables)
    output, errors = process.communicate("given")
    return output, errors, process.returncode


def test_a_process_gets_arguments_variables_and_files(nursery: StartedNursery, directory: Path) -> None:
    variables = {"MINE": "is here"}
    result = run(nursery.script, directory, PRINTS_ITS_STATE, variables)
    assert result == run(python_of_tasks(), directory, PRINTS_ITS_STATE, variables)
    assert "__main__ ['some', 'arguments']" in result[0]
    assert run(nursery.script, directory, IS_PRELOADED)[0] == "True\n"


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_in_the_same_way(nursery: StartedNursery, directory: Path, end: str) -> None:
    output, errors, exit_code = run(nursery.script, directory, ENDS[end])
    expected = run(python_of_tasks(), directory, ENDS[end])
    # Java reports signals as shells do.
    assert (output, exit_code) == (expected[0], expected[2] if expected[2] >= 0 else 128 - expected[2])
    assert errors.splitlines()[-1:] == expected[1].splitlines()[-1:]


def test_sigterm_is_passed_on(nursery: StartedNursery, directory: Path) -> None:
    launcher = start(nursery.script, directory, WAITS_FOR_A_SIGNAL)
    assert launcher.stdout is not None
    assert int(launcher.stdout.readline()) != launcher.pid
    launcher.terminate()
    assert (launcher.communicate()[0], launcher.returncode) == ("terminated\n", 5)


def test_a_process_dies_with_its_launcher(nursery: StartedNursery, directory: Path) -> None:
    launcher = start(nursery.script, directory, WAITS_FOR_A_SIGNAL)
    assert launcher.stdout is not None
    process = os.pidfd_open(int(launcher.stdout.readline()))
    launcher.kill()
    _wait_for_end(process)
    assert launcher.communicate()[0] == ""


def test_workers_draw_different_numbers(nursery: StartedNursery, directory: Path) -> None:
    drawn = [run(nursery.script, directory, DRAWS_NUMBERS)[0] for _ in range(2)]
    assert len(set("".join(drawn).split())) == 8


def test_other_variables_get_a_plain_interpreter(nursery: StartedNursery, directory: Path) -> None:
    variables = {"MINE": "", "PYTHONHASHSEED": "5"}
    assert run(nursery.script, directory, IS_PRELOADED, variables)[0] == "False\n"
    assert run(nursery.script, directory, PRINTS_ITS_STATE, variables) == run(
        python_of_tasks(), directory, PRINTS_ITS_STATE, variables
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "is_served"),
    [
        (("-m", "x"), {}, True),
        (("-m", "x"), {"PYTHONPATH": "any", "PYTHON_WORKER_FACTORY_SECRET": "any", "PYTHONHASHSEED": "0"}, True),
        (("-m", "x"), {"OMP_NUM_THREADS": "1"}, True),
        (("-m", "x"), {"OMP_NUM_THREADS": "8"}, False),
        (("-m", "x"), {"PYTHONOPTIMIZE": "1"}, False),
        (("-c", "pass"), {}, False),
    ],
)
def test_only_requests_that_load_the_same_modules_are_served(
    arguments: tuple[str, ...], variables: dict[str, str], is_served: bool
) -> None:
    own = {"PYTHONHASHSEED": "0", "PYTHONPATH": "own", "OMP_NUM_THREADS": "1"}
    assert can_serve(Request(arguments, variables, "", []), own) == is_served


def test_without_a_nursery_an_interpreter_starts(tmp_path: Path, directory: Path) -> None:
    started = start_nursery(tmp_path, os.getpid())
    started.process.kill()
    started.process.wait()
    assert run(started.script, directory, IS_PRELOADED) == ("False\n", "", 0)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_nursery_ends_with_its_driver(tmp_path: Path, is_loaded: bool) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", f"""
import os, pathlib, signal
from rookery.spark.nursery.start import start_nursery
print(start_nursery(pathlib.Path({str(tmp_path)!r}), os.getpid()).process.pid, flush=True)
signal.pause()
"""],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    assert driver.stdout is not None
    nursery = os.pidfd_open(int(driver.stdout.readline()))
    if is_loaded:
        run(str(tmp_path / "python"), tmp_path, "")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    _wait_for_end(nursery)
    assert not tmp_path.exists()


def test_the_nursery_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPT_OUT, "0")
    assert preloaded_python() == python_of_tasks()


def _wait_for_end(process: int) -> None:
    ended = select.poll()
    ended.register(process, select.POLLIN)
    ended.poll()
    os.close(process)
