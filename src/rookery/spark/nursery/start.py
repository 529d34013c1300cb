"""Starts a nursery for the driver and writes the script that Spark runs as its Python.

Requests wait in the socket's backlog while the nursery loads. If it cannot be started, or has ended, Spark's processes
start as they do without it.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

from rookery.spark.interpreter import python_of_tasks
from rookery.spark.nursery import launcher

OPT_OUT: Final = "ROOKERY_SPARK_PRELOAD"
# The first is set as Spark sets it; the others keep libraries from starting threads when they are loaded.
_VARIABLES: Final = {
    "PYTHONUNBUFFERED": "YES",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


class StartedNursery(NamedTuple):
    script: str
    process: "subprocess.Popen[bytes]"


def preloaded_python() -> str:
    """Return the program that Spark should start as Python for this driver's processes."""
    if sys.platform != "linux" or os.environ.get(OPT_OUT) == "0":
        return python_of_tasks()
    nursery = _nursery_of(os.getpid())
    return nursery.script if nursery else python_of_tasks()


@cache
def _nursery_of(driver_id: int) -> StartedNursery | None:
    """Return the nursery of all sessions of a process; a forked driver gets its own. None if it cannot be started."""
    directory = tempfile.mkdtemp(prefix="rookery-spark-")
    try:
        return start_nursery(Path(directory), driver_id)
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        return None


def start_nursery(directory: Path, driver_id: int) -> StartedNursery:
    """Start a nursery. `directory` must be private; the nursery removes it at its end. Raises OSError."""
    script, address = directory / "python", directory / "socket"
    command = [sys.executable, "-I", "-S", launcher.__file__, str(address), python_of_tasks()]
    script.write_text(f'#!/bin/sh\nexec {" ".join(map(quote, command))} "$@"\n')
    script.chmod(0o700)
    if not os.access(script, os.X_OK):
        raise PermissionError(f"no program can be run in {directory}")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        file = listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.server", str(driver_id), str(file), str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[file],
            # Its own process group: a signal that kills the driver's group must not kill the nursery, which removes
            # the directory after the driver's end.
            process_group=0,
            env={"PYTHONHASHSEED": "0", **os.environ, **_VARIABLES},
        )
    return StartedNursery(str(script), process)
