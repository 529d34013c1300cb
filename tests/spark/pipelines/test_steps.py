"""Single-message transforms on a static DataFrame; each row is treated independently."""

from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rookery.pipelines.spec import (
    Cast,
    Drop,
    Filter,
    Flatten,
    Location,
    Mask,
    Rename,
    Route,
    Set,
    Step,
    ToTimestamp,
)
from rookery.pipelines.steps import ERROR_COLUMN, MissingColumnError, PatternError, apply_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rookery.pipelines.spec import OnError

HERE = Location("p.yaml", 1)


def applied(rows: "DataFrame", *steps: Step, on_error: "OnError" = "fail") -> "DataFrame":
    for step in steps:
        rows = apply_step(step, rows, on_error=on_error)
    return rows


def rows_of(rows: "DataFrame") -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def test_the_effect_of_every_step(spark: "SparkSession") -> None:
    rows = spark.sql(
        "SELECT 'Ab1' AS name, 'secret' AS token, 7 AS pin, '42' AS count, 'de' AS country, 1700000000123L AS at, "
        "'2026-03-01 12:00' AS day, named_struct('city', 'Brno', 'geo', named_struct('lat', 1.5D)) AS address, "
        "1 AS gone"
    )
    steps: list[Step] = [
        Mask(HERE, (("name", "redact"), ("token", "hash"), ("pin", "redact"))),
        Cast(HERE, (("count", "bigint"),)),
        ToTimestamp(HERE, (("at", "unix_ms"), ("day", "yyyy-MM-dd HH:mm"))),
        Flatten(HERE, (), "_"),
        Rename(HERE, (("address_geo_lat", "lat"),)),
        Set(HERE, (("double", "count * 2"), ("next", "double + 1"))),
        Drop(HERE, ("gone",)),
        Route(HERE, "concat('to-', country)"),
        Filter(HERE, "double = 84"),
    ]
    assert rows_of(applied(rows, *steps)) == [
        {
            "name": "Xxn",
            "token": sha256(b"secret").hexdigest(),
            "pin": None,
            "count": 42,
            "country": "de",
            "at": datetime.fromtimestamp(1_700_000_000.123),
            "day": datetime(2026, 3, 1, 12),
            "address_city": "Brno",
            "lat": 1.5,
            "double": 84,
            "next": 85,
            "_route": "to-de",
        }
    ]
    assert rows_of(applied(rows, Filter(HERE, "count = '0'"))) == []
    assert applied(rows, Flatten(HERE, ("address",), ".")).columns[-3:] == ["address.city", "address.geo.lat", "gone"]


def test_values_that_cannot_be_converted(spark: "SparkSession") -> None:
    rows = spark.sql("SELECT * FROM VALUES ('1', '5'), ('x', '5'), (NULL, 'soon') AS t(count, at)")
    steps: list[Step] = [Cast(HERE, (("count", "int"),)), ToTimestamp(HERE, (("at", "unix"),))]
    at = datetime.fromtimestamp(5)
    assert rows_of(applied(rows, *steps, on_error="null")) == [
        {"count": 1, "at": at},
        {"count": None, "at": at},
        {"count": None, "at": None},
    ]
    failed = applied(rows, *steps, Filter(HERE, "count = 0"), on_error="dead-letter")
    assert [row[ERROR_COLUMN] for row in rows_of(failed)] == [
        "CastError: count is not a valid int",
        "TimestampError: at is not a valid timestamp",
    ]
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        applied(rows, *steps).collect()


def test_timestamps_that_are_too_large(spark: "SparkSession") -> None:
    """Spark's functions would overflow and fail the batch; here the value is a bad one like any other."""
    times = [2**63 - 1, -(2**63), 2**63 // 10**6 + 1]
    rows = spark.createDataFrame([(time,) for time in times], "at bigint")
    for form, known in (("unix", 0), ("unix_ms", 1), ("unix_us", 2)):
        step = ToTimestamp(HERE, (("at", form),))
        converted = (
            applied(rows, step, on_error="dead-letter").selectExpr("unix_micros(at) AS at", ERROR_COLUMN).collect()
        )
        assert [row["at"] is not None for row in converted].count(True) == known, form
        assert all(
            (row["at"] is None) == (row[ERROR_COLUMN] == "TimestampError: at is not a valid timestamp")
            for row in converted
        ), form


def test_patterns_are_checked_without_rows(spark: "SparkSession") -> None:
    rows = spark.sql("SELECT 'x' AS at, timestamp'2026-03-01' AS known")
    for form in ("YYYY-MM-dd", "qqqqq", "yyyy'x", "hourly"):
        with pytest.raises(
            PatternError, match=f"{form} is not a valid timestamp pattern: use unix, unix_ms, unix_us, or"
        ):
            applied(rows, ToTimestamp(HERE, (("known", "of no use"), ("at", form))))
    applied(rows, ToTimestamp(HERE, (("at", "yyyy-MM-dd'T'HH:mm[:ss]"),)))


def test_flatten_leaves_hidden_columns_alone(spark: "SparkSession") -> None:
    rows = spark.sql("SELECT named_struct('a', 1) AS value, named_struct('id', 2) AS _key")
    assert applied(rows, Flatten(HERE, (), "_")).columns == ["value_a", "_key"]


@pytest.mark.parametrize(
    "step",
    [
        Mask(HERE, (("nmae", "hash"),)),
        Rename(HERE, (("nmae", "x"),)),
        Cast(HERE, (("nmae", "int"),)),
        ToTimestamp(HERE, (("nmae", "unix"),)),
        Flatten(HERE, ("nmae",), "_"),
        Drop(HERE, ("nmae",)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_missing_columns(spark: "SparkSession", step: Step) -> None:
    with pytest.raises(MissingColumnError, match="there is no column nmae: did you mean name"):
        applied(spark.sql("SELECT 'x' AS name, 1 AS id"), step)
