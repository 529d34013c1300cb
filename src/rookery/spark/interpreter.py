"""`rookery-spark-python`: runs Python for Spark's processes without the zip of PySpark that Spark adds to their path.

A query starts a dozen of these processes one after the other, and each would compile the modules of the zip again,
which takes 0.6 s of CPU. The installation that contains this script has PySpark with compiled modules. `session` uses
the script for local masters; on a cluster, the workers' own Python is used.
"""

import os
import re
import sys
from pathlib import Path
from typing import Final

_SCRIPT: Final = "rookery-spark-python"
_ZIPS: Final = re.compile(r"(?:pyspark|py4j-[\w.-]+)\.zip")


def python_of_tasks() -> str:
    """Return this script if it is installed next to the running Python, else the running Python."""
    script = Path(sys.executable).with_name(_SCRIPT)
    return str(script) if script.exists() else sys.executable


def without_zips(path: str) -> str:
    return os.pathsep.join(each for each in path.split(os.pathsep) if not _ZIPS.fullmatch(Path(each).name))


def main() -> None:
    os.environ["PYTHONPATH"] = without_zips(os.environ.get("PYTHONPATH", ""))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
