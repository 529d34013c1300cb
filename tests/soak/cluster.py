"""A Spark standalone cluster on the loopback, from the pip installation: a master and two workers.

The workers have different addresses (Linux responds on all of 127.0.0.0/8), because Spark runs speculative copies only
on another host.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pyspark

from tests.soak.series import ROOT, kill_group
from tests.support.broker import free_port

_CLASSES = "org.apache.spark.deploy"
_START_S_MAX = 120
_POLL_S = 0.1
# Start speculative copies as soon as another task of the stage is done.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """Run a cluster; yields the address for `master`."""
    directory.mkdir(parents=True)
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    processes = [_start(directory, "master.Master", "127.0.0.1", ["--port", str(port), "--webui-port", "0"])]
    try:
        _wait_for(directory / "master.Master-127.0.0.1.log", "I have been elected leader")
        for host in ("127.0.0.1", "127.0.0.2"):
            options = [
                "--cores",
                "2",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(directory / host),
                address,
            ]
            processes.append(_start(directory, "worker.Worker", host, options))
        for host in ("127.0.0.1", "127.0.0.2"):
            _wait_for(directory / f"worker.Worker-{host}.log", "Successfully registered with master")
        yield address
    finally:
        for process in reversed(processes):
            kill_group(process)


def _start(directory: Path, name: str, host: str, options: list[str]) -> "subprocess.Popen[bytes]":
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"{_CLASSES}.{name}", "--host", host, *options]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    with (directory / f"{name}-{host}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)


def _wait_for(log: Path, text: str) -> None:
    deadline_s = monotonic() + _START_S_MAX
    while text not in log.read_text(encoding="utf-8", errors="replace"):
        if monotonic() > deadline_s:
            raise TimeoutError(f"{log} does not contain: {text}")
        sleep(_POLL_S)
