"""The features of each version of Spark. The only module that compares versions: all others call `has(Feature...)`.

Spark has data sources in Python since 4.0, and later versions extended them. `FIRST_VERSION` maps each feature that
Rookery uses to the version that introduced it. Where the installed version lacks one, Rookery works without it, or
fails with the sentence of `lacking`, which names the version. docs/spark.md has the same table for users.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class SparkVersion(NamedTuple):
    """Major and minor version; patch versions add no features."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Feature(Enum):
    """A feature. Its value is the module and the name of the feature in PySpark, which tests/spark/test_compat.py
    compares with the installed PySpark."""

    PYTHON_DATA_SOURCES = "pyspark.sql.datasource:DataSource"
    ARROW_BATCH_WRITER = "pyspark.sql.datasource:DataSourceArrowWriter"
    ARROW_STREAM_WRITER = "pyspark.sql.datasource:DataSourceStreamArrowWriter"
    ARROW_COLUMN_FUNCTIONS = "pyspark.sql.pandas.functions:arrow_udf"
    ARROW_TIME_ZONES = "pyspark.sql.pandas.types:to_arrow_type(timezone)"
    ADMISSION_CONTROL = "pyspark.sql.streaming.datasource:ReadLimit"


FIRST_VERSION: Final[Mapping[Feature, SparkVersion]] = {
    Feature.PYTHON_DATA_SOURCES: SparkVersion(4, 0),
    Feature.ARROW_BATCH_WRITER: SparkVersion(4, 0),
    Feature.ARROW_STREAM_WRITER: SparkVersion(4, 1),
    Feature.ARROW_COLUMN_FUNCTIONS: SparkVersion(4, 1),
    Feature.ARROW_TIME_ZONES: SparkVersion(4, 2),
    Feature.ADMISSION_CONTROL: SparkVersion(4, 2),
}
OLDEST: Final = FIRST_VERSION[Feature.PYTHON_DATA_SOURCES]

_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)")


def parse_version(text: str) -> SparkVersion:
    """Parse a version of PySpark. Vendors append to it: `4.1.0-amzn-0`."""
    numbers = _NUMBERS.match(text)
    if numbers is None:
        raise ValueError(f"PySpark reports the version {text!r}, which does not begin with two numbers")
    return SparkVersion(int(numbers[1]), int(numbers[2]))


def installed_version() -> SparkVersion:
    """Return the version that PySpark itself reports: the PySpark of a cluster need not be installed by pip.

    Raises ImportError if there is no PySpark.
    """
    from pyspark.version import __version__

    return parse_version(__version__)


def has(feature: Feature) -> bool:
    return installed_version() >= FIRST_VERSION[feature]


def lacking(feature: Feature, what: str) -> str:
    """Return the first sentence of an error message; the caller appends what to do instead."""
    return f"{what} needs Spark {FIRST_VERSION[feature]}, and this is Spark {installed_version()}"
