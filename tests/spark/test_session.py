"""Sessions of `start_session` and their processes."""

import os
import sys
from typing import TYPE_CHECKING

import pytest

from rookery.spark import compat
from rookery.spark.interpreter import python_of_tasks
from rookery.spark.session import SparkUnavailableError, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.skipif(sys.platform != "linux", reason="a nursery needs Linux")
def test_workers_come_from_the_nursery(spark: "SparkSession") -> None:
    assert spark.sparkContext.pythonExec != python_of_tasks()
    loaded = spark.sparkContext.parallelize([0], 1).map(lambda _: "rookery.spark.nursery.preload" in sys.modules)
    assert loaded.collect() == [True]
    assert os.environ["PYSPARK_PYTHON"] == python_of_tasks(), "child processes must not use the nursery of this one"


def test_a_spark_without_data_sources_in_python_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "3.5.9")
    assert compat.installed_version() == compat.SparkVersion(3, 5)
    with pytest.raises(SparkUnavailableError, match=r"Spark 3\.5 has no data sources in Python: .* 4\.0 or newer"):
        start_session("too old")
