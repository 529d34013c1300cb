"""The Python of Spark's processes."""

import os
import subprocess
import sys

from rookery.spark.interpreter import python_of_tasks, without_zips

PATH = os.pathsep.join(["lib/pyspark.zip", "mine", "lib/py4j-0.10.9.9-src.zip", "my.zip"])


def test_only_the_zips_of_spark_are_removed() -> None:
    assert without_zips(PATH) == os.pathsep.join(["mine", "my.zip"])
    assert without_zips("") == ""


def test_it_is_the_same_python_with_another_path() -> None:
    command = [
        python_of_tasks(),
        "-c",
        "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:])",
    ]
    finished = subprocess.run(
        [*command, "-m", "x"], env={**os.environ, "PYTHONPATH": PATH}, capture_output=True, text=True, check=True
    )
    assert finished.stdout.split() == [sys.executable, without_zips(PATH), "-m", "x"]
