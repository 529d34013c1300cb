"""Starts the Spark sessions of Rookery's tools: little output, on the loopback, this program's Python in all processes.

`start_session` looks for Java first, because Spark reports a missing Java as a stack trace.
"""

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rookery.base.distribution import install_hint
from rookery.spark.class_archive import archive_settings, find_archive
from rookery.spark.compat import OLDEST, installed_version
from rookery.spark.interpreter import python_of_tasks
from rookery.spark.nursery.start import preloaded_python
from rookery.spark.quiet_start import SparkStartError, start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"

_QUIET: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Final = {
    # Enough for one machine; a cluster keeps Spark's default.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
# Both settings shorten a trigger by about a third: the small files of a checkpoint are written in place and without
# checksums.
_CHECKPOINTS_ON_LOCAL_DISKS: Final = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
# PySpark logs each failed query as a page of JSON, although it raises the error as well.
_ECHOES: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SparkUnavailableError(Exception):
    """Spark cannot be started; the message says what to install."""


def start_session(
    name: str, *, master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None, log: Path | None = None
) -> "SparkSession":
    """Return a new session, or the running one. `settings` override those of this module.

    With `log`, the standard error of Spark's processes goes to that file. Raises SparkUnavailableError.
    """
    _check_installed()
    # The driver, executors and data sources must find the same packages.
    is_local = master.startswith("local")
    python = os.environ.setdefault("PYSPARK_PYTHON", python_of_tasks() if is_local else sys.executable)
    # The nursery is started first, because it loads its modules while Java starts.
    preloaded = preloaded_python() if is_local and python == python_of_tasks() else python
    from pyspark.sql import SparkSession

    chosen = dict(_QUIET)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= _LOCAL | _CHECKPOINTS_ON_LOCAL_DISKS
    chosen |= settings or {}
    if is_local:
        chosen |= archive_settings(chosen, find_archive())
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    for logger in _ECHOES:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    # Set for this session only: the nursery ends with this process, and child processes would inherit the variable.
    os.environ["PYSPARK_PYTHON"] = preloaded
    try:
        if log is not None:
            start_java({"spark.master": master, "spark.app.name": name, **chosen}, log)
        return builder.getOrCreate()
    except SparkStartError as error:
        raise SparkUnavailableError(str(error)) from None
    finally:
        os.environ["PYSPARK_PYTHON"] = python


def _check_installed() -> None:
    try:
        version = installed_version()
    except ImportError as error:
        raise SparkUnavailableError(f"PySpark is not installed: {install_hint('spark')}") from error
    if version < OLDEST:
        raise SparkUnavailableError(f"Spark {version} has no data sources in Python: Rookery needs {OLDEST} or newer")
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise SparkUnavailableError(f"JAVA_HOME is {home}, which has no bin/java: Spark needs Java 17 or newer")
    if not home and shutil.which("java") is None:
        raise SparkUnavailableError("Spark needs Java 17 or newer: install it, or set JAVA_HOME to its directory")
