"""Spark sessions as Rookery's tools start them: quiet, on the loopback, with this program's Python in every process.

`local_settings` and `quiet_settings` are plain dictionaries, for who builds a session of their own. `start_session`
looks for Java first, since Spark's own message about a missing one is a stack trace.
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
    # Shuffles of a laptop; a cluster keeps Spark's default.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
# Both shorten a trigger by about a third: small files of a checkpoint are written in place, without checksums.
_CHECKPOINTS_ON_LOCAL_DISKS: Final = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
# PySpark logs each refused query as a page of JSON, and raises it, too.
_ECHOES: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SparkUnavailableError(Exception):
    """Spark cannot be started here, and what to install."""


def start_session(
    name: str, *, master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None, log: Path | None = None
) -> "SparkSession":
    """A new session, or the running one. `settings` win over those of this module.

    With `log`, what Spark writes to standard error goes to that file. Raises SparkUnavailableError.
    """
    _check_installed()
    # Driver, executors and data sources must find the same packages.
    is_local = master.startswith("local")
    python = os.environ.setdefault("PYSPARK_PYTHON", python_of_tasks() if is_local else sys.executable)
    # First of all, as it loads while Java starts.
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
    # For this session only: it ends with the process, and programs that this one starts would inherit it.
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
        raise SparkUnavailableError(f"JAVA_HOME is {home}, where there is no bin/java: Spark needs Java 17 or newer")
    if not home and shutil.which("java") is None:
        raise SparkUnavailableError("Spark needs Java 17 or newer: install it, or set JAVA_HOME to where it is")
