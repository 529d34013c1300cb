"""`rookery-spark-python`: the Python of Spark's processes, without the zip of PySpark that Spark puts on their path.

A query has a dozen of these processes, one started after the other, and each would compile the zip's modules anew:
0.6 s of CPU. PySpark is installed where this script is, with its modules compiled. `session` uses it for local masters;
on a cluster the workers' own Python is what counts.
"""

import os
import re
import sys
from pathlib import Path
from typing import Final

_SCRIPT: Final = "rookery-spark-python"
_ZIPS: Final = re.compile(r"(?:pyspark|py4j-[\w.-]+)\.zip")


def python_of_tasks() -> str:
    """This script, if it is installed beside the running Python."""
    script = Path(sys.executable).with_name(_SCRIPT)
    return str(script) if script.exists() else sys.executable


def without_zips(path: str) -> str:
    return os.pathsep.join(each for each in path.split(os.pathsep) if not _ZIPS.fullmatch(Path(each).name))


def main() -> None:
    os.environ["PYTHONPATH"] = without_zips(os.environ.get("PYTHONPATH", ""))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
