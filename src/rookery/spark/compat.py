"""What each version of Spark has. The only module that compares versions: all others ask `has(Feature...)`.

Spark has had data sources in Python since 4.0, and added to them since. `FIRST_VERSION` says in which version each
part came that Rookery uses. Where a version lacks one, Rookery does without, or refuses with `lacking`, which names the
version. docs/spark.md has the same table for users.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class SparkVersion(NamedTuple):
    """Patch versions add nothing."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Feature(Enum):
    """The value is where PySpark keeps it: module and name. tests/spark/test_compat.py compares both with PySpark."""

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
    """Vendors append to it: `4.1.0-amzn-0`."""
    numbers = _NUMBERS.match(text)
    if numbers is None:
        raise ValueError(f"PySpark says that it is version {text!r}, which does not begin with two numbers")
    return SparkVersion(int(numbers[1]), int(numbers[2]))


def installed_version() -> SparkVersion:
    """By PySpark itself: a cluster's own PySpark need not be installed by pip. Raises ImportError without any."""
    from pyspark.version import __version__

    return parse_version(__version__)


def has(feature: Feature) -> bool:
    return installed_version() >= FIRST_VERSION[feature]


def lacking(feature: Feature, what: str) -> str:
    """The sentence of a refusal, to which the caller adds what to do instead."""
    return f"{what} needs Spark {FIRST_VERSION[feature]}, and this is Spark {installed_version()}"
