"""The sink under another name, with injected faults. A fault is a file in a directory; it happens once, the n-th time.

commit fails at <step>       raises an exception
commit is killed at <step>   kills the process in which Spark commits batches
driver is killed at <step>   kills the process group of the driver, whose id is in the file `driver`, and that process
worker is killed             kills the process of a task after it has written its rows
executor is killed           kills the parent of the workers' daemon: the executor, or on one machine the nursery
task is slow                 delays the first attempt of the first task of a batch, so that a copy of it is started
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from rookery.spark.options import parse_write_options
from rookery.spark.sink.stream_writer import ArrowWriterOfBatchesAndStreams, MicroBatchWriter, StreamWriter

SLOW_S = 8.0


class FaultySink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty-rookery"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "FaultyWriter | FaultyWriterOf40":  # noqa: N802
        options = dict(self.options)
        directory, version = Path(options.pop("faults")), options.pop("writer-of", "")
        kind = FaultyWriterOf40 if version == "4.0" else FaultyWriter
        made = kind(parse_write_options(options, streaming=True), schema)
        made.directory = directory
        return made


class _Faulty(MicroBatchWriter):
    directory: Path

    async def on_step(self, step: str) -> None:
        if happens(self.directory, f"commit fails at {step}"):
            raise RuntimeError(f"injected at {step}")
        if happens(self.directory, f"commit is killed at {step}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if happens(self.directory, f"driver is killed at {step}"):
            with suppress(ProcessLookupError):
                os.killpg(int((self.directory / "driver").read_text(encoding="utf-8")), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = super().write(iterator)
        context = TaskContext.get()
        is_first = context is not None and context.partitionId() == 0 and context.attemptNumber() == 0
        if is_first and happens(self.directory, "task is slow"):
            time.sleep(SLOW_S)
        if happens(self.directory, "worker is killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if happens(self.directory, "executor is killed"):
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
        return message


class FaultyWriter(_Faulty, StreamWriter):
    pass


class FaultyWriterOf40(_Faulty, ArrowWriterOfBatchesAndStreams):  # type: ignore[misc]
    """The writer with the base class that Spark 4.0 needs."""


def parent_of(process_id: int) -> int:
    """Return the parent of a process; here, of the daemon that forks Python workers."""
    return int(Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def arm(directory: Path, fault: str, occasion: int = 1) -> None:
    (directory / fault).write_text(str(occasion), encoding="utf-8")


def happens(directory: Path, fault: str) -> bool:
    path = directory / fault
    try:
        left = int(path.read_text(encoding="utf-8")) - 1
        if left:
            path.write_text(str(left), encoding="utf-8")
        else:
            path.unlink()
    except FileNotFoundError:
        return False
    return left == 0
