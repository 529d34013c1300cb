"""Starts Spark's JVM with the standard error of the JVM and its Python processes redirected to a file.

Spark's launcher, log4j and the daemons that fork Python workers all write there: warnings about incubator modules and
native libraries, and stack traces of failures that the driver receives anyway. On a terminal, these would hide the one
sentence that helps the user. Standard output is not redirected: the console sink writes to it.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Lines that the JVM writes to every log; they never explain why it did not start.
_ALWAYS: Final = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level",
)
_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class SparkStartError(Exception):
    """The JVM exited before Spark could be reached."""


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
        raise SparkStartError(f"Spark did not start: {_reason(log)}. Its whole output is in {log}") from None


def _reason(log: Path) -> str:
    """Return the first line that is not in every log: later lines are its stack trace, or consequences of it."""
    lines = (line.strip() for line in log.read_text(errors="replace").splitlines())
    return next((line for line in lines if line and not line.startswith(_ALWAYS)), "its JVM exited without any output")


def is_java_gone(error: Exception) -> bool:
    """Whether a call into the JVM failed because the JVM has exited. Exceptions of Java have their own class."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs

    return isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)


@contextmanager
def logging_to(log: Path) -> Iterator[None]:
    """Write the log lines of all libraries of this process to `log`; only those of Rookery still go to the terminal.

    The bridge to Java logs each exception with its traceback, which would hide the sentence that explains it.
    """
    root, own = logging.getLogger(), logging.getLogger("rookery")
    handler = logging.FileHandler(log, delay=True)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    # Python's handler for loggers without one: it writes the bare message to standard error, from WARNING upwards.
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
