"""The pipeline of the demo: `rookery pipelines run` in its own process, which the demo kills while it works."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from demo.broker import Broker

FILE: Final = Path(__file__).with_name("pipeline.yaml")
# The consumer groups of the two flows: the counts, and the files.
GROUPS: Final = ("website.views-per-minute", "website.enriched-views")
# For a short run on two cores: only the fast JIT compiler, and no more tasks than cores.
_SETTINGS: Final = (
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=2",
)
_STOP_TIMEOUT_S: Final = 60
_LOG_TAIL: Final = 5000


class Pipeline:
    def __init__(self, directory: Path, broker: Broker, output: Path) -> None:
        self.file = FILE
        self.state_dir = directory / "state"
        self._log_path = directory / "pipeline.log"
        self._environment = os.environ | {
            "BROKER": broker.address,
            "REGISTRY": broker.registry,
            "CHECKPOINT": str(directory / "checkpoint"),
            "OUTPUT": str(output),
            "ROOKERY_STATE_DIR": str(self.state_dir),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "rookery.cli.main", "pipelines", "run", str(FILE)]
        command += [argument for setting in _SETTINGS for argument in ("--set", setting)]
        with self._log_path.open("ab") as log:
            # In a new session, so that `kill` can kill Spark's processes together with it.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_STOP_TIMEOUT_S)

    def check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the pipeline ended with exit code {self._process.returncode}\n{self.log()}")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")[-_LOG_TAIL:]
