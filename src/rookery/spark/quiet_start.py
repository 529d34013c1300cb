"""Starts Spark's JVM so that what it and its Python processes write to standard error goes to a file.

Spark's launcher, log4j and the daemons that fork Python workers all write there: warnings about incubator modules and
native libraries, and whole stack traces of failures that the driver is told of anyway. On a terminal they would stand
before the one sentence that a user can do something with. Standard output stays as it is, for the console sink.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Lines of the JVM that stand in every log, and so never say why it did not start.
_ALWAYS: Final = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level",
)
_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class SparkStartError(Exception):
    """The JVM ended before Spark could be reached."""


def start_java(settings: Mapping[str, str], log: Path) -> None:
    """Start the JVM of this process, if it has none, with its standard error in `log`. Raises SparkStartError."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    try:
        with log.open("ab") as file:
            gateway = launch_gateway(conf, {"stderr": file})  # type: ignore[no-untyped-call]  # PySpark's own
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    except PySparkRuntimeError:
        raise SparkStartError(f"Spark did not start: {_reason(log)}. All that it wrote is in {log}") from None


def _reason(log: Path) -> str:
    """The first line that is not in every log: what comes after it is a stack trace, or follows from it."""
    lines = (line.strip() for line in log.read_text(errors="replace").splitlines())
    return next((line for line in lines if line and not line.startswith(_ALWAYS)), "its JVM ended without a word")


def is_java_gone(error: Exception) -> bool:
    """Whether a call into the JVM failed because there is none any more. What Java threw has a class of its own."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs

    return isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)


@contextmanager
def logging_to(log: Path) -> Iterator[None]:
    """Send the log lines of this process's libraries to `log` too, and of them only Rookery's own to the terminal.

    The bridge to Java logs each exception with its traceback, which stands before the sentence that explains it.
    """
    root, own = logging.getLogger(), logging.getLogger("rookery")
    handler = logging.FileHandler(log, delay=True)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    # What Python uses where there is no handler: the message alone, on standard error, from warnings upwards.
    shown = logging.lastResort
    root.addHandler(handler)
    if shown is not None:
        own.addHandler(shown)
    try:
        yield
    finally:
        root.removeHandler(handler)
        if shown is not None:
            own.removeHandler(shown)
        handler.close()
